package mongo

import (
	"context"
	"slices"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Read implements storage.Buckets. Each bucket is one query, for the slots that are likely wanted and no others.
func (s *Store) Read(ctx context.Context, q storage.Range, yield func(*storage.Slot) bool) error {
	if q.From == 0 || q.From > q.To {
		return storage.ErrInvalidSeq
	}
	q.To = min(q.To, protocol.MaxInt)
	if q.From > q.To {
		return nil
	}
	r := reading{s: s, q: q, yield: yield}
	if q.NewestFirst {
		return s.fault(r.down(ctx))
	}
	return s.fault(r.up(ctx))
}

// reading is a Read under way.
type reading struct {
	s     *Store
	q     storage.Range
	yield func(*storage.Slot) bool
	given int // slots that were yielded
}

// want is how many slots the next query is for, at most.
func (r *reading) want() uint64 {
	if r.q.Expect <= 0 {
		return r.q.To
	}
	return uint64(max(r.q.Expect-r.given%r.q.Expect, 1))
}

// up yields ascending, until a seq is not stored.
func (r *reading) up(ctx context.Context) error {
	for seq, again := r.q.From, false; seq <= r.q.To; {
		last := min(r.q.To, r.s.home(r.q.Conversation).last(seq), seq+r.want()-1)
		slots, whole, err := r.s.run(ctx, r.q.Conversation, r.q.Viewer, seq, last)
		if err != nil {
			return err
		}
		if !r.give(slots) || whole && len(slots) == 0 {
			return nil
		}
		seq += uint64(len(slots))
		if len(slots) > 0 || whole {
			continue
		}
		// There is no bucket. It may just have come; otherwise it must be above the tail.
		switch state, err := r.s.State(ctx, r.q.Conversation); {
		case err != nil || state.Tail < seq:
			return err
		case again:
			return r.s.hole(r.q.Conversation, seq)
		}
		again = true
	}
	return nil
}

// down yields descending, from the tail if it is lower.
func (r *reading) down(ctx context.Context) error {
	for seq, known := r.q.To, false; seq >= r.q.From; {
		first := max(r.q.From, r.s.home(r.q.Conversation).first(seq))
		if want := r.want(); seq-first >= want {
			first = seq - want + 1
		}
		slots, _, err := r.s.run(ctx, r.q.Conversation, r.q.Viewer, first, seq)
		if err != nil {
			return err
		}
		if uint64(len(slots)) == seq-first+1 {
			slices.Reverse(slots)
			if !r.give(slots) {
				return nil
			}
			seq, known = first-1, true
			continue
		}
		state, err := r.s.State(ctx, r.q.Conversation)
		switch {
		case err != nil || state.Tail < r.q.From:
			return err
		case known || state.Tail >= seq && len(slots) > 0:
			return r.s.hole(r.q.Conversation, seq)
		}
		seq, known = min(seq, state.Tail), true
	}
	return nil
}

func (r *reading) give(slots []*storage.Slot) (more bool) {
	for _, slot := range slots {
		r.given++
		if !r.yield(slot) {
			return false
		}
	}
	return true
}

// run reads [first, last], which lie in one bucket as far as is known: as many of them, from the first, as are stored. whole tells that
// their buckets are there, so that what is missing is above the tail.
func (s *Store) run(ctx context.Context, conversation, viewer string, first, last uint64) (slots []*storage.Slot, whole bool, err error) {
	seqs := make([]uint64, 0, last-first+1)
	for seq := first; seq <= last; seq++ {
		seqs = append(seqs, seq)
	}
	slots, whole, err = s.load(ctx, conversation, viewer, seqs)
	if end := slices.Index(slots, nil); end >= 0 {
		slots = slots[:end]
	}
	return slots, whole, err
}

// slotsAtOnce is how many of a list of seqs are read before the first is yielded.
const slotsAtOnce = 1000

// Slots implements storage.Buckets.
func (s *Store) Slots(ctx context.Context, conversation, viewer string, seqs []uint64, yield func(*storage.Slot) bool) error {
	if slices.Contains(seqs, 0) {
		return storage.ErrInvalidSeq
	}
	for part := range slices.Chunk(seqs, slotsAtOnce) {
		slots, _, err := s.load(ctx, conversation, viewer, part)
		if err != nil {
			return s.fault(err)
		}
		for _, slot := range slots {
			if slot != nil && !yield(slot) {
				return nil
			}
		}
	}
	return nil
}
