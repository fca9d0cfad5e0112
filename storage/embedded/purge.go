package embedded

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// purgePiece is about how many bytes of messages one step of a purge reads, so that it takes little memory and holds up little.
const purgePiece = 1 << 20

// A purged message is a stub in its place in its run: a message with nothing but its seq, its id, the status gone, and a content_type that
// says whose count it raised, so that the counts of the others come out as before.
const (
	stubCountsNone = 0
	stubCountsSide = 1 // plus the side
)

func appendStub(dst []byte, h *protocol.MessageHead, before, after storage.Counts) []byte {
	m := protocol.Message{Seq: h.Seq, ServerMsgID: string(h.ServerMsgID), Status: protocol.StatusGone, ContentType: stubCountsNone}
	for side := range before {
		if after[side] != before[side] {
			m.ContentType = stubCountsSide + uint16(side)
		}
	}
	return protocol.AppendBody(dst, &m)
}

func countStub(c *storage.Counts, h *protocol.MessageHead) {
	if side := int(h.ContentType) - stubCountsSide; side >= 0 && side < len(c) {
		c[side]++
	}
}

// Purge implements storage.Operator. It goes from the oldest message to the newest in pieces, each durable before the next, so after an error or
// a crash it is simply done again. Writes that come on a disk that is nearly full are allowed to it: it is what frees space.
//
// The bytes leave the disk when the tables and files that hold them are compacted: soon where much is written, at any rate with Compact.
func (s *Store) Purge(ctx context.Context, conversation string, from, to uint64) (purged uint64, err error) {
	if from == 0 || from > to {
		return 0, storage.ErrInvalidSeq
	}
	if badID(conversation) {
		return 0, nil
	}
	if !s.gate.enter() {
		return 0, storage.ErrClosed
	}
	defer s.gate.leave()
	for from != 0 && from <= to {
		if err := ctx.Err(); err != nil {
			return purged, err
		}
		p := purge{s: s, conversation: conversation, to: to}
		if err := p.piece(ctx, from); err != nil {
			return purged, err
		}
		purged += p.purged
		s.m.purged.Add(float64(p.purged))
		from = p.next
	}
	return purged, nil
}

// purge is one piece.
type purge struct {
	s            *Store
	conversation string
	to           uint64
	values       []purgedRun
	labels       [][]byte // keys
	low, high    uint64   // what is now gone and was not
	purged       uint64
	next         uint64 // where the next piece begins; 0: there is nothing more
}

type purgedRun struct{ key, value []byte }

func (p *purge) piece(ctx context.Context, from uint64) error {
	lock := p.s.rowLocks.of(headKey(nil, p.conversation))
	lock.Lock()
	defer lock.Unlock()
	if err := p.read(ctx, from); err != nil || p.purged == 0 {
		return err
	}
	reactions, err := p.reactions()
	if err != nil {
		return err
	}
	w := &write{s: p.s, purge: p.conversation}
	return p.s.writeNow(w, func(b *pebble.Batch) error {
		for _, v := range p.values {
			w.must(b.Set(v.key, v.value, nil))
		}
		for _, key := range p.labels {
			w.must(b.Delete(key, nil))
		}
		if reactions {
			w.must(b.DeleteRange(p.reactionsFrom(), p.reactionsTo(), nil))
		}
		return nil
	})
}

// read goes up from the run that has from until it has read enough.
func (p *purge) read(ctx context.Context, from uint64) error {
	r, err := p.s.newRuns(p.conversation)
	if err != nil {
		return err
	}
	r.limit = p.s.flight.durable(p.conversation)
	r.from, r.to = from, p.to
	size := 0
	ok := r.seek(from, false)
	for sought := true; ok && r.head.first <= p.to && r.err == nil; sought = false {
		if err := ctx.Err(); err != nil {
			return cmp.Or(err, r.close())
		}
		size += p.run(r)
		if sought {
			r.gather()
		}
		for i := range r.labels {
			p.labels = append(p.labels, labelKey(nil, p.conversation, r.head.first, r.labels[i].seq))
		}
		if size > purgePiece {
			p.next = r.head.last() + 1
			break
		}
		ok = r.newer(sought)
	}
	return cmp.Or(r.err, r.close())
}

// run makes the run's new value, and returns how many bytes the old one has.
func (p *purge) run(r *runs) (size int) {
	var value []byte
	counts, was := r.head.before, p.purged
	r.each(func(h *protocol.MessageHead, message []byte) bool {
		before := counts
		r.count(&counts, h)
		size += len(message)
		if h.Seq < r.from || h.Seq > r.to || h.Status == protocol.StatusGone {
			value = append(value, message...)
			return true
		}
		value = appendStub(value, h, before, counts)
		if p.purged == 0 {
			p.low = h.Seq
		}
		p.high = h.Seq
		p.purged++
		return true
	})
	if p.purged > was {
		p.values = append(p.values, purgedRun{bytes.Clone(r.it.Key()), value})
	}
	return size
}

func (p *purge) reactionsFrom() []byte { return seekReaction(nil, p.conversation, p.high) }
func (p *purge) reactionsTo() []byte   { return seekReaction(nil, p.conversation, p.low-1) }

// reactions tells whether there are any beside the labels.
func (p *purge) reactions() (bool, error) {
	it, err := p.s.db.NewIter(&pebble.IterOptions{LowerBound: p.reactionsFrom(), UpperBound: p.reactionsTo()})
	if err != nil {
		return false, err
	}
	found := it.First()
	return found, cmp.Or(it.Error(), it.Close())
}

// Compact rewrites everything that holds messages, so that what was purged is no longer in any table, and returns when that is done. It takes as
// long as reading and writing the whole store, and as much space again for a while; the store can be used meanwhile. The store's log, whose
// files are used again, may keep old bytes until the store is opened the next time.
func (s *Store) Compact(ctx context.Context) error {
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	if s.space.full.Load() {
		return fmt.Errorf("embedded: compacting needs space: %w", storage.ErrFull)
	}
	s.rewrite.Add(1)
	defer s.rewrite.Add(-1)
	return s.db.Compact(ctx, []byte{talkSpace}, []byte{talkSpace + 1}, false)
}
