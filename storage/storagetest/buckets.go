package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Backend is a store that is fresh and empty. Whoever opens it has it closed by tb.Cleanup.
type Backend struct {
	Buckets   storage.Buckets
	Directory storage.Directory
	Changes   storage.Changes
	Operator  storage.Operator
	// Reopen closes the store and opens it again, with what is in it.
	Reopen func() Backend
	// Repeats says that its stamps are times of a clock, so that two changes may have one, and that Changed holds back upTo for a while: what
	// changed before comes again.
	Repeats bool
	// Borders says that it stores messages in buckets, and that a run which crosses the border of one may be seen up to it before the rest comes.
	Borders bool
}

// endsAt tells whether a reader may see tail as the last message.
func (b Backend) endsAt(k *Talk, tail uint64) bool {
	_, ok := k.StateAt(tail)
	return ok || b.Borders && tail%storage.BucketSize == 0
}

// later tells whether a stamp is that of a later change than another.
func (b *Backend) later(stamp, than storage.Stamp) bool {
	return stamp > than || b.Repeats && stamp == than
}

// TestBuckets is the suite of storage.Buckets.
func TestBuckets(t *testing.T, open func(tb testing.TB) Backend) {
	for _, sub := range []struct {
		name string
		test func(*testing.T, storage.Buckets)
	}{
		{"Empty", testEmpty},
		{"AppendRead", testAppendRead},
		{"ReadRanges", testReadRanges},
		{"ReadStops", testReadStops},
		{"SlotsAreKept", testSlotsAreKept},
		{"RunsAreNotKept", testRunsAreNotKept},
		{"LargeRuns", testLargeRuns},
		{"Stale", testStale},
		{"StaleAll", testStaleAll},
		{"CompetingWriters", testCompetingWriters},
		{"Neighbours", testNeighbours},
		{"Slots", testSlots},
		{"Random", testRandomBuckets},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, open(t).Buckets) })
	}
	t.Run("InFlight", func(t *testing.T) { testInFlight(t, open(t)) })
	t.Run("ReadersSeePrefixes", func(t *testing.T) { testReadersSeePrefixes(t, open(t)) })
	t.Run("Stamps", func(t *testing.T) { testStamps(t, open(t)) })
}

func seeded(a uint64) *rand.Rand { return rand.New(rand.NewPCG(a, 42)) }

func testEmpty(t *testing.T, b storage.Buckets) {
	k := Direct("alice", "bob")
	k.Check(t, b, 0)
	k.CheckRead(t, b, 1, 100, false, 0)
	k.CheckRead(t, b, 7, 7, true, 0)
	for _, bad := range [][2]uint64{{0, 0}, {0, 5}, {5, 4}} {
		for _, newestFirst := range []bool{false, true} {
			err := b.Read(t.Context(), storage.Range{Conversation: k.ID, From: bad[0], To: bad[1], NewestFirst: newestFirst}, func(*storage.Slot) bool { return true })
			if !errors.Is(err, storage.ErrInvalidSeq) {
				t.Fatalf("read %v: %v, want ErrInvalidSeq", bad, err)
			}
		}
	}
}

func testAppendRead(t *testing.T, b storage.Buckets) {
	r := seeded(1)
	alice, group := Direct("alice", "bob"), NewTalk("g:friends", "alice", "bob", "carol")
	self := Direct("alice", "alice")
	for _, n := range []int{1, 1, 5, 1, 300} {
		appendRuns(t, b, alice.Run(r, n), group.Run(r, n+1), self.Run(r, n))
		for _, k := range []*Talk{alice, group, self} {
			k.Check(t, b, k.Tail())
		}
	}
}

func testReadRanges(t *testing.T, b storage.Buckets) {
	r, k := seeded(2), Direct("alice", "bob")
	for _, n := range []int{1, 98, 1, 1, 3, 150, 1, 44} { // runs end at 1, 99, 100, 101, 104, 254 …
		appendRuns(t, b, k.Run(r, n))
	}
	seqs := []uint64{1, 2, 50, 98, 99, 100, 101, 102, 104, 105, 200, 253, 254, 255, 256, 298, 299, 300, 10_086}
	for i, from := range seqs {
		for _, to := range seqs[i:] {
			k.CheckRead(t, b, from, to, false, k.Tail())
			k.CheckRead(t, b, from, to, true, k.Tail())
		}
	}
}

