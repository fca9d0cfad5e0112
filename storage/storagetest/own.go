package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/parley-im/parley/storage"
)

// testHide: what a user deleted is hidden from that user and from nobody else, wherever it lies, and however often.
func testHide(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(70)
	for _, n := range []int{3, 200, 1, 40, 400} {
		appendRuns(t, b.Buckets, k.Run(r, n))
	}
	was := entry(t, b.Directory, "alice", k.ID)
	for _, c := range []struct {
		user string
		hide []uint64
	}{
		{"bob", []uint64{2}},
		{"alice", []uint64{1, 2, 3, 99, 100, 101, 102, 511, 512, 513, 644}},
		{"bob", []uint64{2, 2, 640}},
		{"bob", nil},
		{"alice", []uint64{9, 8, 7}},
	} {
		own := k.Own(c.user, 0, c.hide...)
		for range 2 { // again changes nothing
			applyOwn(t, b.Directory, own)
			allViews(t, b, k, "alice", "bob", "carol")
		}
	}
	k.CheckSlots(t, b.Buckets, "alice", []uint64{644, 643, 1, 5, 101, 99, 98, 512}, k.Tail())
	if e := entry(t, b.Directory, "alice", k.ID); e.MinSeq != 1 || e.State != was.State || e.ReadSeq != 0 {
		t.Fatalf("after deletions there is %+v, before %+v", e, was)
	}
	err := b.Directory.ApplyOwn(t.Context(), []*storage.Own{{User: "alice", Conversation: k.ID, Hide: []uint64{10, 0}}})
	if !errors.Is(err, storage.ErrInvalidSeq) {
		t.Fatalf("seq 0 was deleted: %v", err)
	}
	beyond := []uint64{645, 700, 1000, 1_000_000_000_000, 1 << 63} // are left out, and do not hide what comes there later
	applyOwn(t, b.Directory, &storage.Own{User: "alice", Conversation: k.ID, Hide: beyond})
	appendRuns(t, b.Buckets, k.Run(r, 400))
	allViews(t, b, k, "alice", "bob")
}

// testClear: min_seq is raised and never lowered, for one user; it is a change of that user's entry.
func testClear(t *testing.T, b Backend) {
	k := Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(seeded(71), 20))
	raise(t, b.Directory, "alice", k.ID, 15, 3)
	peer := entry(t, b.Directory, "bob", k.ID)
	for _, minSeq := range []uint64{5, 5, 3, 0, 1, 12, 11, 21, 20} {
		was := entry(t, b.Directory, "alice", k.ID)
		before := k.MinSeq("alice")
		applyOwn(t, b.Directory, k.Own("alice", minSeq))
		e := entry(t, b.Directory, "alice", k.ID)
		if e.MinSeq != k.MinSeq("alice") || e.ReadSeq != 15 || e.ReadCount != 3 || e.State != was.State {
			t.Fatalf("cleared up to %d there is %+v, before %+v", minSeq, e, was)
		}
		if raised := e.MinSeq > before; raised && !b.later(e.Changed, was.Changed) || !raised && e.Changed != was.Changed {
			t.Fatalf("cleared up to %d (%t) the entry changed at %d, before at %d", minSeq, raised, e.Changed, was.Changed)
		}
		changed, _ := list(t, b.Directory, "alice", was.Changed-1)
		if changed[k.ID] != e {
			t.Fatalf("changed since %d: %+v", was.Changed-1, changed)
		}
	}
	if e := entry(t, b.Directory, "bob", k.ID); e.MinSeq != 1 || e.View != peer.View {
		t.Fatalf("the other side has %+v, before %+v", e, peer)
	}
	allViews(t, b, k, "alice", "bob") // the store shows all; what is below is not its business
}

// testOwnNeedsARow: what is for nobody's list is left out, and the rest of the call is not.
func testOwnNeedsARow(t *testing.T, b Backend) {
	k := Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(seeded(72), 5))
	applyOwn(t, b.Directory)
	applyOwn(t, b.Directory,
		&storage.Own{User: "carol", Conversation: k.ID, Hide: []uint64{1}, MinSeq: 3},
		k.Own("alice", 2, 4),
		&storage.Own{User: "alice", Conversation: "p:alice:nobody", Hide: []uint64{1}, MinSeq: 3},
	)
	if e := entry(t, b.Directory, "alice", k.ID); e.MinSeq != 2 {
		t.Fatalf("alice has %+v", e)
	}
	if all, _ := list(t, b.Directory, "carol", 0); len(all) != 0 {
		t.Fatalf("carol has %+v", all)
	}
	if all, _ := list(t, b.Directory, "alice", 0); len(all) != 1 {
		t.Fatalf("alice has %+v", all)
	}
	allViews(t, b, k, "alice", "carol")
	carol := NewTalk("p:alice:nobody", "alice", "nobody")
	carol.Check(t, b.Buckets, 0)
}

