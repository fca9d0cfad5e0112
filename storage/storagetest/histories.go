package storagetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/parley-im/parley/storage"
)

// TestHistories runs random seeded histories: messages, changes of messages and of users' own views, marks, purges, and reads by several viewers, while
// the store is closed and opened again now and then. Each ends in one checker, and in the store's own verification.
func TestHistories(t *testing.T, histories int, open func(tb testing.TB) Backend) {
	for seed := range histories {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := seeded(uint64(1000 + seed))
			b := open(t)
			talks := []*Talk{Direct("alice", "bob"), Direct("alice", "carol"), Direct("bob", "bob"), NewTalk("g:friends", "alice", "bob", "carol", "dave")}
			for range 10 + r.IntN(40) {
				k := talks[r.IntN(len(talks))]
				step(t, b, r, talks, k)
				if r.IntN(15) == 0 {
					b = b.Reopen()
				}
				look(t, b, r, k)
			}
			b = b.Reopen()
			for _, k := range talks {
				checkAll(t, b, k)
			}
			verify(t, b.Operator)
		})
	}
}

// step does one thing.
func step(t *testing.T, b Backend, r *rand.Rand, talks []*Talk, k *Talk) {
	t.Helper()
	if n := r.IntN(10); n < 5 || k.Tail() == 0 {
		var runs []*storage.Run
		for _, i := range r.Perm(len(talks))[:1+r.IntN(len(talks))] {
			runs = append(runs, talks[i].Run(r, 1+r.IntN(1+r.IntN(60))))
		}
		appendRuns(t, b.Buckets, runs...)
		return
	}
	doAtRandom(t, b, r, k)
}

// doAtRandom changes, hides, clears, reads or purges some of a conversation.
func doAtRandom(t *testing.T, b Backend, r *rand.Rand, k *Talk) {
	t.Helper()
	user := k.Members[r.IntN(len(k.Members))]
	seq := 1 + r.Uint64N(k.Tail())
	switch r.IntN(8) {
	case 0:
		purge(t, b, k, seq, seq+r.Uint64N(1+r.Uint64N(k.Tail())))
	case 1:
		applyOwn(t, b.Directory, k.Own(user, 1+r.Uint64N(1+seq)))
	case 2, 3:
		var hide []uint64
		for range 1 + r.IntN(20) {
			hide = append(hide, 1+r.Uint64N(k.Tail()))
		}
		applyOwn(t, b.Directory, k.Own(user, 0, hide...))
	case 4:
		raise(t, b.Directory, user, k.ID, seq, 0)
		k.read(user, seq)
	default:
		for range 1 + r.IntN(5) {
			if c := k.Change(r, 1+r.Uint64N(k.Tail())); c != nil {
				apply(t, b.Changes, c)
			}
		}
	}
}

// look reads some of a conversation.
func look(t *testing.T, b Backend, r *rand.Rand, k *Talk) {
	t.Helper()
	viewer := []string{"", "alice", "bob", "carol", "fan7"}[r.IntN(5)]
	from := 1 + r.Uint64N(k.Tail()+3)
	q := storage.Range{Viewer: viewer, From: from, To: from + r.Uint64N(120), NewestFirst: r.IntN(2) == 0, Expect: r.IntN(30)}
	k.CheckRange(t, b.Buckets, q, k.Tail())
	var seqs []uint64
	for range r.IntN(10) {
		seqs = append(seqs, 1+r.Uint64N(k.Tail()+3))
	}
	k.CheckSlots(t, b.Buckets, viewer, seqs, k.Tail())
	k.CheckState(t, b.Buckets, k.Tail())
	k.CheckNotes(t, b.Changes, r.Uint64N(k.ChangeSeq()+2))
}

// checkAll is the closing checker: everything that there is of a conversation.
func checkAll(t *testing.T, b Backend, k *Talk) {
	t.Helper()
	k.Check(t, b.Buckets, k.Tail())
	k.CheckChanges(t, b.Changes)
	if k.Tail() == 0 {
		return
	}
	allViews(t, b, k, append(k.Members, "fan7")...)
	for _, user := range k.Members {
		e := entry(t, b.Directory, user, k.ID)
		if e.MinSeq != k.MinSeq(user) || e.ReadSeq != k.marks.readSeq[user] || e.ChangeSeq != k.ChangeSeq() || e.State.Tail != k.Tail() {
			t.Fatalf("%s of %s: %+v, want min_seq %d, read_seq %d, change_seq %d", k.ID, user, e, k.MinSeq(user), k.marks.readSeq[user], k.ChangeSeq())
		}
	}
	in, err := b.Operator.Inspect(t.Context(), k.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkInspectedBuckets(t, k, in)
}
