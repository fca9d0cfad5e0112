package logic

import (
	"context"
	"errors"
	"time"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Changes that everybody sees (REVOKE, EDIT, REACT) go the way of messages: accepted, appended to the log of their conversation, and decided behind it,
// in log order:
//
//	verb: may they? ──▶ log ──▶ sequencer ──▶ changer: decide, number, label, note ──▶ reply, EVENT 1
//
// The verb checks rights and times, once. The changer looks at the message as it is stored and at nothing else: a revoke of what is
// revoked changes nothing, and its sender gets the number of the change that did. What changes something gets the conversation's next change_seq; the
// store writes the label first and then the note of it, so whoever learns of a change can read it.
//
// A crash between label and note leaves a label with the number that the conversation's next change would get. Whichever record of that
// message comes next, its own again, makes it whole by applying the label as it stands.
//
// A change is rare beside messages and costs several accesses to the store, so it has a goroutine of its own, one for each partition: messages
// do not wait for it. Of one conversation and batch each is applied by itself, those of different conversations together.

const (
	changesQueued = 1024 // records that wait for the changer; more hold up the partition
	changesAtOnce = 256  // looked at together
	changeTries   = 8    // against another writer: the operator's tools
)

// changer decides the changes of one partition.
type changer struct {
	l     *Logic
	queue chan *storage.Record
	done  chan struct{}
}

func newChanger(l *Logic) *changer {
	c := &changer{l: l, queue: make(chan *storage.Record, changesQueued), done: make(chan struct{})}
	go c.run()
	return c
}

// close waits until everything in the queue is decided.
func (c *changer) close() {
	close(c.queue)
	<-c.done
}

func (c *changer) run() {
	defer close(c.done)
	for rec := range c.queue {
		recs := []*storage.Record{rec}
		for len(recs) < changesAtOnce && len(c.queue) > 0 {
			recs = append(recs, <-c.queue)
		}
		for len(recs) > 0 {
			var now []*storage.Record
			now, recs = firstOfEach(recs)
			c.decide(now)
		}
	}
}

// firstOfEach takes the first record of each conversation.
func firstOfEach(recs []*storage.Record) (first, rest []*storage.Record) {
	seen := make(map[string]bool)
	for _, rec := range recs {
		if id := rec.Message.ConversationID; !seen[id] {
			seen[id] = true
			first = append(first, rec)
		} else {
			rest = append(rest, rec)
		}
	}
	return first, rest
}

// decide settles records of different conversations.
func (c *changer) decide(recs []*storage.Record) {
	for try := 0; len(recs) > 0; try++ {
		var changes []*storage.Change
		var of []*storage.Record
		for _, rec := range recs {
			change, seq, err := c.l.decide(rec)
			switch {
			case err != nil:
				c.l.refuseOrigin(rec.Origin, err)
			case change == nil:
				c.l.answerOrigin(rec.Origin, &protocol.ChangeReply{ChangeSeq: seq})
			default:
				changes, of = append(changes, change), append(of, rec)
			}
		}
		recs = c.apply(changes, of, try)
	}
}

// apply stores changes and answers. It returns the records that another writer was faster than.
func (c *changer) apply(changes []*storage.Change, recs []*storage.Record, try int) (again []*storage.Record) {
	if len(changes) == 0 {
		return nil
	}
	err := c.l.o.Changes.Apply(context.Background(), changes)
	for i, change := range changes {
		rec := recs[i]
		switch {
		case err != nil:
			c.l.refuseOrigin(rec.Origin, err)
		case errors.Is(change.Err, storage.ErrStale) && try < changeTries:
			again = append(again, rec)
		case change.Err != nil:
			c.l.refuseOrigin(rec.Origin, change.Err)
		default:
			c.l.m.changes.WithLabelValues(rec.Intent.Op.String()).Inc()
			c.l.answerOrigin(rec.Origin, &protocol.ChangeReply{ChangeSeq: change.ChangeSeq})
			c.l.tellChanged(rec, change.ChangeSeq)
		}
	}
	return again
}

// decide says what comes of a record: a change, or, when it changes nothing, the number of the message's latest change.
func (l *Logic) decide(rec *storage.Record) (change *storage.Change, changeSeq uint64, err error) {
	in, conversation := rec.Intent, rec.Message.ConversationID
	last, err := l.o.Changes.ChangeSeq(l.ctx, conversation)
	if err != nil {
		return nil, 0, err
	}
	slot, err := l.slot(conversation, in.User, in.Seq)
	if err != nil {
		return nil, 0, err
	}
	change = &storage.Change{Conversation: conversation, Seq: in.Seq, ChangeSeq: last + 1, TimeMS: rec.LogTimeMS}
	if slot.Labels.ChangeSeq == change.ChangeSeq { // a label without its note
		change.Labels, change.Reactor = slot.Labels, ownReactor(&slot.Labels, in)
		return change, 0, nil
	}
	labels, reactor, err := decideLabels(slot, in)
	if err != nil || labels == nil {
		return nil, slot.Labels.ChangeSeq, err
	}
	change.Labels, change.Reactor = *labels, reactor
	return change, 0, nil
}

// decideLabels is what the labels that everybody sees become; nil when the intent changes nothing.
func decideLabels(slot *storage.Slot, in *storage.Intent) (*storage.Labels, *storage.Reactor, error) {
	switch {
	case slot.Labels.Gone:
		return nil, nil, storage.ErrGone
	case in.Op == storage.OpRevoke:
		return revokeLabels(&slot.Labels, in), nil, nil
	case slot.Labels.Revoke != nil:
		return nil, nil, storage.ErrNotFound
	case in.Op == storage.OpEdit:
		return editLabels(slot, in), nil, nil
	default:
		return reactLabels(&slot.Labels, in)
	}
}

// tellChanged sends EVENT 1 to every device of the conversation but the one that asked for the change. A device that is not reached
// loses nothing: SYNC and CHANGES say the same.
func (l *Logic) tellChanged(rec *storage.Record, changeSeq uint64) {
	event := protocol.Event{
		Type: protocol.EventMessageChanged, ConversationID: rec.Message.ConversationID, Seq: rec.Intent.Seq, User: rec.Intent.User,
		TimeMS: rec.LogTimeMS, ChangeSeq: changeSeq,
	}
	_, a, b := protocol.ParseConversation(event.ConversationID)
	l.tell(a, event, rec.Origin.Session)
	if b != a {
		l.tell(b, event, rec.Origin.Session)
	}
}

// intend appends an accepted change to the log.
func (l *Logic) intend(s *session, j job, conversation string, in *storage.Intent) error {
	in.User, in.TimeMS = s.User, l.o.Now().UnixMilli()
	return l.o.Log.Append(&storage.Record{
		Message: protocol.Message{ConversationID: conversation, Sender: s.User}, Origin: origin(s, j), Intent: in, Held: len(j.body),
	})
}

// changeable is the message that a user wants to change. Nobody changes a user's own stream.
func (l *Logic) changeable(s *session, conversation string, seq uint64) (*storage.Slot, error) {
	if kind, _, _ := protocol.ParseConversation(conversation); kind == protocol.KindUser {
		return nil, &protocol.Error{Code: protocol.CodeForbidden, Message: "the messages of a user's own stream do not change"}
	}
	e, err := l.entry(s, conversation)
	if err != nil {
		return nil, err
	}
	switch {
	case seq == 0:
		return nil, storage.ErrInvalidSeq
	case seq > e.State.Tail || seq < e.MinSeq:
		return nil, storage.ErrNotFound
	}
	slot, err := l.slot(conversation, s.User, seq)
	if err != nil {
		return nil, err
	}
	if slot.Labels.Gone || slot.Labels.Hidden {
		return nil, storage.ErrNotFound
	}
	return slot, nil
}

// mayChange checks that a user may change what they sent, as long as it is not older than within.
func (l *Logic) mayChange(s *session, m *protocol.Message, within time.Duration) error {
	forbidden := func(why string) error {
		return &protocol.Error{Code: protocol.CodeForbidden, Message: why, Reason: protocol.ReasonNotOwner}
	}
	switch {
	case m.Sender != s.User || m.ContentType >= protocol.ContentServer:
		return forbidden("not the sender")
	case l.o.Now().UnixMilli()-m.SendTimeMS > within.Milliseconds():
		return forbidden("the message is too old for that")
	}
	return nil
}