func testReadStops(t *testing.T, b storage.Buckets) {
	r, k := seeded(3), Direct("alice", "bob")
	for _, n := range []int{10, 1, 20} {
		appendRuns(t, b, k.Run(r, n))
	}
	for _, newestFirst := range []bool{false, true} {
		for limit := 1; limit <= 31; limit++ {
			n := 0
			err := b.Read(t.Context(), storage.Range{Conversation: k.ID, From: 1, To: 31, NewestFirst: newestFirst}, func(s *storage.Slot) bool {
				seq := uint64(1 + n)
				if newestFirst {
					seq = uint64(31 - n)
				}
				k.CheckSlot(t, seq, s)
				n++
				return n < limit
			})
			if err != nil || n != limit {
				t.Fatalf("read stopped at %d of %d: %v", n, limit, err)
			}
		}
	}
	for limit := 1; limit <= 31; limit++ {
		n := 0
		err := b.Recent(t.Context(), k.ID, func(storage.RecentID) bool { n++; return n < limit })
		if err != nil || n != limit {
			t.Fatalf("recent stopped at %d of %d: %v", n, limit, err)
		}
	}
}

// testSlotsAreKept: what was yielded stays as it is, whatever happens after.
func testSlotsAreKept(t *testing.T, b storage.Buckets) {
	r, k := seeded(4), Direct("alice", "bob")
	appendRuns(t, b, k.Run(r, 30))
	var slots []*storage.Slot
	keep := func(s *storage.Slot) bool { slots = append(slots, s); return true }
	if err := b.Read(t.Context(), storage.Range{Conversation: k.ID, From: 1, To: 30}, keep); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		appendRuns(t, b, k.Run(r, 30))
		k.CheckRead(t, b, 1, k.Tail(), true, k.Tail())
	}
	for i, s := range slots {
		k.CheckSlot(t, uint64(i+1), s)
	}
}

// testRunsAreNotKept: after Wait the runs are the caller's again, to write over.
func testRunsAreNotKept(t *testing.T, b storage.Buckets) {
	r, k := seeded(5), Direct("alice", "bob")
	for range 5 {
		run := k.Run(r, 7)
		appendRuns(t, b, run)
		for i := range run.Wire {
			run.Wire[i] = 0xc1
		}
		for _, m := range run.Messages {
			*m = protocol.Message{}
		}
		*run = storage.Run{}
	}
	k.Check(t, b, k.Tail())
}

func testLargeRuns(t *testing.T, b storage.Buckets) {
	r, k := seeded(6), Direct("alice", "bob")
	appendRuns(t, b, k.Run(r, 1))
	for range 3 {
		run := k.Run(r, 1000)
		appendRuns(t, b, run)
	}
	k.Check(t, b, k.Tail())
	k.CheckRead(t, b, 1500, 1501, false, k.Tail())
	k.CheckRead(t, b, 2001, 2001, true, k.Tail())
}

// testStale: a run that does not start right above the tail is refused, alone, and leaves no trace.
func testStale(t *testing.T, b storage.Buckets) {
	r := seeded(7)
	k, other := Direct("alice", "bob"), Direct("alice", "carol")
	for range 3 {
		appendRuns(t, b, k.Run(r, 4))
	}
	fork := Direct("alice", "bob")
	for _, ahead := range []struct{ at, n int }{{0, 12}, {0, 1}, {4, 1}, {11, 1}, {11, 9}, {13, 1}, {24, 3}} {
		fork.Slots = make([]storage.Slot, ahead.at)
		stale, good := fork.Run(r, ahead.n), other.Run(r, 2)
		good.Err = errors.New("left from before")
		c, err := b.Append(t.Context(), []*storage.Run{stale, good})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(stale.Err, storage.ErrStale) || good.Err != nil {
			t.Fatalf("a run at %d with the tail at 12: %v; the other: %v", stale.First, stale.Err, good.Err)
		}
		k.Check(t, b, 12)
		other.Check(t, b, other.Tail())
	}
	appendRuns(t, b, k.Run(r, 1))
	k.Check(t, b, 13)
}

func testStaleAll(t *testing.T, b storage.Buckets) {
	r, k := seeded(8), Direct("alice", "bob")
	k.Slots = make([]storage.Slot, 5)
	run := k.Run(r, 1)
	c, err := b.Append(t.Context(), []*storage.Run{run})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil || !errors.Is(run.Err, storage.ErrStale) {
		t.Fatalf("a run at 6 of an empty conversation: %v, %v", run.Err, err)
	}
	Direct("alice", "bob").Check(t, b, 0)
}

