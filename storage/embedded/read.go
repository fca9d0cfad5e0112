package embedded

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

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
func (s *Store) Read(ctx context.Context, q storage.Range, yield func(*storage.Slot) bool) error {
	if q.From == 0 || q.From > q.To {
		return storage.ErrInvalidSeq
	}
	return s.read(ctx, q.Conversation, func(r *runs) error {
		if err := r.seenBy(q.Viewer); err != nil {
			return err
		}
		if q.NewestFirst {
			return r.down(ctx, q.From, q.To, yield)
		}
		_, err := r.up(ctx, q.From, q.To, yield)
		return err
	})
}

// Slots implements storage.Buckets.
func (s *Store) Slots(ctx context.Context, conversation, viewer string, seqs []uint64, yield func(*storage.Slot) bool) error {
	if slices.Contains(seqs, 0) {
		return storage.ErrInvalidSeq
	}
	return s.read(ctx, conversation, func(r *runs) error {
		if err := r.seenBy(viewer); err != nil {
			return err
		}
		for _, seq := range seqs {
			if more, err := r.up(ctx, seq, seq, yield); err != nil || !more {
				return err
			}
		}
		return nil
	})
}

// up yields what there is of [from, to], ascending. It returns false when yield did.
func (r *runs) up(ctx context.Context, from, to uint64, yield func(*storage.Slot) bool) (more bool, err error) {
	r.from, r.to = from, to
	ok := r.seek(from, false)
	for sought := true; ok && r.head.first <= to; sought = false {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		h := r.head
		r.cut()
		if sought { // the labels of the others were passed on the way to them
			r.gather()
		}
		if !r.show(ctx, false, yield) {
			return false, r.err
		}
		if h.last() >= to {
			break
		}
		ok = r.newer(sought)
	}
	return true, r.err
}

// down yields what there is of [from, to], descending.
func (r *runs) down(ctx context.Context, from, to uint64, yield func(*storage.Slot) bool) error {
	r.from, r.to = from, to
	for ok := r.seek(to, true); ok && r.head.last() >= from; ok = r.below() {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.cut()
		r.gather()
		if !r.show(ctx, true, yield) || r.head.first <= from {
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
	s            *Store
	it           *pebble.Iterator
	conversation string
	prefix       []byte // of its keys, up to the run mark
	limit        uint64 // runs above it are passed over; it is a run's last, or above all
	head         head
	first        string // the user of side 0
	seeking      []byte // memory for the keys of seeks
	err          error

	from, to uint64 // what is wanted: messages, and labels, outside are passed over
	valid    bool   // the iterator is at a key; after gather
	page     []piece
	labels   []labelled
	settled  bool // what is gone in this iterator is gone for good

	viewer string
	beside *pebble.Iterator // of the same moment; nil: the viewer has deleted nothing, and nobody asked for it yet
	hides  bool             // the viewer has deleted messages
	chunk  uint64           // that bits is of, plus 1
	bits   []byte
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
	return &runs{s: s, it: it, conversation: conversation, prefix: prefix, limit: math.MaxUint64, first: a}, nil
}

func (r *runs) close() error {
	if r.beside != nil {
		return cmp.Or(r.beside.Close(), r.it.Close())
	}
	return r.it.Close()
}

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
	return r.at(r.it.SeekGE(r.seekKey(min(seq, r.limit)))) && (orNewest || r.head.last() >= seq)
}

// older goes to the run below.
func (r *runs) older() bool {
	r.gather()
	return r.below()
}

// below goes to the run below after gather.
func (r *runs) below() bool {
	first := r.head.first
	if !r.at(r.valid) {
		return r.err == nil && first > 1 && r.hole(first-1)
	}
	return r.head.last() == first-1 || r.hole(first-1)
}

// newer goes to the run above, and takes its labels on the way. sought tells whether the iterator was moved off its run by gather.
func (r *runs) newer(sought bool) bool {
	last := r.head.last()
	if last >= r.limit {
		return false
	}
	r.labels = r.labels[:0]
	var valid bool
	if sought {
		valid = r.it.SeekLT(r.seekKey(r.head.first))
	} else {
		valid = r.it.Prev()
	}
	for valid && r.label() {
		valid = r.it.Prev()
	}
	return r.at(valid) && (r.head.first == last+1 || r.hole(last+1))
}

// gather takes the labels of the run that the iterator is at, which come right after it.
func (r *runs) gather() {
	r.labels = r.labels[:0]
	for r.valid = r.it.Next(); r.valid && r.label(); r.valid = r.it.Next() {
	}
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
		r.err = cmp.Or(r.err, r.it.Error())
		return false
	}
	key := r.it.Key()
	if key[len(r.prefix)-1] != runMark { // below the oldest run
		return false
	}
	var ok bool
	if r.head, ok = parseHead(key[len(r.prefix):]); !ok {
		r.err = damaged("a run", key)
	}
	return ok
}

// recent appends the ids of the run's messages in their order.
func (r *runs) recent(ids []storage.RecentID) []storage.RecentID {
	r.each(func(h *protocol.MessageHead, _ []byte) bool {
		id, ok := protocol.ParseMessageID(string(h.ServerMsgID))
		if !ok {
			r.err = damaged("a message id", r.it.Key())
		}
		ids = append(ids, storage.RecentID{Seq: h.Seq, ID: id, LogTimeMS: r.head.logTimeMS})
		return ok
	})
	return ids
}

// each calls f for the run's messages in their order until it returns false. What it is given dies with the next move.
func (r *runs) each(f func(h *protocol.MessageHead, message []byte) bool) {
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
		if !f(&h, message) {
			return
		}
		wire = rest
	}
}

// piece is a message that was cut out of a run: nothing is decoded before it is shown.
type piece struct {
	counts storage.Counts
	wire   []byte
	gone   bool
}

// cut takes those of the run's messages that are wanted into page, in memory of their own.
func (r *runs) cut() {
	r.page = r.page[:0]
	counts, size := r.head.before, 0
	r.each(func(h *protocol.MessageHead, message []byte) bool {
		r.count(&counts, h)
		if h.Seq >= r.from {
			size += len(message)
			r.page = append(r.page, piece{counts: counts, wire: message, gone: h.Status == protocol.StatusGone})
		}
		return h.Seq < r.to
	})
	wire := make([]byte, 0, size)
	for i := range r.page {
		p := &r.page[i]
		wire = append(wire, p.wire...)
		p.wire = wire[len(wire)-len(p.wire) : len(wire) : len(wire)]
	}
}

// count adds a message to the running counts.
func (r *runs) count(c *storage.Counts, h *protocol.MessageHead) {
	if h.Status == protocol.StatusGone {
		countStub(c, h)
		return
	}
	m := protocol.Message{ContentType: h.ContentType, Flags: h.Flags}
	if storage.CountsAsUnread(&m) {
		c[storage.Side(string(h.Sender), r.first)]++
	}
}
