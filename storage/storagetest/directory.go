package storagetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// TestDirectory is the suite of storage.Directory.
func TestDirectory(t *testing.T, open func(tb testing.TB) Backend) {
	for _, sub := range []struct {
		name string
		test func(*testing.T, Backend)
	}{
		{"NewConversation", testNewConversation},
		{"Entries", testEntries},
		{"EntriesAreApart", testEntriesAreApart},
		{"RaiseRead", testRaiseRead},
		{"RaiseReadNeedsARow", testRaiseReadNeedsARow},
		{"RaiseReadOfOneRow", testRaiseReadOfOneRow},
		{"ChangedSince", testChangedSince},
		{"ChangedUnderLoad", testChangedUnderLoad},
		{"NeverAhead", testNeverAhead},
		{"Unread", testUnread},
		{"Hide", testHide},
		{"Clear", testClear},
		{"OwnNeedsARow", testOwnNeedsARow},
		{"OwnOfMany", testOwnOfMany},
		{"OwnOfOneRow", testOwnOfOneRow},
		{"HiddenByMany", testHiddenByMany},
		{"HiddenAtOnce", testHiddenAtOnce},
		{"SignedOut", testSignedOut},
		{"SignedOutAtOnce", testSignedOutAtOnce},
		{"Epoch", testEpoch},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, open(t)) })
	}
}

// list is the whole list of a user by conversation.
func list(tb testing.TB, d storage.Directory, user string, since storage.Stamp) (map[string]storage.Entry, storage.Stamp) {
	tb.Helper()
	entries, upTo, err := d.Changed(context.Background(), user, since)
	if err != nil {
		tb.Fatal(err)
	}
	all := make(map[string]storage.Entry)
	for _, e := range entries {
		if _, twice := all[e.Conversation]; twice {
			tb.Fatalf("%s is on the list of %s twice", e.Conversation, user)
		}
		if e.Changed <= since || e.Changed < e.Stamp || e.Changed < e.State.Stamp {
			tb.Fatalf("entry %+v changed since %d", e, since)
		}
		all[e.Conversation] = e
	}
	return all, upTo
}

// entry is one entry of a user's list, by each of the two ways.
func entry(tb testing.TB, d storage.Directory, user, conversation string) storage.Entry {
	tb.Helper()
	got, err := d.Entries(context.Background(), user, []string{conversation})
	if err != nil || len(got) != 1 {
		tb.Fatalf("%s of %s: %v, %v", conversation, user, got, err)
	}
	if all, _ := list(tb, d, user, 0); all[conversation] != got[0] {
		tb.Fatalf("%s of %s: Entries has %+v, Changed %+v", conversation, user, got[0], all[conversation])
	}
	return got[0]
}

func raise(tb testing.TB, d storage.Directory, user, conversation string, seq, count uint64) (storage.View, bool) {
	tb.Helper()
	v, raised, err := d.RaiseRead(context.Background(), user, conversation, seq, count)
	if err != nil {
		tb.Fatal(err)
	}
	return v, raised
}

func testNewConversation(t *testing.T, b Backend) {
	r := seeded(20)
	for _, k := range []*Talk{Direct("alice", "bob"), Direct("alice", "alice"), NewTalk("g:friends", "alice", "bob", "carol"), NewTalk("u:alice", "alice")} {
		appendRuns(t, b.Buckets, k.Run(r, 3))
		appendRuns(t, b.Buckets, k.Run(r, 2))
		state, _ := k.StateAt(5)
		for _, user := range k.Members {
			e := entry(t, b.Directory, user, k.ID)
			state.Stamp = e.State.Stamp
			if e.State != state || e.ReadSeq != 0 || e.ReadCount != 0 || e.MinSeq != 1 || e.PeerReadSeq != 0 || e.ChangeSeq != 0 ||
				e.Stamp == 0 || e.Changed != max(e.Stamp, e.State.Stamp) {
				t.Fatalf("%s of %s: %+v, want state %+v", k.ID, user, e, state)
			}
		}
		if all, _ := list(t, b.Directory, "dave", 0); len(all) != 0 {
			t.Fatalf("a stranger has %v", all)
		}
	}
	if all, _ := list(t, b.Directory, "alice", 0); len(all) != 4 {
		t.Fatalf("alice has %v", all)
	}
}

