package embedded

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

// TestPowerCuts runs random histories: appends of random runs to random conversations, several in flight, while marks are raised, devices
// signed out, messages changed, deleted, cleared and purged, and all of it read; then the power is cut, at any moment, the first start included. What survives is held against the model,
// and the history goes on from there.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	histories := 300
	if raceDetector || testing.Short() { // which makes it ten times slower
		histories = 40
	}
	for seed := range histories {
		h := newHistory(t, uint64(seed))
		for range 3 {
			h.live()
			h.check()
		}
		if t.Failed() {
			t.Fatalf("history %d", seed)
		}
	}
}

// history is what a user could know: what was acked and what was shown, before the power was cut.
type history struct {
	t       *testing.T
	r       *rand.Rand
	disk    *vfs.MemFS
	talks   []*storagetest.Talk
	batches [][]*storage.Run // of this life, in the order of the calls; those that were never called come last

	epoch   string
	acked   map[string]uint64 // by conversation: the tail that Wait confirmed
	shown   map[string]uint64 // and that a read showed
	marks   map[mark]*raised  //
	devices []string
	out     map[string]*signedOut             // by device
	list    map[string]storage.Entry          // alice's, followed with Changed
	upTo    storage.Stamp                     // of list
	done    map[string]*done                  // by conversation: what was done to its messages
	mu      sync.Mutex                        // guards what is written by more than one goroutine
	power   *storagetest.Power                // of this life
	store   *Store                            //
	ticks   chan struct{}                     // to those who work beside append
	random  func(goroutine uint64) *rand.Rand // one for each goroutine
}

type mark struct{ user, conversation string }

type raised struct {
	acked uint64
	tried map[uint64]bool
}

type signedOut struct {
	acked, tried bool // the same unless a call was cut off
	calls        int
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t: t, r: rand.New(rand.NewPCG(seed, 0)), disk: vfs.NewCrashableMem(), acked: map[string]uint64{}, shown: map[string]uint64{},
		marks: map[mark]*raised{}, out: map[string]*signedOut{}, list: map[string]storage.Entry{}, done: map[string]*done{},
	}
	h.random = func(goroutine uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, goroutine)) }
	for i := range 6 {
		k := storagetest.Direct("alice", fmt.Sprint("bob", i))
		h.talks = append(h.talks, k)
		h.done[k.ID] = newDone(k)
		h.devices = append(h.devices, fmt.Sprint("device", i))
		h.out[h.devices[i]] = &signedOut{}
		for _, user := range k.Members {
			h.marks[mark{user, k.ID}] = &raised{tried: map[uint64]bool{0: true}}
		}
	}
	return h
}

// options of a store that flushes and compacts all the time.
func (h *history) options(fs vfs.FS) Options {
	return Options{
		Dir: "srv/data", FS: fs, Fatal: func(err error) { h.t.Error(err) },
		tune: func(o *pebble.Options) {
			o.MemTableSize, o.LBaseMaxBytes, o.L0CompactionThreshold = 32<<10, 64<<10, 2
			for i := range o.TargetFileSizes {
				o.TargetFileSizes[i] = 16 << 10
			}
		},
	}
}

// live opens the store, works until the power is cut, or until enough was done, and leaves the disk as it is when the power is back.
func (h *history) live() {
	h.power = storagetest.NewPower(h.disk)
	h.power.CutAfter(1+h.r.IntN(1<<h.r.IntN(11)), h.r.IntN(101), rand.New(rand.NewPCG(h.r.Uint64(), 1)))
	h.plan()
	store, err := Open(h.options(h.power))
	if err != nil {
		h.t.Fatal(err)
	}
	h.store = store
	if !h.power.IsCut() {
		h.epoch = store.epoch
	}
	var others sync.WaitGroup
	h.ticks = make(chan struct{}, 8)
	follow := func(*rand.Rand) { h.follow() }
	for i, work := range []func(*rand.Rand){
		h.readSomething, h.readSomething, h.raiseSomething, h.signOutSomething, h.readSignOut, follow,
		h.changeSomething, h.ownSomething, h.purgeSomething, h.readNotes,
	} {
		r := h.random(uint64(10*len(h.talks[0].Ends) + i))
		others.Go(func() {
			for range h.ticks {
				work(r)
			}
		})
	}
	h.append()
	close(h.ticks)
	others.Wait()
	h.disk = h.power.After()
	if err := store.Close(); err != nil {
		h.t.Fatal(err)
	}
}

// plan makes the batches of this life, so that the model does not change while others read.
func (h *history) plan() {
	h.batches = nil
	for range 10 + h.r.IntN(30) {
		var batch []*storage.Run
		for _, i := range h.r.Perm(len(h.talks))[:1+h.r.IntN(len(h.talks))] {
			batch = append(batch, h.talks[i].Run(h.r, 1+h.r.IntN(1+h.r.IntN(15))))
		}
		h.batches = append(h.batches, batch)
	}
}

