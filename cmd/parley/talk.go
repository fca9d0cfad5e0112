package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-im/parley/client"
	"github.com/parley-im/parley/protocol"
)

const (
	maxUnacked  = 500 // lines that may wait for their acks; more are not read
	markTimeout = 2 * time.Second
	patient     = 2 * time.Second // before chat says that it still waits for acks at its end
)

// talk is one run of chat: a client of its own, and the screen.
type talk struct {
	s            *chatSettings
	screen       screen
	client       *client.Client
	conversation string
	progress     *progress
	online       atomic.Bool
	told         atomic.Bool  // that there is no connection yet
	failed       atomic.Int64 // messages that the server refused
	shown        atomic.Uint64
	marks        chan struct{} // capacity 1: there is something to mark as read

	mu   sync.Mutex
	mine map[string]bool // client_msg_ids of what was typed here and stands on the screen already
}

func newTalk(s *chatSettings, token func(context.Context) (string, error), scr screen) (*talk, error) {
	t := &talk{
		s: s, screen: scr, conversation: protocol.DirectConversation(s.as, s.to),
		marks: make(chan struct{}, 1), mine: map[string]bool{},
	}
	t.progress = newProgress(t.conversation)
	// The state says whose it is, so that the client refuses to go on with the token of somebody else.
	if err := t.progress.Save(context.Background(), client.Session{User: s.as}); err != nil {
		return nil, err
	}
	history := s.history
	if history == 0 {
		history = -1 // none
	}
	var err error
	t.client, err = client.New(client.Options{
		Addr: s.addr, Plaintext: s.clear(), Token: token, DeviceID: "chat-" + rand.Text(), Platform: s.platformNumber(), SDK: "parley-chat/1",
		SignedIn: true, History: history, State: t.progress,
		OnMessage: t.message, OnChange: t.changed, OnDeleted: t.deleted, OnCleared: t.cleared, OnEvent: t.event, OnSent: t.sent, OnConnState: t.connection,
	})
	return t, err
}

// run reads lines and sends them until there are no more, ctx ends, or the client cannot go on.
func (t *talk) run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- t.client.Run(ctx) }()
	defer func() { _ = t.client.Close() }() // its reason is told by explain
	go t.markRead(ctx)
	lines, failure := t.lines()
	var unacked []*client.Pending
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return errors.Join(<-failure, t.finish(ctx, unacked))
			}
			if line == "" {
				continue
			}
			if t.screen.interactive() && strings.HasPrefix(line, "/") {
				if !strings.HasPrefix(line, "//") {
					t.slash(ctx, line)
					continue
				}
				line = line[1:]
			}
			unacked = settle(ctx, unacked)
			if p := t.send(ctx, line); p != nil {
				unacked = append(unacked, p)
			}
		case err := <-ended:
			return cmp.Or(t.explain(err), unacknowledged(unacked))
		case <-ctx.Done():
			return unacknowledged(unacked)
		}
	}
}

// lines hands on what the screen reads. The goroutine ends with the process when nothing reads from it any more.
func (t *talk) lines() (<-chan string, <-chan error) {
	lines, failure := make(chan string), make(chan error, 1)
	go func() {
		defer close(lines)
		for {
			line, err := t.screen.readLine()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				failure <- err
				return
			}
			lines <- line
		}
	}()
	return lines, failure
}

func (t *talk) send(ctx context.Context, line string) *client.Pending {
	m := client.Text(client.User(t.s.to), line)
	m.ClientMsgID = rand.Text()
	if t.screen.interactive() {
		t.mu.Lock()
		t.mine[m.ClientMsgID] = true
		t.mu.Unlock()
	}
	p, err := t.client.Queue(ctx, m)
	if err != nil {
		t.failed.Add(1)
		t.screen.note("not sent: " + err.Error())
		return nil
	}
	return p
}

// settle drops what was acked from the front, and waits when too much is left.
func settle(ctx context.Context, unacked []*client.Pending) []*client.Pending {
	for len(unacked) > 0 {
		select {
		case <-unacked[0].Done():
		default:
			if len(unacked) < maxUnacked {
				return unacked
			}
			_, _ = unacked[0].Wait(ctx) // sent tells of an error
		}
		unacked = unacked[1:]
	}
	return unacked
}

