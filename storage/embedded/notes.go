package embedded

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/storage"
)

// Notes implements storage.Changes. A note is deleted by the message's next change; while that is in flight, and may be lost, the deleted one is
// still what holds.
func (s *Store) Notes(ctx context.Context, conversation string, since uint64, yield func(storage.Note) bool) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if badID(conversation) || since == math.MaxUint64 {
		return nil
	}
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	lower, upper := noteKey(nil, conversation, since+1), appendKey(nil, talkSpace, conversation, endMark)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	n := notes{it: it, since: since, limit: math.MaxUint64}
	if latest, flying := s.flight.flying(headKey(nil, conversation)); flying {
		_, n.limit, _ = parseChange(latest.old) // 0 when there was none
		n.deleted = latest.note
	}
	return n.each(ctx, yield)
}

// notes goes over the notes of a conversation up to a limit.
type notes struct {
	it           *pebble.Iterator
	since, limit uint64
	deleted      *storage.Note // by the change that is in flight
}

func (n *notes) each(ctx context.Context, yield func(storage.Note) bool) error {
	for ok := n.it.First(); ok; ok = n.it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		key := n.it.Key()
		value, err := n.it.ValueAndErr()
		if err != nil {
			return err
		}
		note, ok := parseNote(value, binary.BigEndian.Uint64(key[len(key)-8:]))
		if !ok {
			return damaged("a change", key)
		}
		if note.ChangeSeq > n.limit {
			break
		}
		if !n.merge(note.ChangeSeq, yield) || !yield(note) {
			return nil
		}
	}
	n.merge(math.MaxUint64, yield)
	return n.it.Error()
}

// merge yields the deleted note when its place is before the next one; when the iterator still has it, that is the next one.
func (n *notes) merge(next uint64, yield func(storage.Note) bool) bool {
	d := n.deleted
	if d == nil || d.ChangeSeq > next {
		return true
	}
	n.deleted = nil
	return d.ChangeSeq == next || d.ChangeSeq <= n.since || yield(*d)
}
