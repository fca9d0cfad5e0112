package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

// done is what was done to the messages of a conversation. history.mu guards it, and the marks of the Talk, which has all changes that were tried.
type done struct {
	k       *storagetest.Talk
	changes uint64 // the highest number that was acked or shown
	gone    map[uint64]*tried
	hidden  map[string]map[uint64]*tried // by user
	minSeq  map[string]*raised           // by user
}

// tried is something that was tried; kept when it was acked or shown too, and so has to stay.
type tried struct{ kept bool }

func newDone(k *storagetest.Talk) *done {
	d := &done{k: k, gone: map[uint64]*tried{}, hidden: map[string]map[uint64]*tried{}, minSeq: map[string]*raised{}}
	for _, user := range k.Members {
		d.hidden[user] = map[uint64]*tried{}
		d.minSeq[user] = &raised{acked: 1, tried: map[uint64]bool{1: true}}
	}
	return d
}

// shown is what one read showed.
type shown struct {
	changes      uint64
	gone, hidden []uint64
}

// see holds the labels of a slot that was read against what was tried.
func (d *done) see(t *testing.T, viewer string, s *storage.Slot, seen *shown) bool {
	seq, l := s.Message.Seq, s.Labels
	if l.Gone {
		seen.gone = append(seen.gone, seq)
		if d.gone[seq] == nil {
			t.Errorf("%s: seq %d was never purged", d.k.ID, seq)
		}
		return !t.Failed()
	}
	if l.Hidden {
		seen.hidden = append(seen.hidden, seq)
		if d.hidden[viewer][seq] == nil {
			t.Errorf("%s: seq %d was never deleted by %s", d.k.ID, seq, viewer)
		}
	}
	seen.changes = max(seen.changes, l.ChangeSeq)
	want, latest := storage.Labels{Hidden: l.Hidden, ChangeSeq: l.ChangeSeq}, l.ChangeSeq
	if latest > d.k.ChangeSeq() || latest > 0 && d.k.ChangeOf(latest).Seq != seq {
		t.Errorf("%s: seq %d has change %d of %d", d.k.ID, seq, latest, d.k.ChangeSeq())
		return false
	}
	if latest > 0 {
		c := d.k.ChangeOf(latest).Labels
		want.Revoke, want.Edit, want.Reactions = c.Revoke, c.Edit, c.Reactions
	}
	if !storagetest.SameLabels(&l, &want) {
		t.Errorf("%s: seq %d has %+v, want %+v", d.k.ID, seq, l, want)
	}
	return !t.Failed()
}

func (d *done) learn(viewer string, seen *shown) {
	d.changes = max(d.changes, seen.changes)
	for _, seq := range seen.gone {
		d.gone[seq].kept = true
	}
	for _, seq := range seen.hidden {
		d.hidden[viewer][seq].kept = true
	}
}

// some is a conversation and its tail, 0 when there is nothing of it yet.
func (h *history) some(r *rand.Rand) (k *storagetest.Talk, tail uint64) {
	k = h.talks[r.IntN(len(h.talks))]
	s, err := h.store.State(context.Background(), k.ID)
	if err != nil {
		h.t.Error(err)
	}
	return k, s.Tail
}

func (h *history) changeSomething(r *rand.Rand) {
	k, tail := h.some(r)
	if tail == 0 {
		return
	}
	h.mu.Lock()
	c := k.Change(r, 1+r.Uint64N(tail))
	h.mu.Unlock()
	if c == nil {
		return
	}
	if err := h.store.Apply(context.Background(), []*storage.Change{c}); err != nil {
		h.t.Error(err)
	}
	if errors.Is(c.Err, storage.ErrGone) {
		h.mu.Lock()
		defer h.mu.Unlock()
		k.CutChanges(c.ChangeSeq - 1)
		if d := h.done[k.ID]; d.gone[c.Seq] == nil {
			h.t.Errorf("%s: seq %d is gone and was never purged", k.ID, c.Seq)
		}
		return
	}
	if c.Err != nil {
		h.t.Errorf("%s: change %d of seq %d: %v", k.ID, c.ChangeSeq, c.Seq, c.Err)
	}
	h.learn(func() { h.done[k.ID].changes = c.ChangeSeq })
}

func (h *history) ownSomething(r *rand.Rand) {
	k, tail := h.some(r)
	if tail == 0 {
		return
	}
	own := &storage.Own{User: k.Members[r.IntN(2)], Conversation: k.ID}
	d := h.done[k.ID]
	h.mu.Lock()
	if r.IntN(3) == 0 {
		own.MinSeq = 1 + r.Uint64N(tail)
		d.minSeq[own.User].tried[own.MinSeq] = true
	}
	for range r.IntN(4) {
		seq := 1 + r.Uint64N(tail)
		own.Hide = append(own.Hide, seq)
		if hidden := d.hidden[own.User]; hidden[seq] == nil {
			hidden[seq] = &tried{}
		}
	}
	h.mu.Unlock()
	if err := h.store.ApplyOwn(context.Background(), []*storage.Own{own}); err != nil {
		h.t.Error(err)
	}
	h.learn(func() {
		d.minSeq[own.User].acked = max(d.minSeq[own.User].acked, own.MinSeq)
		for _, seq := range own.Hide {
			d.hidden[own.User][seq].kept = true
		}
	})
}