// finish waits until everything is acked; without a terminal, also until everything that there is was shown.
func (t *talk) finish(ctx context.Context, unacked []*client.Pending) error {
	t.screen.close() // so that Ctrl-C is a signal again
	late := time.AfterFunc(patient, func() { t.screen.note("waiting for the server to acknowledge; Ctrl-C gives up") })
	defer late.Stop()
	for _, p := range unacked {
		_, _ = p.Wait(ctx) // sent tells of an error
	}
	err := t.client.Err()
	if err == nil && !t.screen.interactive() {
		err = t.catchUp(ctx)
	}
	if err == nil {
		t.mark(ctx)
	}
	if n := t.failed.Load(); n > 0 && err == nil {
		err = fmt.Errorf("%d messages were not sent", n)
	}
	return cmp.Or(t.explain(err), unacknowledged(unacked))
}

// unacknowledged is an error when chat ends before the server has answered for all that was typed.
func unacknowledged(list []*client.Pending) error {
	n := 0
	for _, p := range list {
		select {
		case <-p.Done():
		default:
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("not acknowledged, and perhaps not sent: %d of the lines", n)
	}
	return nil
}

func (t *talk) catchUp(ctx context.Context) error {
	list, err := t.client.Conversations(ctx, t.conversation)
	if err != nil {
		return err
	}
	for _, c := range list {
		if err := t.progress.wait(ctx, t.client.Done(), c.MaxSeq); err != nil {
			return err
		}
	}
	return t.client.Err()
}

// explain turns the client's reasons into what the person can do.
func (t *talk) explain(err error) error {
	if why := t.client.Err(); why != nil {
		err = why
	}
	var refused *client.RefusedError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%s does not let %s in (%w); get a new token, or use the server's own data folder", t.s.addr, t.s.as, refused.Unwrap())
	case errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, client.ErrWrongUser):
		return fmt.Errorf("the token is another user's, not %s's", t.s.as)
	}
	return err
}

// message shows one of this conversation.
func (t *talk) message(_ context.Context, m protocol.Message) error {
	if m.ConversationID != t.conversation {
		return nil
	}
	t.mu.Lock()
	here := m.Sender == t.s.as && t.mine[m.ClientMsgID]
	delete(t.mine, m.ClientMsgID)
	t.mu.Unlock()
	if !here {
		t.screen.print(t.line(&m))
	}
	t.shown.Store(m.Seq)
	if m.Sender != t.s.as {
		select {
		case t.marks <- struct{}{}:
		default:
		}
	}
	return nil
}

// event shows that the other side has read.
func (t *talk) event(_ context.Context, e protocol.Event) {
	if e.Type != protocol.EventRead || e.ConversationID != t.conversation || e.User == t.s.as || !t.screen.interactive() {
		return
	}
	if shown := t.shown.Load(); e.Seq >= shown && shown > 0 {
		t.screen.note(e.User + " has read it")
	}
}

// sent tells what became of a line; on a terminal, where it stands on the screen already, the number that it got.
func (t *talk) sent(_ client.Entry, ack protocol.SendAck, err error) {
	switch {
	case err != nil:
		t.failed.Add(1)
		t.screen.note("not sent: " + err.Error())
	case t.screen.interactive() && ack.Seq > 0:
		t.screen.note(fmt.Sprintf("#%d", ack.Seq))
	}
}

// connection tells of changes, not of each attempt.
func (t *talk) connection(s client.ConnState, err error) {
	switch s {
	case client.StateOnline:
		t.online.Store(true)
		t.screen.note(fmt.Sprintf("connected to %s; %s talks to %s", t.s.addr, t.s.as, t.s.to))
	case client.StateWaiting:
		lost, told := t.online.Swap(false), t.told.Swap(true)
		if lost || !told {
			t.screen.note(fmt.Sprintf("no connection to %s (%v); trying again", t.s.addr, err))
		}
	}
}

// markRead moves the read mark behind what is shown, one request at a time.
func (t *talk) markRead(ctx context.Context) {
	for {
		select {
		case <-t.marks:
			_, _ = t.client.Read(ctx, t.conversation, t.shown.Load()) // a failed one is made good by the next
		case <-t.client.Done():
			return
		}
	}
}

// mark is the last one.
func (t *talk) mark(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	select {
	case <-t.marks:
		_, _ = t.client.Read(ctx, t.conversation, t.shown.Load()) // the mark is no promise
	default:
	}
}