func testEntries(t *testing.T, b Backend) {
	r := seeded(21)
	var ids []string
	for i := range 20 {
		k := Direct("alice", fmt.Sprint("bob", i))
		appendRuns(t, b.Buckets, k.Run(r, 1+i))
		ids = append(ids, k.ID)
	}
	appendRuns(t, b.Buckets, Direct("bob1", "bob2").Run(r, 1)) // alice has no part in it
	asked := []string{ids[7], "p:alice:nobody", ids[3], "p:bob1:bob2", ids[19], "g:none", ids[0]}
	got, err := b.Directory.Entries(t.Context(), "alice", asked)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range got {
		found = append(found, e.Conversation)
	}
	if want := []string{ids[7], ids[3], ids[19], ids[0]}; !slices.Equal(found, want) {
		t.Fatalf("entries %v, want %v", found, want)
	}
	if got[2].State.Tail != 20 {
		t.Fatalf("entry %+v", got[2])
	}
}

// testEntriesAreApart: users and conversations whose ids begin alike.
func testEntriesAreApart(t *testing.T, b Backend) {
	r := seeded(22)
	want := make(map[string][]string)
	for _, pair := range [][2]string{{"a", "b"}, {"a", "bb"}, {"aa", "b"}, {"a", "b+"}, {"a+", "b"}, {"a|", "b"}, {"a", "a"}, {"A", "b"}} {
		k := Direct(pair[0], pair[1])
		appendRuns(t, b.Buckets, k.Run(r, 2))
		for _, user := range k.Members {
			want[user] = append(want[user], k.ID)
		}
	}
	for user, ids := range want {
		all, _ := list(t, b.Directory, user, 0)
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
			t.Fatalf("%s has %v, want %v", user, got, ids)
		}
	}
}

func testRaiseRead(t *testing.T, b Backend) {
	r, k := seeded(23), Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(r, 9))
	was := entry(t, b.Directory, "bob", k.ID)
	for _, step := range []struct {
		user             string
		seq, count       uint64
		raised           bool
		alice, bob, bobs uint64
	}{
		{"bob", 3, 2, true, 0, 3, 2},
		{"bob", 3, 2, false, 0, 3, 2},
		{"bob", 1, 1, false, 0, 3, 2},
		{"alice", 9, 1, true, 9, 3, 2},
		{"bob", 9, 5, true, 9, 9, 5},
		{"bob", 0, 0, false, 9, 9, 5},
		{"alice", 8, 0, false, 9, 9, 5},
	} {
		v, raised := raise(t, b.Directory, step.user, k.ID, step.seq, step.count)
		mine, peers := entry(t, b.Directory, "bob", k.ID), entry(t, b.Directory, "alice", k.ID)
		if raised != step.raised || mine.ReadSeq != step.bob || mine.ReadCount != step.bobs || mine.PeerReadSeq != step.alice ||
			peers.ReadSeq != step.alice || peers.PeerReadSeq != step.bob || mine.MinSeq != 1 || v.Conversation != k.ID {
			t.Fatalf("after %+v: raised %t, bob %+v, alice %+v", step, raised, mine, peers)
		}
		if now := map[string]storage.View{"alice": peers.View, "bob": mine.View}[step.user]; now != v {
			t.Fatalf("after %+v: view %+v, then %+v", step, v, now)
		}
		// A change of either side is a change of the entry of both.
		if max(mine.Stamp, peers.Stamp) != mine.Changed || mine.Changed != peers.Changed ||
			raised && !b.later(mine.Changed, was.Changed) || !raised && mine.Changed != was.Changed {
			t.Fatalf("after %+v: bob %+v, alice %+v, before %+v", step, mine, peers, was)
		}
		was = mine
	}
	self := Direct("alice", "alice")
	appendRuns(t, b.Buckets, self.Run(r, 2))
	raise(t, b.Directory, "alice", self.ID, 2, 1)
	if e := entry(t, b.Directory, "alice", self.ID); e.ReadSeq != 2 || e.Changed != e.Stamp {
		t.Fatalf("a conversation with oneself: %+v", e)
	}
}

