package embedded

import (
	"cmp"
	"math"
	"sync"

	"github.com/parley-im/parley/storage"
)

// flight knows the writes that Pebble has applied, so that they can be read, but whose fsync has not returned, so that they may still be
// lost. A write is noted here before it is applied and taken off after its fsync. A reader opens its iterator first and asks flight then:
// what the iterator has is either known here, and left out, or durable.
type flight struct {
	mu     sync.RWMutex
	last   storage.Stamp        // the highest that was given out
	oldest *write               // of the list of writes in flight, in the order of their stamps
	newest *write               //
	tails  map[string]*tail     // conversations with runs in flight
	rows   map[string]flyingRow // rows and sign-outs in flight, by key: at most one write of each
}

// tail is where a conversation stands.
type tail struct {
	conversation string
	applied      uint64 // owned by the holder of Store.order
	durable      uint64 // owned by flight.mu; means something while writes > 0
	writes       int    // owned by flight.mu: how many are in flight
}

// flyingRow is what there was before the write that is in flight.
type flyingRow struct {
	stamp   storage.Stamp
	old     storage.View
	existed bool
}

func (f *flight) init() {
	f.tails, f.rows = make(map[string]*tail), make(map[string]flyingRow)
}

// begin gives w its stamp and notes it. The holder of Store.order calls it, and applies w before anybody else begins.
func (f *flight) begin(w *write) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	w.stamp = f.last
	if w.older = f.newest; w.older == nil {
		f.oldest = w
	} else {
		w.older.newer = w
	}
	f.newest = w
	for _, r := range w.runs {
		if r.tail.writes == 0 {
			r.tail.durable = r.before
			f.tails[r.tail.conversation] = r.tail
		}
		r.tail.writes++
	}
	for _, r := range w.rows {
		f.rows[r.key] = flyingRow{stamp: w.stamp, old: r.old, existed: r.existed}
	}
}

// land takes w off: it is durable.
func (f *flight) land(w *write) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range w.runs {
		r.tail.durable = max(r.tail.durable, r.last) // a later write may land first
		if r.tail.writes--; r.tail.writes == 0 {
			delete(f.tails, r.tail.conversation)
		}
	}
	for _, r := range w.rows {
		delete(f.rows, r.key)
	}
	if w.older == nil {
		f.oldest = w.newer
	} else {
		w.older.newer = w.newer
	}
	if w.newer == nil {
		f.newest = w.older
	} else {
		w.newer.older = w.older
	}
	w.older, w.newer = nil, nil
}

// upTo is the highest stamp of which this holds: no write with it, or with a lower one, will become readable after now.
func (f *flight) upTo() storage.Stamp {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.oldest != nil {
		return f.oldest.stamp - 1
	}
	return f.last
}

// tail is the conversation's, when it is in flight.
func (f *flight) tail(conversation string) *tail {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.tails[conversation]
}

// durable is the highest seq of the conversation that a reader may show.
func (f *flight) durable(conversation string) uint64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if t := f.tails[conversation]; t != nil {
		return t.durable
	}
	return math.MaxUint64
}

// row is what a reader may show of a row that its iterator has. The row that it had before is as old as the iterator, so a
// row never runs ahead of the conversation in the same iterator.
func (f *flight) row(key []byte, v storage.View) (storage.View, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if r, ok := f.rows[string(key)]; ok && r.stamp == v.Stamp {
		return r.old, r.existed
	}
	return v, true
}

// flying is what there was at the key before the write that is in flight.
func (f *flight) flying(key []byte) (old flyingRow, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	old, ok = f.rows[string(key)]
	return old, ok
}

// tailsKept is how many conversations' tails are remembered, at about 150 bytes each.
const tailsKept = 1 << 16

// tails remembers where conversations stand, so that Append need not look at the disk. Forgetting one costs a look, nothing more. It
// has two generations: when the young one is half of the bound, the old one is dropped. Store.order guards it.
type tails struct {
	kept       int // the bound; 0: tailsKept
	young, old map[string]*tail
}

func (c *tails) get(conversation string) *tail {
	if t := c.young[conversation]; t != nil {
		return t
	}
	t := c.old[conversation]
	if t != nil {
		c.put(t)
	}
	return t
}

func (c *tails) put(t *tail) {
	if len(c.young) >= cmp.Or(c.kept, tailsKept)/2 {
		c.old, c.young = c.young, nil
	}
	if c.young == nil {
		c.young = make(map[string]*tail)
	}
	c.young[t.conversation] = t
}
