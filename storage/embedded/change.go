package embedded

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// ChangeSeq implements storage.Changes.
func (s *Store) ChangeSeq(ctx context.Context, conversation string) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if badID(conversation) {
		return 0, nil
	}
	if !s.gate.enter() {
		return 0, storage.ErrClosed
	}
	defer s.gate.leave()
	_, seq, err := s.changeSeq(conversation)
	return seq, err
}

// changeSeq is the number of the conversation's latest change, and the value that it is read from.
func (s *Store) changeSeq(conversation string) (value []byte, seq uint64, err error) {
	key := headKey(nil, conversation)
	value, err = s.value(key)
	if err != nil || value == nil {
		return nil, 0, err
	}
	_, seq, ok := parseChange(value)
	if !ok {
		return nil, 0, damaged("the latest change", key)
	}
	return value, seq, nil
}

// Apply implements storage.Changes. Label, number and note are in one batch, with those of all other changes of the call: there is no label
// without its note.
func (s *Store) Apply(ctx context.Context, changes []*storage.Change) error {
	keys, err := changeLocks(changes)
	if err != nil {
		return err
	}
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	defer s.rowLocks.all(keys)()
	w := &write{s: s}
	var ready []*changed
	for _, c := range changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := s.prepare(c)
		if err != nil {
			return err
		}
		if c.Err == nil {
			ready = append(ready, p)
			w.keys = append(w.keys, p.keys...)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	err = s.writeRow(w, func(b *pebble.Batch) error {
		for _, p := range ready {
			p.put(w)
		}
		return nil
	})
	if err == nil {
		s.m.changes.Add(float64(len(ready)))
	}
	return err
}

// changeLocks are the keys whose locks an Apply holds.
func changeLocks(changes []*storage.Change) (keys [][]byte, err error) {
	seen := make(map[string]bool)
	for _, c := range changes {
		r := c.Reactor
		switch {
		case badID(c.Conversation) || r != nil && (badID(r.User) || len(r.Reaction) > 0xff):
			return nil, fmt.Errorf("embedded: a change of %q cannot be stored", c.Conversation)
		case seen[c.Conversation]:
			return nil, fmt.Errorf("embedded: two changes of %s at once", c.Conversation)
		}
		seen[c.Conversation] = true
		keys = append(keys, headKey(nil, c.Conversation))
	}
	return keys, nil
}

// changed is a change that is ready to be written.
type changed struct {
	c        *storage.Change
	label    []byte      // its key
	reaction []byte      // its key, if there is a Reactor
	keys     []flyingKey // and what was there before
	older    uint64      // the number of the message's change before; 0: none
}

// prepare looks whether a change can be stored, and sets its Err when not. The caller holds the conversation's lock.
func (s *Store) prepare(c *storage.Change) (*changed, error) {
	c.Err = nil
	head, last, err := s.changeSeq(c.Conversation)
	if err != nil {
		return nil, err
	}
	first, status, err := s.find(c.Conversation, c.Seq)
	if err != nil {
		return nil, err
	}
	switch {
	case first == 0:
		c.Err = storage.ErrNotFound
	case status == protocol.StatusGone:
		c.Err = storage.ErrGone
	case c.ChangeSeq != last+1:
		c.Err = storage.ErrStale
		s.m.staleChanges.Inc()
	}
	if c.Err != nil {
		return nil, nil //nolint:nilerr // it is that change's alone
	}
	p := &changed{c: c, label: labelKey(nil, c.Conversation, first, c.Seq)}
	old, err := s.value(p.label)
	if err != nil {
		return nil, err
	}
	latest := flyingKey{key: string(headKey(nil, c.Conversation)), old: head}
	if old != nil {
		if latest.note, err = s.noteOf(c.Conversation, p.label, old); err != nil {
			return nil, err
		}
		p.older = latest.note.ChangeSeq
	}
	p.keys = append(p.keys, latest, flyingKey{key: string(p.label), old: old})
	if c.Reactor != nil {
		p.reaction = reactionKey(nil, c.Conversation, c.Seq, c.Reactor.Reaction, c.Reactor.User)
		if old, err = s.value(p.reaction); err != nil {
			return nil, err
		}
		p.keys = append(p.keys, flyingKey{key: string(p.reaction), old: old})
	}
	return p, nil
}

// find looks for a message: the first seq of its run, 0 when there is none, and its status.
func (s *Store) find(conversation string, seq uint64) (first uint64, status protocol.Status, err error) {
	r, err := s.newRuns(conversation)
	if err != nil {
		return 0, 0, err
	}
	r.limit = s.flight.durable(conversation)
	if seq > 0 && r.seek(seq, false) {
		first = r.head.first
		r.each(func(h *protocol.MessageHead, _ []byte) bool {
			status = h.Status
			return h.Seq < seq
		})
	}
	if r.err != nil {
		first = 0
	}
	if err := r.close(); err != nil {
		return 0, 0, err
	}
	return first, status, r.err
}

// noteOf is the note of the change that made the labels what they are.
func (s *Store) noteOf(conversation string, label, value []byte) (*storage.Note, error) {
	_, changeSeq, _, ok := parseLabelHead(value)
	if !ok {
		return nil, damaged("a label", label)
	}
	key := noteKey(nil, conversation, changeSeq)
	value, err := s.get(key)
	if err != nil {
		return nil, fmt.Errorf("embedded: the change at key %q: %w", key, err)
	}
	n, ok := parseNote(value, changeSeq)
	if !ok {
		return nil, damaged("a change", key)
	}
	return &n, nil
}

// put writes the change into w's batch.
func (p *changed) put(w *write) {
	c, b := p.c, w.batch
	w.must(b.Set(p.label, appendLabels(nil, w.stamp, c.ChangeSeq, &c.Labels), nil))
	w.must(b.Set(headKey(nil, c.Conversation), appendChange(nil, w.stamp, c.ChangeSeq), nil))
	note := storage.Note{ChangeSeq: c.ChangeSeq, Seq: c.Seq, TimeMS: c.TimeMS}
	w.must(b.Set(noteKey(nil, c.Conversation, c.ChangeSeq), appendNote(nil, note), nil))
	if p.older != 0 {
		w.must(b.Delete(noteKey(nil, c.Conversation, p.older), nil))
	}
	switch {
	case c.Reactor == nil:
	case c.Reactor.On:
		w.must(b.Set(p.reaction, appendHidden(nil, w.stamp, nil), nil))
	default:
		w.must(b.Delete(p.reaction, nil))
	}
}