func testRaiseReadNeedsARow(t *testing.T, b Backend) {
	k := Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(seeded(24), 1))
	for _, c := range [][2]string{{"alice", "p:alice:carol"}, {"carol", k.ID}} {
		if _, raised, err := b.Directory.RaiseRead(t.Context(), c[0], c[1], 1, 1); err == nil || raised {
			t.Fatalf("%s read %s, which is not on the list", c[0], c[1])
		}
		if all, _ := list(t, b.Directory, c[0], 0); len(all) > 1 || c[0] == "carol" && len(all) > 0 {
			t.Fatalf("%s has %v", c[0], all)
		}
	}
}

// testRaiseReadOfOneRow: many devices of a user report at once. The watermark never falls, nor seems to, and ends at the highest.
func testRaiseReadOfOneRow(t *testing.T, b Backend) {
	const raisers, each = 8, 40
	k := Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(seeded(25), raisers*each))
	var mu sync.Mutex
	raisedTo := make(map[uint64]bool)
	var raising, looking sync.WaitGroup
	done := make(chan struct{})
	for i := range raisers {
		raising.Go(func() {
			for _, n := range seeded(uint64(300 + i)).Perm(each) {
				seq := uint64(n*raisers + i + 1)
				v, raised, err := b.Directory.RaiseRead(context.Background(), "bob", k.ID, seq, seq)
				if err != nil || v.ReadSeq < seq || raised && v.ReadSeq != seq || v.ReadCount != v.ReadSeq {
					t.Errorf("raised to %d (%t): %+v, %v", seq, raised, v, err)
					return
				}
				mu.Lock()
				if raised && raisedTo[seq] {
					t.Errorf("raised to %d twice", seq)
				}
				raisedTo[seq] = raisedTo[seq] || raised
				mu.Unlock()
			}
		})
	}
	looking.Go(func() {
		var last storage.Entry
		for !isClosed(done) {
			got, err := b.Directory.Entries(context.Background(), "bob", []string{k.ID})
			if err != nil || len(got) != 1 || got[0].ReadSeq < last.ReadSeq || got[0].Changed < last.Changed || got[0].ReadCount != got[0].ReadSeq {
				t.Errorf("after %+v there is %+v, %v", last, got, err)
				return
			}
			last = got[0]
		}
	})
	raising.Wait()
	close(done)
	looking.Wait()
	if e := entry(t, b.Directory, "bob", k.ID); e.ReadSeq != raisers*each || !raisedTo[raisers*each] {
		t.Fatalf("at the end: %+v", e)
	}
}

func testChangedSince(t *testing.T, b Backend) {
	r := seeded(26)
	var talks []*Talk
	for i := range 5 {
		k := Direct("alice", fmt.Sprint("bob", i))
		appendRuns(t, b.Buckets, k.Run(r, 4))
		talks = append(talks, k)
	}
	all, upTo := list(t, b.Directory, "alice", 0)
	if len(all) != 5 {
		t.Fatalf("a new device gets %v", all)
	}
	changes := []func(k *Talk){
		func(k *Talk) { appendRuns(t, b.Buckets, k.Run(r, 1)) },
		func(k *Talk) { raise(t, b.Directory, "alice", k.ID, 2, 1) },
		func(k *Talk) { raise(t, b.Directory, k.Members[1], k.ID, 3, 1) },
		func(k *Talk) { appendRuns(t, b.Buckets, k.Run(r, 3)) },
	}
	for i, change := range changes {
		if got, _ := list(t, b.Directory, "alice", upTo); len(got) != 0 && !b.Repeats {
			t.Fatalf("nothing changed, and yet %v", got)
		}
		change(talks[i])
		if i == 3 { // two at once
			change(talks[4])
		}
		got, next := list(t, b.Directory, "alice", upTo)
		if _, ok := got[talks[i].ID]; !ok || len(got) != 1+i/3 && !b.Repeats || next < upTo {
			t.Fatalf("after change %d since %d: %v, %d", i, upTo, got, next)
		}
		upTo = next
	}
	raise(t, b.Directory, "alice", talks[1].ID, 2, 1) // raises nothing
	if got, _ := list(t, b.Directory, "alice", upTo); len(got) != 0 && !b.Repeats {
		t.Fatalf("nothing changed, and yet %v", got)
	}
	if got, _ := list(t, b.Directory, "bob0", upTo); len(got) != 0 && !b.Repeats {
		t.Fatalf("another user's list: %v", got)
	}
}