// testInFlight: several Appends to the same conversations, before the first is waited for. A reader sees the end of one of
// them, at least of the last that was waited for, and never goes back.
func testInFlight(t *testing.T, backend Backend) {
	r, b := seeded(9), backend.Buckets
	talks := []*Talk{Direct("alice", "bob"), Direct("alice", "carol"), Direct("bob", "carol")}
	shown := make([]uint64, len(talks))
	look := func(atLeast []uint64) {
		for i, k := range talks {
			s, err := b.State(t.Context(), k.ID)
			if err != nil {
				t.Fatal(err)
			}
			if !backend.endsAt(k, s.Tail) || s.Tail < shown[i] || atLeast != nil && s.Tail < atLeast[i] {
				t.Fatalf("%s: tail %d, seen before %d, waited for %v", k.ID, s.Tail, shown[i], atLeast)
			}
			shown[i] = s.Tail
			if s.Tail > 0 {
				k.CheckRead(t, b, 1, s.Tail, false, s.Tail)
			}
		}
	}
	type flying struct {
		c     storage.Commit
		tails []uint64
	}
	var open []flying
	for range 20 {
		for len(open) < 4 {
			var runs []*storage.Run
			var tails []uint64
			for _, k := range talks {
				runs = append(runs, k.Run(r, 1+r.IntN(5)))
				tails = append(tails, k.Tail())
			}
			c, err := b.Append(t.Context(), runs)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, flying{c, tails})
			look(nil)
		}
		if err := open[0].c.Wait(); err != nil {
			t.Fatal(err)
		}
		look(open[0].tails)
		open = open[1:]
	}
	for _, f := range open {
		if err := f.c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range talks {
		k.Check(t, b, k.Tail())
	}
}