// append writes the batches, up to four in flight.
func (h *history) append() {
	type flying struct {
		c     storage.Commit
		batch []*storage.Run
	}
	var open []flying
	wait := func() {
		if err := open[0].c.Wait(); err != nil {
			h.t.Fatal(err)
		}
		for _, run := range open[0].batch {
			if run.Err != nil {
				h.t.Fatalf("%s from %d: %v", run.Conversation, run.First, run.Err)
			}
			h.learn(func() { h.acked[run.Conversation] = run.First + uint64(len(run.Messages)) - 1 })
		}
		open = open[1:]
	}
	for _, batch := range h.batches {
		c, err := h.store.Append(context.Background(), batch)
		if err != nil {
			h.t.Fatal(err)
		}
		open = append(open, flying{c, batch})
		h.tick()
		for len(open) > h.r.IntN(5) {
			wait()
		}
		if h.power.IsCut() {
			break
		}
	}
	for len(open) > 0 {
		wait()
	}
}

// tick has others do something while writes are on their way.
func (h *history) tick() {
	for range 6 {
		select {
		case h.ticks <- struct{}{}:
		default:
		}
	}
}

// learn notes something that was true at a moment before now, unless the power was cut by then.
func (h *history) learn(note func()) {
	if h.power.IsCut() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	note()
}

// readSomething holds what it is shown against the model, and remembers that it was shown.
func (h *history) readSomething(r *rand.Rand) {
	k := h.talks[r.IntN(len(h.talks))]
	d, seen, tail := h.done[k.ID], shown{}, uint64(0)
	q := storage.Range{Conversation: k.ID, Viewer: k.Members[r.IntN(2)], From: uint64(1 + r.IntN(20)), To: 1 << 40, NewestFirst: r.IntN(2) == 0}
	err := h.store.Read(context.Background(), q, func(s *storage.Slot) bool {
		if tail = max(tail, s.Message.Seq); tail > k.Tail() {
			h.t.Errorf("%s: seq %d was never written", k.ID, tail)
			return false
		}
		k.CheckStored(h.t, s.Message.Seq, s)
		h.mu.Lock()
		defer h.mu.Unlock()
		return d.see(h.t, q.Viewer, s, &seen)
	})
	if err != nil {
		h.t.Error(err)
	}
	h.learn(func() {
		h.shown[k.ID] = max(h.shown[k.ID], tail)
		d.learn(q.Viewer, &seen)
	})
}

func (h *history) raiseSomething(r *rand.Rand) {
	k := h.talks[r.IntN(len(h.talks))]
	user := k.Members[r.IntN(2)]
	s, err := h.store.State(context.Background(), k.ID)
	if err != nil {
		h.t.Error(err)
	}
	if s.Tail == 0 {
		return
	}
	seq, m := 1+r.Uint64N(s.Tail), h.marks[mark{user, k.ID}]
	m.tried[seq] = true // only here is it written, or read before the goroutine ends
	v, _, err := h.store.RaiseRead(context.Background(), user, k.ID, seq, 0)
	if err != nil || v.ReadSeq < seq {
		h.t.Errorf("raised to %d: %+v, %v", seq, v, err)
	}
	h.learn(func() { m.acked = v.ReadSeq })
}

func (h *history) signOutSomething(r *rand.Rand) {
	device, out := h.devices[r.IntN(len(h.devices))], r.IntN(2) == 0
	o := h.out[device]
	h.mu.Lock()
	if h.power.IsCut() { // acked and tried may differ already
		h.mu.Unlock()
		return
	}
	o.tried = out
	o.calls++
	h.mu.Unlock()
	if err := h.store.SetSignedOut(context.Background(), "alice", device, out); err != nil {
		h.t.Error(err)
	}
	h.learn(func() { o.acked = out })
}

// readSignOut: what was shown while one call was on its way is the value before or after it; if after, it has to stay.
func (h *history) readSignOut(r *rand.Rand) {
	device := h.devices[r.IntN(len(h.devices))]
	o := h.out[device]
	h.mu.Lock()
	calls := o.calls
	h.mu.Unlock()
	is, err := h.store.SignedOut(context.Background(), "alice", device)
	if err != nil {
		h.t.Error(err)
	}
	h.learn(func() {
		if o.calls == calls && is == o.tried {
			o.acked = is
		}
	})
}

// follow keeps alice's list up to date.
func (h *history) follow() {
	entries, upTo, err := h.store.Changed(context.Background(), "alice", h.upTo)
	if err != nil {
		h.t.Error(err)
	}
	h.learn(func() {
		h.upTo = upTo
		for _, e := range entries {
			h.list[e.Conversation] = e
			h.shown[e.Conversation] = max(h.shown[e.Conversation], e.State.Tail)
		}
	})
}

