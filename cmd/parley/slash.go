package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/parley-im/parley/protocol"
)

// slashTimeout is how long a command may take: without a connection nobody waits for ever.
const slashTimeout = 10 * time.Second

// slash is what a person at a terminal can do beside talking. N is the number that stands behind the # of a message.
const slashHelp = `/revoke N takes your message back, /edit N TEXT changes it, /react N X and /unreact N X (X is an emoji or a word),
/delete N hides a message from you, /clear all of them; //TEXT says something that begins with a slash`

// order is a line that was typed, taken apart.
type order struct {
	verb string
	seq  uint64
	text string
}

var errNoOrder = errors.New("there is no such command; /help lists them")

// parseOrder reads a line that begins with a slash.
func parseOrder(line string) (c order, err error) {
	verb, rest, _ := strings.Cut(strings.TrimPrefix(line, "/"), " ")
	c.verb, rest = verb, strings.TrimSpace(rest)
	switch verb {
	case "help", "clear":
		if rest != "" {
			err = fmt.Errorf("/%s stands alone", verb)
		}
		return c, err
	case "revoke", "edit", "react", "unreact", "delete":
	default:
		return c, errNoOrder
	}
	number, text, _ := strings.Cut(rest, " ")
	c.text = strings.TrimSpace(text)
	if c.seq, err = strconv.ParseUint(strings.TrimPrefix(number, "#"), 10, 64); err != nil || c.seq == 0 {
		return c, fmt.Errorf("/%s wants the number of a message, as in /%s 7", verb, verb)
	}
	takesText := verb == "edit" || verb == "react" || verb == "unreact"
	switch {
	case takesText && c.text == "":
		return c, fmt.Errorf("/%s %d wants something after the number", verb, c.seq)
	case !takesText && c.text != "":
		return c, fmt.Errorf("/%s takes a number and nothing more", verb)
	}
	return c, nil
}

// slash carries out a line that begins with a slash, and says what came of it.
func (t *talk) slash(ctx context.Context, line string) {
	c, err := parseOrder(line)
	if err == nil && c.verb == "help" {
		for _, l := range strings.Split(slashHelp, "\n") {
			t.screen.note(l)
		}
		return
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, slashTimeout)
		defer cancel()
		err = t.obey(ctx, c)
	}
	if err != nil {
		t.screen.note(err.Error())
	}
}

// obey asks the server. What it changes is told by changed, deleted and cleared, as to the user's other devices.
func (t *talk) obey(ctx context.Context, c order) error {
	var err error
	switch c.verb {
	case "revoke":
		_, err = t.client.Revoke(ctx, t.conversation, c.seq)
	case "edit":
		_, err = t.client.Edit(ctx, t.conversation, c.seq, protocol.ContentText, []byte(c.text))
	case "react", "unreact":
		_, err = t.client.React(ctx, t.conversation, c.seq, c.text, c.verb == "react")
	case "delete":
		err = t.client.Delete(ctx, t.conversation, c.seq)
	case "clear":
		_, err = t.client.Clear(ctx, t.conversation, 0)
	}
	var refused *protocol.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the server did not answer; try again later")
	case errors.As(err, &refused):
		return fmt.Errorf("not done: %s", plain(refused.Message))
	}
	return err
}

// changed shows a message that was taken back, edited or reacted to.
func (t *talk) changed(_ context.Context, m protocol.Message) error {
	if m.ConversationID != t.conversation {
		return nil
	}
	switch m.Status {
	case protocol.StatusNormal:
		t.screen.note("now " + t.line(&m))
	case protocol.StatusRevoked:
		who := m.Sender
		if m.Revoke != nil && m.Revoke.Role == protocol.RoleOperator {
			who = "the operator"
		}
		t.screen.note(fmt.Sprintf("#%d was taken back by %s", m.Seq, plain(who)))
	case protocol.StatusGone, protocol.StatusHidden: // nothing is left to show
	}
	return nil
}

// deleted tells of what the user hid from themselves, here or on another device.
func (t *talk) deleted(_ context.Context, conversation string, seqs []uint64) error {
	if conversation == t.conversation && len(seqs) > 0 {
		list := make([]string, len(seqs))
		for i, seq := range seqs {
			list[i] = fmt.Sprintf("#%d", seq)
		}
		t.screen.note(strings.Join(list, ", ") + " deleted, for you alone")
	}
	return nil
}

// cleared tells of a cleared history.
func (t *talk) cleared(_ context.Context, conversation string, upTo uint64) error {
	if conversation == t.conversation {
		t.screen.note(fmt.Sprintf("everything up to #%d deleted, for you alone", upTo))
	}
	return nil
}

// line is a message as it is shown here: on a terminal with its number.
func (t *talk) line(m *protocol.Message) string {
	return line(m, t.screen.interactive(), time.Now())
}