func (h *history) purgeSomething(r *rand.Rand) {
	k, tail := h.some(r)
	if tail == 0 || r.IntN(3) > 0 { // or little would be left
		return
	}
	from := 1 + r.Uint64N(tail)
	to, d := min(from+r.Uint64N(4), tail), h.done[k.ID]
	h.mu.Lock()
	for seq := from; seq <= to; seq++ {
		if d.gone[seq] == nil {
			d.gone[seq] = &tried{}
		}
	}
	h.mu.Unlock()
	if _, err := h.store.Purge(context.Background(), k.ID, from, to); err != nil {
		h.t.Error(err)
	}
	h.learn(func() {
		for seq := from; seq <= to; seq++ {
			d.gone[seq].kept = true
		}
	})
}

func (h *history) readNotes(r *rand.Rand) {
	k := h.talks[r.IntN(len(h.talks))]
	since, last := r.Uint64N(5), uint64(0)
	err := h.store.Notes(context.Background(), k.ID, since, func(n storage.Note) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if n.ChangeSeq <= max(since, last) || n.ChangeSeq > k.ChangeSeq() || k.ChangeOf(n.ChangeSeq).Seq != n.Seq {
			h.t.Errorf("%s: since %d, after %d comes %+v of %d", k.ID, since, last, n, k.ChangeSeq())
			return false
		}
		last = n.ChangeSeq
		return true
	})
	if err != nil {
		h.t.Error(err)
	}
	number, err := h.store.ChangeSeq(context.Background(), k.ID)
	if err != nil || number < last {
		h.t.Errorf("%s: after the note of change %d the latest is %d, %v", k.ID, last, number, err)
	}
	h.learn(func() { h.done[k.ID].changes = max(h.done[k.ID].changes, number) })
}

// checkDone: what was acked or shown is there, and nothing that was not tried. From then on the model has what there is.
func (h *history) checkDone(k *storagetest.Talk, tail uint64) {
	d := h.done[k.ID]
	number, err := h.store.ChangeSeq(context.Background(), k.ID)
	if err != nil || number < d.changes || number > k.ChangeSeq() {
		h.t.Fatalf("%s: the latest change is %d, acked or shown %d, tried %d, %v", k.ID, number, d.changes, k.ChangeSeq(), err)
	}
	k.CutChanges(number)
	var gone []uint64
	hidden, minSeq := map[string][]uint64{}, map[string]uint64{}
	for _, user := range k.Members {
		seen := shown{}
		err := h.store.Read(context.Background(), storage.Range{Conversation: k.ID, Viewer: user, From: 1, To: tail + 1}, func(s *storage.Slot) bool {
			return d.see(h.t, user, s, &seen)
		})
		if err != nil || h.t.Failed() {
			h.t.Fatal(err)
		}
		gone, hidden[user] = seen.gone, seen.hidden
		h.mustKeep(k, "gone", d.gone, gone, nil)
		h.mustKeep(k, "deleted by "+user, d.hidden[user], seen.hidden, gone)
		minSeq[user] = h.checkMinSeq(k, user, tail)
	}
	k.Marked(gone, hidden, minSeq)
	h.done[k.ID] = newDone(k)
	d = h.done[k.ID]
	d.changes = number
	for _, seq := range gone {
		d.gone[seq] = &tried{true}
	}
	for user, seqs := range hidden {
		for _, seq := range seqs {
			d.hidden[user][seq] = &tried{true}
		}
		d.minSeq[user] = &raised{acked: minSeq[user], tried: map[uint64]bool{minSeq[user]: true}}
	}
	k.CheckChanges(h.t, h.store)
}

// mustKeep: what has to stay is there, or would be on a message that is gone.
func (h *history) mustKeep(k *storagetest.Talk, what string, all map[uint64]*tried, there, gone []uint64) {
	is := map[uint64]bool{}
	for _, seq := range append(there, gone...) {
		is[seq] = true
	}
	for seq, tried := range all {
		if tried.kept && !is[seq] {
			h.t.Fatalf("%s: seq %d is not %s any more", k.ID, seq, what)
		}
	}
}

func (h *history) checkMinSeq(k *storagetest.Talk, user string, tail uint64) uint64 {
	entries, err := h.store.Entries(context.Background(), user, []string{k.ID})
	if err != nil {
		h.t.Fatal(err)
	}
	if tail == 0 {
		return 1
	}
	m := h.done[k.ID].minSeq[user]
	if got := entries[0].MinSeq; got < m.acked || !m.tried[got] {
		h.t.Fatalf("%s of %s: min_seq %d, acked %d, tried %v", k.ID, user, got, m.acked, m.tried)
	}
	return entries[0].MinSeq
}

// checkFaults has the store look for what is torn.
func (h *history) checkFaults() {
	v, err := h.store.Verify(context.Background(), func(f storage.Fault) { h.t.Errorf("fault: %+v", f) }, nil)
	if err != nil || h.t.Failed() {
		h.t.Fatalf("verified %+v, %v", v, err)
	}
}
