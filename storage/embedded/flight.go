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
	last   storage.Stamp    // the highest that was given out
	oldest *write           // of the list of writes in flight, in the order of their stamps
	newest *write           //
	tails  map[string]*tail // conversations with runs in flight
	values map[string]flyingValue
	purges map[string]chan struct{} // conversations with a purge in flight; closed when it lands
}

// tail is where a conversation stands.
type tail struct {
	conversation string
	applied      uint64 // owned by the holder of Store.order
	durable      uint64 // owned by flight.mu; means something while writes > 0
	writes       int    // owned by flight.mu: how many are in flight
}

// flyingValue is what there was before the write that is in flight, for everything but runs: rows, labels, sign-outs … At most one write of
// a key is in flight.
type flyingValue struct {
	stamp storage.Stamp
	old   []byte        // nil: nothing
	note  *storage.Note // the note that the write of a latest change deletes
}

func (f *flight) init() {
	f.tails, f.values, f.purges = make(map[string]*tail), make(map[string]flyingValue), make(map[string]chan struct{})
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
	for _, k := range w.keys {
		f.values[k.key] = flyingValue{stamp: w.stamp, old: k.old, note: k.note}
	}
	if w.purge != "" {
		f.purges[w.purge] = make(chan struct{})
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
	for _, k := range w.keys {
		delete(f.values, k.key)
	}
	if w.purge != "" {
		close(f.purges[w.purge])
		delete(f.purges, w.purge)
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

// before is what a reader shows in place of a value that its iterator has, which was written with the stamp, when that write is in flight; nil:
// nothing. What it had before is as old as the iterator, so nothing runs ahead of the conversation in the same iterator.
func (f *flight) before(key []byte, stamp storage.Stamp) (old []byte, flying bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	v, ok := f.values[string(key)]
	return v.old, ok && v.stamp == stamp
}

// flying is what there was at the key before the write that is in flight.
func (f *flight) flying(key []byte) (old flyingValue, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	old, ok = f.values[string(key)]
	return old, ok
}

// purge is closed when what is being purged of the conversation now is gone for good; nil when nothing is.
func (f *flight) purge(conversation string) <-chan struct{} {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.purges[conversation]
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