// testChangedUnderLoad: a device that keeps itself up to date with Changed, from upTo to upTo, while everything changes, ends with the same
// list as one that reads it all at the end. What it was told never goes back.
func testChangedUnderLoad(t *testing.T, b Backend) {
	const writers, steps = 6, 40
	var writing, syncing sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		writing.Go(func() { changeAtRandom(t, b, w, steps) })
	}
	lists := make([]map[string]storage.Entry, 3)
	upTos := make([]storage.Stamp, 3)
	for i, user := range []string{"alice", "peer0-1", "peer3-0"} {
		lists[i] = make(map[string]storage.Entry)
		syncing.Go(func() {
			for stopped := false; !stopped && !t.Failed(); {
				stopped = isClosed(done) // one more after the last change
				upTos[i] = follow(t, b.Directory, user, lists[i], upTos[i])
			}
		})
	}
	writing.Wait()
	close(done)
	syncing.Wait()
	for i, user := range []string{"alice", "peer0-1", "peer3-0"} {
		if want, _ := list(t, b.Directory, user, 0); !maps.Equal(lists[i], want) {
			t.Fatalf("%s followed the changes to\n%+v\nand has\n%+v", user, lists[i], want)
		}
	}
}

// follow brings a copy of the user's list up to date.
func follow(t *testing.T, d storage.Directory, user string, copied map[string]storage.Entry, since storage.Stamp) storage.Stamp {
	entries, upTo, err := d.Changed(context.Background(), user, since)
	if err != nil || upTo < since {
		t.Errorf("changed since %d: up to %d, %v", since, upTo, err)
	}
	for _, e := range entries {
		was := copied[e.Conversation]
		if e.Changed <= since || e.Changed < was.Changed || e.State.Tail < was.State.Tail || e.ReadSeq < was.ReadSeq || e.PeerReadSeq < was.PeerReadSeq {
			t.Errorf("since %d, after %+v comes %+v", since, was, e)
		}
		copied[e.Conversation] = e
	}
	return upTo
}