// testCompetingWriters: many append to one conversation, each on the tail that it last saw. Whoever is not refused has its seqs.
func testCompetingWriters(t *testing.T, b storage.Buckets) {
	const writers, each = 8, 25
	talks := make([]*Talk, writers)
	owner := make(map[uint64]int) // of the seqs
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range writers {
		talks[w] = Direct("alice", "bob")
		all.Go(func() {
			r, k := seeded(uint64(100+w)), talks[w]
			for won := 0; won < each; {
				s, err := b.State(context.Background(), k.ID)
				if err != nil {
					t.Error(err)
					return
				}
				for k.Tail() < s.Tail {
					k.Slots = append(k.Slots, storage.Slot{})
				}
				run := k.Run(r, 1+r.IntN(3))
				c, err := b.Append(context.Background(), []*storage.Run{run})
				if err == nil {
					err = c.Wait()
				}
				switch {
				case err != nil:
					t.Error(err)
					return
				case run.Err == nil:
					won++
					mu.Lock()
					for seq := run.First; seq <= k.Tail(); seq++ {
						if other, taken := owner[seq]; taken {
							t.Errorf("seq %d was given to writers %d and %d", seq, other, w)
						}
						owner[seq] = w
					}
					mu.Unlock()
				case errors.Is(run.Err, storage.ErrStale):
					k.Slots = k.Slots[:run.First-1]
				default:
					t.Errorf("run: %v", run.Err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	next := uint64(1)
	err := b.Read(t.Context(), storage.Range{Conversation: talks[0].ID, From: 1, To: 1 << 40}, func(s *storage.Slot) bool {
		w, ok := owner[next]
		if !ok || s.Message.Seq != next || s.Message.ServerMsgID != talks[w].Slots[next-1].Message.ServerMsgID {
			t.Fatalf("seq %d is %+v, written by %d (%t)", next, s.Message, w, ok)
		}
		next++
		return true
	})
	if err != nil || next != uint64(len(owner))+1 {
		t.Fatalf("the read ended below %d of %d: %v", next, len(owner), err)
	}
}

// testReadersSeePrefixes: while writers append, readers see the conversation as it was at some moment: dense, ending where a run
// ended, and never shorter than before.
func testReadersSeePrefixes(t *testing.T, backend Backend) {
	b := backend.Buckets
	const writers, batches = 3, 60
	talks := make([]*Talk, writers)
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		k, r := Direct("alice", fmt.Sprint("bob", w)), seeded(uint64(200+w))
		talks[w] = k
		runs := make([]*storage.Run, batches)
		for i := range runs {
			runs[i] = k.Run(r, 1+r.IntN(8))
		}
		writing.Go(func() {
			for _, run := range runs {
				c, err := b.Append(context.Background(), []*storage.Run{run})
				if err == nil {
					err = c.Wait()
				}
				if err != nil || run.Err != nil {
					t.Error(err, run.Err)
					return
				}
			}
		})
		for range 2 {
			reading.Go(func() {
				for seen := uint64(0); !isClosed(done); {
					seen = k.readPrefix(t, backend, seen)
				}
			})
		}
	}
	writing.Wait()
	close(done)
	reading.Wait()
	for _, k := range talks {
		if !t.Failed() {
			k.Check(t, b, k.Tail())
		}
	}
}

// readPrefix reads all that there is, which must reach to a run's end at or above seen, and returns its tail.
func (k *Talk) readPrefix(t *testing.T, b Backend, seen uint64) uint64 {
	tail := uint64(0)
	err := b.Buckets.Read(context.Background(), storage.Range{Conversation: k.ID, From: 1, To: 1 << 40}, func(s *storage.Slot) bool {
		tail++
		return s.Message.Seq == tail && s.Message.ServerMsgID == k.Slots[tail-1].Message.ServerMsgID
	})
	if err != nil || !b.endsAt(k, tail) || tail < seen {
		t.Errorf("%s: a reader sees %d messages, before %d: %v", k.ID, tail, seen, err)
	}
	return tail
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// testNeighbours: ids that begin alike, and users whose names sort around each other's, stay apart.
func testNeighbours(t *testing.T, b storage.Buckets) {
	r := seeded(10)
	var talks []*Talk
	for _, pair := range [][2]string{{"a", "b"}, {"a", "bb"}, {"aa", "b"}, {"a", "b+"}, {"a", "b|"}, {"a+", "b"}, {"a", "a"}, {"A", "b"}, {"a", "b.1"}} {
		talks = append(talks, Direct(pair[0], pair[1]))
	}
	talks = append(talks, NewTalk("g:a", "a"), NewTalk("g:aa", "a"), NewTalk("u:a", "a"))
	for range 4 {
		var runs []*storage.Run
		for _, k := range talks {
			runs = append(runs, k.Run(r, 1+r.IntN(4)))
		}
		appendRuns(t, b, runs...)
	}
	for _, k := range talks {
		k.Check(t, b, k.Tail())
	}
}

// testStamps: an append raises its conversation's stamp above all that was there before, and touches no other's.
func testStamps(t *testing.T, b Backend) {
	r := seeded(11)
	talks := []*Talk{Direct("a", "b"), Direct("a", "c"), Direct("b", "c")}
	stamps := make([]storage.Stamp, len(talks))
	highest := storage.Stamp(0)
	for range 50 {
		i := r.IntN(len(talks))
		appendRuns(t, b.Buckets, talks[i].Run(r, 1))
		for j, k := range talks {
			s, err := b.Buckets.State(t.Context(), k.ID)
			if err != nil {
				t.Fatal(err)
			}
			if i == j && !b.later(s.Stamp, highest) || i != j && s.Stamp != stamps[j] {
				t.Fatalf("%s: stamp %d after %d, highest %d, written: %t", k.ID, s.Stamp, stamps[j], highest, i == j)
			}
			stamps[j] = s.Stamp
		}
		highest = max(highest, stamps[i])
	}
}

// testSlots: in the order of the list, whatever it is.
func testSlots(t *testing.T, b storage.Buckets) {
	r, k := seeded(13), Direct("alice", "bob")
	k.CheckSlots(t, b, "", []uint64{1, 2, 100, 101}, 0)
	for _, n := range []int{1, 98, 1, 1, 3, 150, 1, 44} {
		appendRuns(t, b, k.Run(r, n))
	}
	k.CheckSlots(t, b, "", nil, k.Tail())
	for range 30 {
		seqs := make([]uint64, 1+r.IntN(30))
		for i := range seqs {
			seqs[i] = 1 + r.Uint64N(310)
		}
		k.CheckSlots(t, b, "bob", seqs, k.Tail())
	}
	k.CheckSlots(t, b, "", []uint64{299, 1, 1, 100, 300, 10_086, 101, 100, 1_000_000_000_000, 1 << 63, 2}, k.Tail())
	for limit := 1; limit < 5; limit++ {
		n := 0
		err := b.Slots(t.Context(), k.ID, "", []uint64{150, 7, 299, 7, 1000, 1}, func(*storage.Slot) bool { n++; return n < limit })
		if err != nil || n != limit {
			t.Fatalf("slots stopped at %d of %d: %v", n, limit, err)
		}
	}
	for _, bad := range [][]uint64{{0}, {1, 0}, {1, 2, 300, 0, 5}} {
		err := b.Slots(t.Context(), k.ID, "", bad, func(*storage.Slot) bool { t.Error("it yields"); return true })
		if !errors.Is(err, storage.ErrInvalidSeq) {
			t.Fatalf("slots %v: %v, want ErrInvalidSeq", bad, err)
		}
	}
}

// testRandomBuckets is a random history against the model.
func testRandomBuckets(t *testing.T, b storage.Buckets) {
	r := seeded(12)
	var talks []*Talk
	for i := range 12 {
		talks = append(talks, Direct("user", fmt.Sprint("peer", i)))
	}
	for range 150 {
		var runs []*storage.Run
		for _, i := range r.Perm(len(talks))[:1+r.IntN(len(talks))] {
			runs = append(runs, talks[i].Run(r, 1+r.IntN(1+r.IntN(40))))
		}
		appendRuns(t, b, runs...)
		k := talks[r.IntN(len(talks))]
		from := 1 + r.Uint64N(k.Tail()+3)
		k.CheckRead(t, b, from, from+r.Uint64N(120), r.IntN(2) == 0, k.Tail())
		k.CheckState(t, b, k.Tail())
	}
	for _, k := range talks {
		k.Check(t, b, k.Tail())
	}
}
