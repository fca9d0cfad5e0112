package embedded

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// State implements storage.Buckets.
func (s *Store) State(ctx context.Context, conversation string) (state storage.State, err error) {
	err = s.read(ctx, conversation, func(r *runs) error {
		if r.newest() {
			state = r.head.state()
		}
		return r.err
	})
	return state, err
}

// Recent implements storage.Buckets. A run is cut apart without decoding its messages; the ids are the only thing that is copied.
func (s *Store) Recent(ctx context.Context, conversation string, yield func(storage.RecentID) bool) error {
	return s.read(ctx, conversation, func(r *runs) error {
		var ids []storage.RecentID
		for ok := r.newest(); ok; ok = r.older() {
			if err := ctx.Err(); err != nil {
				return err
			}
			if ids = r.recent(ids[:0]); r.err != nil {
				return r.err
			}
			for i := len(ids) - 1; i >= 0; i-- {
				if !yield(ids[i]) {
					return nil
				}
			}
		}
		return r.err
	})
}

// Read implements storage.Buckets.
func (s *Store) Read(ctx context.Context, conversation string, from, to uint64, newestFirst bool, yield func(*storage.Slot) bool) error {
	if from == 0 || from > to {
		return storage.ErrInvalidSeq
	}
	return s.read(ctx, conversation, func(r *runs) error {
		if newestFirst {
			return r.down(ctx, from, to, yield)
		}
		return r.up(ctx, from, to, yield)
	})
}

// up yields what there is of [from, to], ascending.
func (r *runs) up(ctx context.Context, from, to uint64, yield func(*storage.Slot) bool) error {
	for ok := r.seek(from, false); ok && r.head.first <= to && r.head.last() >= from; ok = r.newer() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !r.slots(max(from, r.head.first), min(to, r.head.last()), false, yield) || r.head.last() >= to {
			break
		}
	}
	return r.err
}

// down yields what there is of [from, to], descending.
func (r *runs) down(ctx context.Context, from, to uint64, yield func(*storage.Slot) bool) error {
	for ok := r.seek(to, true); ok && r.head.last() >= from; ok = r.older() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !r.slots(max(from, r.head.first), min(to, r.head.last()), true, yield) || r.head.first <= from {
			break
		}
	}
	return r.err
}

// read runs f on the durable runs of a conversation.
func (s *Store) read(ctx context.Context, conversation string, f func(*runs) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if badID(conversation) {
		return nil
	}
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	r, err := s.newRuns(conversation)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, r.close()) }()
	r.limit = s.flight.durable(conversation) // after the iterator was opened: see flight
	return f(r)
}

// runs goes over the runs of one conversation, up to a limit. The methods that move it return whether it is at a run, which head then is of.
type runs struct {
	it           *pebble.Iterator
	conversation string
	prefix       []byte // of every run's key, up to the run mark
	limit        uint64 // runs above this seq are passed over; it is a run's last, or above all
	head         head
	first        string // the user of side 0
	seeking      []byte // memory for the keys of seeks
	err          error
}

// newRuns opens an iterator over all runs of the conversation that are applied. The caller closes it.
func (s *Store) newRuns(conversation string) (*runs, error) {
	prefix := appendKey(make([]byte, 0, 2+len(conversation)), talkSpace, conversation, runMark)
	upper := bytes.Clone(prefix)
	upper[len(upper)-1] = endMark
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: upper})
	if err != nil {
		return nil, err
	}
	_, a, _ := protocol.ParseConversation(conversation)
	return &runs{it: it, conversation: conversation, prefix: prefix, limit: math.MaxUint64, first: a}, nil
}

func (r *runs) close() error { return r.it.Close() }

// newest goes to the run at the limit.
func (r *runs) newest() bool {
	if r.limit == math.MaxUint64 {
		return r.at(r.it.First())
	}
	return r.at(r.it.SeekGE(r.seekKey(r.limit)))
}