// testOwnOfMany: one call for many users and conversations, some of them twice.
func testOwnOfMany(t *testing.T, b Backend) {
	r := seeded(73)
	var talks []*Talk
	for i := range 15 {
		k := Direct("alice", fmt.Sprint("bob", i))
		appendRuns(t, b.Buckets, k.Run(r, 30))
		talks = append(talks, k)
	}
	for range 4 {
		var all []*storage.Own
		for range 40 {
			k := talks[r.IntN(len(talks))]
			var hide []uint64
			for range r.IntN(5) {
				hide = append(hide, 1+r.Uint64N(30))
			}
			all = append(all, k.Own(k.Members[r.IntN(2)], r.Uint64N(32), hide...))
		}
		applyOwn(t, b.Directory, all...)
		for _, k := range talks {
			for _, user := range k.Members {
				if e := entry(t, b.Directory, user, k.ID); e.MinSeq != k.MinSeq(user) {
					t.Fatalf("%s of %s: %+v, want min_seq %d", k.ID, user, e, k.MinSeq(user))
				}
				k.CheckRange(t, b.Buckets, storage.Range{Viewer: user, From: 1, To: 30}, 30)
			}
		}
	}
}

// testOwnOfOneRow: many devices of a user delete, clear and read at once; nothing is lost, and no watermark falls.
func testOwnOfOneRow(t *testing.T, b Backend) {
	const devices, each = 8, 25
	k := Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(seeded(74), devices*each))
	var all sync.WaitGroup
	for i := range devices {
		all.Go(func() {
			for n := range each {
				seq := uint64(n*devices + i + 1)
				own := &storage.Own{User: "bob", Conversation: k.ID}
				if i%2 == 0 {
					own.Hide = []uint64{seq}
				} else {
					own.MinSeq = seq
				}
				err := b.Directory.ApplyOwn(context.Background(), []*storage.Own{own})
				if err == nil && i%4 == 3 {
					_, _, err = b.Directory.RaiseRead(context.Background(), "bob", k.ID, seq, seq)
				}
				got, err2 := b.Directory.Entries(context.Background(), "bob", []string{k.ID})
				if err != nil || err2 != nil || len(got) != 1 || got[0].MinSeq < own.MinSeq || i%4 == 3 && got[0].ReadSeq < seq {
					t.Errorf("after %+v: %+v, %v, %v", own, got, err, err2)
					return
				}
			}
		})
	}
	all.Wait()
	for n := range uint64(each) {
		for i := uint64(0); i < devices; i += 2 {
			k.Own("bob", 0, n*devices+i+1)
		}
	}
	k.Own("bob", devices*each)
	if e := entry(t, b.Directory, "bob", k.ID); e.MinSeq != devices*each || e.ReadSeq != devices*each {
		t.Fatalf("at the end: %+v", e)
	}
	allViews(t, b, k, "alice", "bob")
}

// testHiddenByMany: 200 users delete what they do not all have in common; each sees it as they left it. More do than a slot names.
func testHiddenByMany(t *testing.T, b Backend) {
	var members []string
	for i := range 200 {
		members = append(members, fmt.Sprint("user", i))
	}
	k, r := NewTalk("g:all", members...), seeded(75)
	appendRuns(t, b.Buckets, k.Run(r, 110))
	for at := 0; at < len(members); at += 40 {
		var all []*storage.Own
		for i, user := range members[at : at+40] {
			hide := []uint64{50}
			if i%2 == 0 {
				hide = append(hide, 100, 101)
			}
			if i%3 == 0 {
				hide = append(hide, 1, 99)
			}
			all = append(all, k.Own(user, 0, hide...))
		}
		applyOwn(t, b.Directory, all...)
	}
	appendRuns(t, b.Buckets, k.Run(r, 3))
	for _, user := range members {
		k.CheckSlots(t, b.Buckets, user, []uint64{101, 50, 1, 2, 99, 100, 102}, k.Tail())
	}
	allViews(t, b, k, "user0", "user63", "user64", "user65", "user199", "user200")
	for _, user := range members[150:] { // once more, those beyond what a slot names too
		applyOwn(t, b.Directory, k.Own(user, 0, 50))
	}
	allViews(t, b, k, "user0", "user150", "user199")
}

// testHiddenAtOnce: 200 writers delete one message, and each another one, at the same time, while messages, changes and marks arrive.
func testHiddenAtOnce(t *testing.T, b Backend) {
	var members []string
	for i := range 200 {
		members = append(members, fmt.Sprint("user", i))
	}
	k, r := NewTalk("g:all", members...), seeded(76)
	appendRuns(t, b.Buckets, k.Run(r, 60))
	owns := make([]*storage.Own, len(members))
	for i, user := range members {
		owns[i] = k.Own(user, 0, 33, 1+uint64(i%60))
	}
	var all sync.WaitGroup
	for _, own := range owns {
		all.Go(func() {
			if err := b.Directory.ApplyOwn(context.Background(), []*storage.Own{own}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 10 {
		appendRuns(t, b.Buckets, k.Run(r, 4))
		apply(t, b.Changes, k.React(33, "user7", "+1", k.ChangeSeq()%2 == 0))
		raise(t, b.Directory, "user7", k.ID, k.Tail(), 0)
	}
	all.Wait()
	for _, user := range members {
		k.CheckSlots(t, b.Buckets, user, []uint64{33, 1, 60, 61}, k.Tail())
	}
	allViews(t, b, k, "user0", "user7", "user100", "user199")
	k.CheckChanges(t, b.Changes)
}