// changeAtRandom starts conversations with alice, appends to them, and raises the marks of both sides.
func changeAtRandom(t *testing.T, b Backend, w, steps int) {
	r := seeded(uint64(400 + w))
	var talks []*Talk
	for range steps {
		if len(talks) == 0 || r.IntN(10) == 0 {
			talks = append(talks, Direct("alice", fmt.Sprintf("peer%d-%d", w, len(talks))))
		}
		k := talks[r.IntN(len(talks))]
		if k.Tail() == 0 || r.IntN(2) == 0 {
			run := k.Run(r, 1+r.IntN(3))
			c, err := b.Buckets.Append(context.Background(), []*storage.Run{run})
			if err == nil {
				err = c.Wait()
			}
			if err != nil || run.Err != nil {
				t.Error(err, run.Err)
				return
			}
			continue
		}
		seq := 1 + r.Uint64N(k.Tail())
		side := r.IntN(2)
		_, _, err := b.Directory.RaiseRead(context.Background(), k.Members[side], k.ID, seq, k.Slots[seq-1].Counts[1-side])
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// testNeverAhead: in one entry no mark is ahead of the conversation, so unread counts never fall below zero.
func testNeverAhead(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(27)
	appendRuns(t, b.Buckets, k.Run(r, 1))
	var looking sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		looking.Go(func() {
			for !isClosed(done) && !t.Failed() {
				got, err := b.Directory.Entries(context.Background(), "bob", []string{k.ID})
				if err != nil || len(got) != 1 {
					t.Error(got, err)
					return
				}
				if e := got[0]; e.ReadSeq > e.State.Tail || e.PeerReadSeq > e.State.Tail || e.ReadCount > e.State.Counts[0] {
					t.Errorf("a mark is ahead: %+v", e)
				}
			}
		})
	}
	for range 40 {
		appendRuns(t, b.Buckets, k.Run(r, 1+r.IntN(2)))
		for side, user := range k.Members {
			raise(t, b.Directory, user, k.ID, k.Tail(), k.Slots[k.Tail()-1].Counts[1-side])
		}
	}
	close(done)
	looking.Wait()
}

// testUnread: the count at the tail less the count at the mark is how many messages of the other side are above the mark.
func testUnread(t *testing.T, b Backend) {
	r, k := seeded(28), Direct("alice", "bob")
	marks := make([]uint64, 2)
	for range 60 {
		appendRuns(t, b.Buckets, k.Run(r, 1+r.IntN(6)))
		side := r.IntN(2)
		if seq := 1 + r.Uint64N(k.Tail()); seq > marks[side] {
			marks[side] = seq
			raise(t, b.Directory, k.Members[side], k.ID, seq, k.Slots[seq-1].Counts[1-side])
		}
		for side, user := range k.Members {
			e := entry(t, b.Directory, user, k.ID)
			want := uint64(0)
			for _, slot := range k.Slots[marks[side]:] {
				if slot.Message.Sender != user && storage.CountsAsUnread(&slot.Message) {
					want++
				}
			}
			_, a, _ := protocol.ParseConversation(k.ID)
			if got := e.State.Counts[1-storage.Side(user, a)] - e.ReadCount; got != want {
				t.Fatalf("%s has %d unread, want %d: %+v", user, got, want, e)
			}
		}
	}
}

func testSignedOut(t *testing.T, b Backend) {
	ctx, d := t.Context(), b.Directory
	out := make(map[[2]string]bool)
	devices := [][2]string{{"alice", "phone"}, {"alice", "phone2"}, {"alice", "web"}, {"alicep", "hone"}, {"bob", "phone"}, {"bob", "ünïcode \x00 \"device\""}}
	r := seeded(29)
	for range 60 {
		for _, c := range devices {
			if got, err := d.SignedOut(ctx, c[0], c[1]); err != nil || got != out[c] {
				t.Fatalf("%v is signed out: %t, want %t, %v", c, got, out[c], err)
			}
		}
		c := devices[r.IntN(len(devices))]
		out[c] = r.IntN(2) == 0
		if err := d.SetSignedOut(ctx, c[0], c[1], out[c]); err != nil {
			t.Fatal(err)
		}
	}
}

// testSignedOutAtOnce: what one goroutine sets it reads back, whatever others do meanwhile.
func testSignedOutAtOnce(t *testing.T, b Backend) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			device := fmt.Sprint("device", i)
			for n := range 30 {
				err := b.Directory.SetSignedOut(context.Background(), "alice", device, n%2 == 0)
				got, err2 := b.Directory.SignedOut(context.Background(), "alice", device)
				if err != nil || err2 != nil || got != (n%2 == 0) {
					t.Errorf("%s, step %d: %t, %v, %v", device, n, got, err, err2)
					return
				}
			}
		})
	}
	all.Wait()
}

func testEpoch(t *testing.T, b Backend) {
	first, err := b.Directory.Epoch(t.Context())
	if err != nil || first == "" {
		t.Fatalf("epoch %q, %v", first, err)
	}
	appendRuns(t, b.Buckets, Direct("alice", "bob").Run(seeded(30), 1))
	if again, err := b.Directory.Epoch(t.Context()); err != nil || again != first {
		t.Fatalf("epoch %q, then %q, %v", first, again, err)
	}
}