// seek goes to the run that has seq. When there is none, to the newest when that is wanted, for reading down from there.
func (r *runs) seek(seq uint64, orNewest bool) bool {
	if seq > r.limit && !orNewest {
		return false
	}
	return r.at(r.it.SeekGE(r.seekKey(min(seq, r.limit))))
}

func (r *runs) older() bool {
	first := r.head.first
	if !r.at(r.it.Next()) {
		return r.err == nil && first > 1 && r.hole(first-1)
	}
	return r.head.last() == first-1 || r.hole(first-1)
}

func (r *runs) newer() bool {
	last := r.head.last()
	if last >= r.limit || !r.at(r.it.Prev()) {
		return false
	}
	return r.head.first == last+1 || r.hole(last+1)
}

// hole records that a seq below the tail is missing, which can not be.
func (r *runs) hole(seq uint64) bool {
	r.err = fmt.Errorf("embedded: %s lacks seq %d, the store is %w: restore the data folder from a backup", r.conversation, seq, errDamaged)
	return false
}

func (r *runs) seekKey(seq uint64) []byte {
	r.seeking = seekRun(r.seeking[:0], r.conversation, seq)
	return r.seeking
}

// at reads the head of the run that the iterator is at.
func (r *runs) at(valid bool) bool {
	if !valid {
		r.err = r.it.Error()
		return false
	}
	key := r.it.Key()
	var ok bool
	if r.head, ok = parseHead(key[len(r.prefix):]); !ok {
		r.err = damaged("a run", key)
	}
	return ok
}

// recent appends the ids of the run's messages in their order.
func (r *runs) recent(ids []storage.RecentID) []storage.RecentID {
	r.cut(func(_ uint64, h *protocol.MessageHead, _ []byte) bool {
		id, ok := protocol.ParseMessageID(string(h.ServerMsgID))
		if !ok {
			r.err = damaged("a message id", r.it.Key())
		}
		ids = append(ids, storage.RecentID{Seq: h.Seq, ID: id, LogTimeMS: r.head.logTimeMS})
		return ok
	})
	return ids
}

// cut calls each for the run's messages in their order until it returns false. What it is given dies with the next move.
func (r *runs) cut(each func(seq uint64, h *protocol.MessageHead, message []byte) bool) {
	wire, err := r.it.ValueAndErr()
	if err != nil {
		r.err = err
		return
	}
	for seq := r.head.first; seq <= r.head.last(); seq++ {
		h, message, rest, err := protocol.CutMessage(wire)
		if err != nil || h.Seq != seq {
			r.err = damaged("a message", r.it.Key())
			return
		}
		if !each(seq, &h, message) {
			return
		}
		wire = rest
	}
}

// slots yields the messages of [from, to], all of which the run has. It returns whether to go on.
func (r *runs) slots(from, to uint64, newestFirst bool, yield func(*storage.Slot) bool) (more bool) {
	var list []*storage.Slot // newest first only
	counts := r.head.before
	more = true
	r.cut(func(seq uint64, h *protocol.MessageHead, message []byte) bool {
		r.count(&counts, h)
		if seq < from {
			return true
		}
		slot := &storage.Slot{LogTimeMS: r.head.logTimeMS, Counts: counts}
		if err := protocol.UnmarshalAlias(bytes.Clone(message), &slot.Message); err != nil {
			r.err = damaged("a message", r.it.Key())
			return false
		}
		if newestFirst {
			list = append(list, slot)
		} else {
			more = yield(slot)
		}
		return more && seq < to
	})
	for i := len(list) - 1; i >= 0 && more && r.err == nil; i-- {
		more = yield(list[i])
	}
	return more && r.err == nil
}

// count adds a message to the running counts.
func (r *runs) count(c *storage.Counts, h *protocol.MessageHead) {
	m := protocol.Message{ContentType: h.ContentType, Flags: h.Flags}
	if storage.CountsAsUnread(&m) {
		c[storage.Side(string(h.Sender), r.first)]++
	}
}