// check is the closing checker.
func (h *history) check() {
	h.power = storagetest.NewPower(h.disk)
	store, err := Open(h.options(h.power))
	if err != nil {
		h.t.Fatal(err)
	}
	h.store = store
	if h.epoch != "" && store.epoch != h.epoch {
		h.t.Fatalf("epoch %s became %s", h.epoch, store.epoch)
	}
	h.epoch = store.epoch
	tails := make(map[string]uint64)
	for _, k := range h.talks {
		s, err := store.State(context.Background(), k.ID)
		if err != nil {
			h.t.Fatal(err)
		}
		if s.Tail < h.acked[k.ID] || s.Tail < h.shown[k.ID] || s.Tail > k.Tail() {
			h.t.Fatalf("%s: tail %d; acked %d, shown %d, written %d", k.ID, s.Tail, h.acked[k.ID], h.shown[k.ID], k.Tail())
		}
		h.checkDone(k, s.Tail)
		k.Check(h.t, store, s.Tail)
		h.checkRows(k, s.Tail)
		tails[k.ID] = s.Tail
	}
	h.checkOrder(tails)
	h.checkDevices()
	h.checkList()
	h.checkFaults()
	for _, k := range h.talks {
		k.Cut(tails[k.ID])
		h.acked[k.ID], h.shown[k.ID] = k.Tail(), k.Tail()
	}
	h.disk = h.power.After()
	if err := store.Close(); err != nil {
		h.t.Fatal(err)
	}
}

// checkOrder: batches are there as a whole, and none without those before it.
func (h *history) checkOrder(tails map[string]uint64) {
	lost := -1
	for i, batch := range h.batches {
		there := 0
		for _, run := range batch {
			if tails[run.Conversation] >= run.First {
				there++
			}
		}
		switch {
		case there != 0 && there != len(batch):
			h.t.Fatalf("batch %d: %d of %d runs are there", i, there, len(batch))
		case there == 0 && lost < 0:
			lost = i
		case there != 0 && lost >= 0:
			h.t.Fatalf("batch %d is there, batch %d is lost", i, lost)
		}
	}
}

func (h *history) checkRows(k *storagetest.Talk, tail uint64) {
	for side, user := range k.Members {
		entries, err := h.store.Entries(context.Background(), user, []string{k.ID})
		if err != nil || len(entries) != int(min(tail, 1)) {
			h.t.Fatalf("%s of %s at tail %d: %v, %v", k.ID, user, tail, entries, err)
		}
		m := h.marks[mark{user, k.ID}]
		if tail == 0 {
			*m = raised{tried: map[uint64]bool{0: true}}
			continue
		}
		e := entries[0]
		if e.ReadSeq < m.acked || !m.tried[e.ReadSeq] || e.ReadSeq > tail || e.MinSeq != k.MinSeq(user) || e.State.Tail != tail ||
			e.ChangeSeq != k.ChangeSeq() {
			h.t.Fatalf("%s of %s: %+v, acked %d", k.ID, user, e, m.acked)
		}
		if was, ok := h.list[k.ID]; ok && side == 0 && (e.ReadSeq < was.ReadSeq || e.PeerReadSeq < was.PeerReadSeq || e.Changed < was.Changed ||
			e.MinSeq < was.MinSeq || e.ChangeSeq < was.ChangeSeq) {
			h.t.Fatalf("%s: %+v was shown, now it is %+v", k.ID, was, e)
		}
		*m = raised{acked: e.ReadSeq, tried: map[uint64]bool{0: true, e.ReadSeq: true}}
	}
}

func (h *history) checkDevices() {
	for device, o := range h.out {
		is, err := h.store.SignedOut(context.Background(), "alice", device)
		if err != nil || is != o.acked && is != o.tried {
			h.t.Fatalf("%s is signed out: %t, acked %t, tried %t, %v", device, is, o.acked, o.tried, err)
		}
		*o = signedOut{acked: is, tried: is, calls: o.calls}
	}
}

// checkList: whoever followed the changes before the cut and goes on after it has what there is.
func (h *history) checkList() {
	h.follow()
	all, upTo, err := h.store.Changed(context.Background(), "alice", 0)
	if err != nil || upTo < h.upTo {
		h.t.Fatalf("up to %d, then %d, %v", h.upTo, upTo, err)
	}
	want := make(map[string]storage.Entry)
	for _, e := range all {
		want[e.Conversation] = e
	}
	if !maps.Equal(h.list, want) {
		h.t.Fatalf("followed the changes to\n%+v\nand there is\n%+v", h.list, want)
	}
}
