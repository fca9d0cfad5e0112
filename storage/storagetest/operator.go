package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// TestOperator is the suite of storage.Operator.
func TestOperator(t *testing.T, open func(tb testing.TB) Backend) {
	for _, sub := range []struct {
		name string
		test func(*testing.T, Backend)
	}{
		{"Conversations", testConversations},
		{"Purge", testPurge},
		{"PurgeAll", testPurgeAll},
		{"PurgeLabels", testPurgeLabels},
		{"PurgeUnderLoad", testPurgeUnderLoad},
		{"LastBefore", testLastBefore},
		{"Inspect", testInspect},
		{"InspectNothing", testInspectNothing},
		{"Verify", testVerify},
		{"VerifyUnderLoad", testVerifyUnderLoad},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, open(t)) })
	}
}

func testConversations(t *testing.T, b Backend) {
	r := seeded(80)
	var ids []string
	var runs []*storage.Run
	for _, pair := range [][2]string{{"a", "b"}, {"a", "bb"}, {"aa", "b"}, {"a", "b+"}, {"a+", "b"}, {"a", "a"}, {"A", "b"}, {"z", "zz"}} {
		k := Direct(pair[0], pair[1])
		runs, ids = append(runs, k.Run(r, 1+r.IntN(3))), append(ids, k.ID)
	}
	for _, id := range []string{"g:a", "g:aa", "u:a"} {
		runs, ids = append(runs, NewTalk(id, "a").Run(r, 120)), append(ids, id)
	}
	appendRuns(t, b.Buckets, runs...)
	slices.Sort(ids)
	for _, after := range append([]string{"", "a", "p", "p:a:b ", "p:aa:", "zzz"}, ids...) {
		var want, got []string
		for _, id := range ids {
			if id > after {
				want = append(want, id)
			}
		}
		for limit := 1; limit < len(ids)+2; limit += 3 {
			got = nil
			err := b.Operator.Conversations(t.Context(), after, func(id string) bool {
				got = append(got, id)
				return len(got) < limit
			})
			if err != nil || !slices.Equal(got, want[:min(limit, len(want))]) {
				t.Fatalf("after %q there are %q, want %d of %q, %v", after, got, limit, want, err)
			}
		}
	}
}

// purge purges and takes it into the model.
func purge(t *testing.T, b Backend, k *Talk, from, to uint64) {
	t.Helper()
	n, err := b.Operator.Purge(t.Context(), k.ID, from, to)
	if want := k.Gone(from, to); err != nil || n != want {
		t.Fatalf("%s: purging %d to %d took %d, want %d, %v", k.ID, from, to, n, want, err)
	}
}

// testPurge: whatever is purged stays as gone, with its counts, log time and id; the rest stays as it is, and the conversation goes on.
func testPurge(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(81)
	for _, n := range []int{1, 98, 1, 1, 3, 150, 1, 45} {
		appendRuns(t, b.Buckets, k.Run(r, n))
	}
	for _, bad := range [][2]uint64{{0, 0}, {0, 5}, {5, 4}} {
		if n, err := b.Operator.Purge(t.Context(), k.ID, bad[0], bad[1]); n != 0 || !errors.Is(err, storage.ErrInvalidSeq) {
			t.Fatalf("purging %v: %d, %v, want ErrInvalidSeq", bad, n, err)
		}
	}
	if n, err := b.Operator.Purge(t.Context(), "p:alice:nobody", 1, 100); n != 0 || err != nil {
		t.Fatalf("purging nothing: %d, %v", n, err)
	}
	was := entry(t, b.Directory, "bob", k.ID)
	for _, c := range [][2]uint64{
		{1, 1}, {50, 50}, {50, 60}, {40, 55}, {98, 103}, {100, 100}, {301, 400}, {201, 201}, {105, 250}, {300, 300}, {299, math.MaxUint64}, {1, 20},
	} {
		for range 2 { // the second time finds nothing
			purge(t, b, k, c[0], c[1])
			k.Check(t, b.Buckets, k.Tail())
		}
		if e := entry(t, b.Directory, "bob", k.ID); e.View != was.View || e.State.Tail != was.State.Tail || e.State.Counts != was.State.Counts {
			t.Fatalf("after purging %v there is %+v, before %+v", c, e, was)
		}
	}
	k.CheckSlots(t, b.Buckets, "bob", []uint64{300, 21, 20, 100, 104, 61, 299, 1}, k.Tail())
	for range 3 {
		appendRuns(t, b.Buckets, k.Run(r, 70))
		k.Check(t, b.Buckets, k.Tail())
	}
}

// testPurgeAll: of a conversation of which nothing is left the numbers go on, and a stale writer cannot bring anything back.
func testPurgeAll(t *testing.T, b Backend) {
	r := seeded(82)
	for i, n := range []int{1, 100, 101, 250} {
		k := Direct("alice", fmt.Sprint("bob", i))
		old := k.Run(r, n)
		appendRuns(t, b.Buckets, old)
		purge(t, b, k, 1, math.MaxUint64)
		k.Check(t, b.Buckets, k.Tail())
		c, err := b.Buckets.Append(t.Context(), []*storage.Run{old})
		if err == nil {
			err = c.Wait()
		}
		if err != nil || old.Err != nil && !errors.Is(old.Err, storage.ErrStale) { // or it is taken for a repeat
			t.Fatalf("what was purged is appended again: %v, %v", old.Err, err)
		}
		appendRuns(t, b.Buckets, k.Run(r, 3))
		k.Check(t, b.Buckets, k.Tail())
		raise(t, b.Directory, "alice", k.ID, k.Tail(), k.Slots[k.Tail()-1].Counts[1])
	}
}

// testPurgeLabels: labels go with what they are on, and what is gone takes no more of them.
func testPurgeLabels(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(83)
	appendRuns(t, b.Buckets, k.Run(r, 80))
	appendRuns(t, b.Buckets, k.Run(r, 50))
	for i := range 100 { // more than are named
		apply(t, b.Changes, k.React(99, fmt.Sprint("fan", i), "+1", true))
	}
	for seq := uint64(1); seq <= 130; seq += 3 {
		if c := k.Change(r, seq); c != nil {
			apply(t, b.Changes, c)
		}
	}
	applyOwn(t, b.Directory, k.Own("bob", 0, 20, 21, 99, 130), k.Own("alice", 0, 20, 100))
	for _, c := range [][2]uint64{{20, 40}, {99, 101}, {130, 130}} {
		purge(t, b, k, c[0], c[1])
		allViews(t, b, k, "alice", "bob", "fan1", "fan99")
		k.CheckChanges(t, b.Changes) // that they were changed remains known
	}
	bad := &storage.Change{Conversation: k.ID, Seq: 99, ChangeSeq: k.ChangeSeq() + 1, Labels: storage.Labels{Edit: &storage.Edit{ContentType: 1}}}
	if err := b.Changes.Apply(t.Context(), []*storage.Change{bad}); err != nil || !errors.Is(bad.Err, storage.ErrGone) {
		t.Fatalf("what is gone was changed: %v, %v", bad.Err, err)
	}
	applyOwn(t, b.Directory, k.Own("bob", 0, 30, 31, 1))
	apply(t, b.Changes, k.React(98, "fan1", "+1", true))
	allViews(t, b, k, "alice", "bob", "fan1")
	k.CheckChanges(t, b.Changes)
}

// testPurgeUnderLoad: while a purge goes on, a message is there whole, or gone and never back; messages and changes arrive meanwhile.
func testPurgeUnderLoad(t *testing.T, b Backend) {
	const messages = 600
	k, r := Direct("alice", "bob"), seeded(84)
	for k.Tail() < messages {
		appendRuns(t, b.Buckets, k.Run(r, 1+r.IntN(40)))
	}
	whole := NewTalk(k.ID)
	whole.Slots = slices.Clone(k.Slots)
	last := k.Tail()
	var looking, purging sync.WaitGroup
	done := make(chan struct{})
	for i := range 3 {
		looking.Go(func() {
			gone := make(map[uint64]bool)
			for !isClosed(done) && !t.Failed() {
				q := storage.Range{Conversation: k.ID, Viewer: "bob", From: 1, To: messages / 2, NewestFirst: i%2 == 0}
				err := b.Buckets.Read(context.Background(), q, func(s *storage.Slot) bool {
					seq := s.Message.Seq
					if gone[seq] && !s.Labels.Gone || !s.Labels.Gone && s.Message.ServerMsgID != whole.Slots[seq-1].Message.ServerMsgID ||
						s.Counts != whole.Slots[seq-1].Counts || s.Labels.Gone && len(s.Message.Content)+len(s.Message.Sender) > 0 {
						t.Errorf("seq %d was gone: %t, and is %+v", seq, gone[seq], s)
					}
					gone[seq] = gone[seq] || s.Labels.Gone
					return !t.Failed()
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, half := range [][2]uint64{{1, messages / 4}, {messages/4 + 1, messages / 2}} {
		k.Gone(half[0], half[1])
		purging.Go(func() {
			for from := half[0]; from <= half[1]; from += 15 {
				if n, err := b.Operator.Purge(context.Background(), k.ID, from, min(from+14, half[1])); err != nil || n != min(from+14, half[1])-from+1 {
					t.Errorf("purging from %d took %d, %v", from, n, err)
				}
			}
		})
	}
	for range 15 {
		appendRuns(t, b.Buckets, k.Run(r, 1+r.IntN(5)))
		apply(t, b.Changes, k.React(last, "fan1", "+1", k.ChangeSeq()%2 == 0))
	}
	purging.Wait()
	close(done)
	looking.Wait()
	k.Check(t, b.Buckets, k.Tail())
	allViews(t, b, k, "bob")
	k.CheckChanges(t, b.Changes)
}

func testLastBefore(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(85)
	check := func() {
		t.Helper()
		times := []int64{0, math.MinInt64, math.MaxInt64, k.nowMS, k.nowMS + 1}
		for _, end := range k.Ends {
			at := k.Slots[end.Tail-1].LogTimeMS
			times = append(times, at-1, at, at+1)
		}
		for _, timeMS := range times {
			want := uint64(0)
			for i := range k.Slots {
				if k.Slots[i].LogTimeMS < timeMS {
					want = uint64(i + 1)
				}
			}
			if got, err := b.Operator.LastBefore(t.Context(), k.ID, timeMS); err != nil || got != want {
				t.Fatalf("the last before %d is %d, want %d, %v", timeMS, got, want, err)
			}
		}
	}
	check()
	for range 60 {
		appendRuns(t, b.Buckets, k.Run(r, 1+r.IntN(9)))
	}
	check()
	purge(t, b, k, 1, 150)
	check()
	appendRuns(t, b.Buckets, k.Run(r, 1))
	check()
}

// testInspect: what an operator is shown is what there is; but not what was revoked.
func testInspect(t *testing.T, b Backend) {
	var members []string
	for i := range 80 {
		members = append(members, fmt.Sprint("user", i))
	}
	k, r := NewTalk("g:all", members...), seeded(86)
	for _, n := range []int{3, 96, 2, 30} {
		appendRuns(t, b.Buckets, k.Run(r, n))
	}
	edit := &storage.Edit{ContentType: 1, Content: []byte("edited"), TimeMS: 4}
	apply(t, b.Changes, k.add(10, storage.Labels{Edit: edit}))
	apply(t, b.Changes, k.add(10, storage.Labels{Revoke: &protocol.Revoke{User: "user1", Role: protocol.RoleSender, TimeMS: 5}}))
	apply(t, b.Changes, k.React(11, "user1", "+1", true))
	apply(t, b.Changes, k.add(12, storage.Labels{Edit: edit}))
	for _, user := range members {
		applyOwn(t, b.Directory, k.Own(user, 0, 11))
	}
	applyOwn(t, b.Directory, k.Own("user1", 7, 12, 13, 100))
	purge(t, b, k, 20, 25)
	raise(t, b.Directory, "user2", k.ID, 9, 1)

	in, err := b.Operator.Inspect(t.Context(), k.ID, []uint64{100, 10, 11, 12, 20, 500, 131})
	if err != nil {
		t.Fatal(err)
	}
	state, err := b.Buckets.State(t.Context(), k.ID)
	if err != nil || in.Conversation != k.ID || in.State != state || in.ChangeSeq != 4 {
		t.Fatalf("inspected %+v, %v; the state is %+v", in, err, state)
	}
	checkInspectedRows(t, b, k, in)
	checkInspectedBuckets(t, k, in)
	checkInspectedSlots(t, k, in, []uint64{100, 10, 11, 12, 20, 131})

	in, err = b.Operator.Inspect(t.Context(), k.ID, nil)
	if err != nil || len(in.Slots) != 0 || len(in.Rows) != len(members) {
		t.Fatalf("inspected without seqs: %+v, %v", in, err)
	}
	checkInspectedBuckets(t, k, in)
	if _, err := b.Operator.Inspect(t.Context(), k.ID, []uint64{1, 0}); !errors.Is(err, storage.ErrInvalidSeq) {
		t.Fatalf("seq 0 was inspected: %v", err)
	}
}

func checkInspectedRows(t *testing.T, b Backend, k *Talk, in *storage.Inspection) {
	t.Helper()
	if len(in.Rows) != len(k.Members) {
		t.Fatalf("%d rows", len(in.Rows))
	}
	for i, row := range in.Rows {
		if e := entry(t, b.Directory, row.User, k.ID); row.View != e.View || row.Hidden != uint64(len(k.marks.hidden[row.User])) {
			t.Fatalf("row %+v; on the list is %+v, %d are hidden", row, e, len(k.marks.hidden[row.User]))
		}
		if i > 0 && row.User <= in.Rows[i-1].User {
			t.Fatalf("the row of %s comes after that of %s", row.User, in.Rows[i-1].User)
		}
	}
}

// checkInspectedBuckets: each message is in one bucket, oldest first.
func checkInspectedBuckets(t *testing.T, k *Talk, in *storage.Inspection) {
	t.Helper()
	next := uint64(1)
	ids := make(map[string]bool)
	for _, bucket := range in.Buckets {
		if bucket.First != next || bucket.Last < next || bucket.Slots < int(bucket.Last-bucket.First)+1 || bucket.Bytes <= 0 || ids[bucket.ID] || bucket.Sealed {
			t.Fatalf("bucket %+v, want one from %d", bucket, next)
		}
		ids[bucket.ID] = true
		next = bucket.Last + 1
	}
	if next != k.Tail()+1 {
		t.Fatalf("the buckets end at %d of %d", next-1, k.Tail())
	}
	for _, slot := range in.Slots {
		if !ids[slot.Bucket] {
			t.Fatalf("seq %d is in bucket %q, which there is not", slot.Message.Seq, slot.Bucket)
		}
	}
}

func checkInspectedSlots(t *testing.T, k *Talk, in *storage.Inspection, seqs []uint64) {
	t.Helper()
	if len(in.Slots) != len(seqs) {
		t.Fatalf("%d slots of %d", len(in.Slots), len(seqs))
	}
	for i, seq := range seqs {
		got := &in.Slots[i]
		if got.Bytes <= 0 {
			t.Fatalf("seq %d takes %d bytes", seq, got.Bytes)
		}
		if want := k.View("", seq); want.Labels.Revoke != nil {
			if got.Message.Content != nil || got.Message.Mentions != nil || got.Labels.Edit != nil || got.Labels.Revoke == nil {
				t.Fatalf("of the revoked seq %d there is %+v", seq, got)
			}
			got.Message.Content, got.Message.Mentions = want.Message.Content, want.Message.Mentions
		}
		k.CheckView(t, "", seq, &got.Slot)
		deleters := 0
		for user, set := range k.marks.hidden {
			if named := slices.Contains(got.DelList, user); set[seq] {
				deleters++
			} else if named {
				t.Fatalf("seq %d was not deleted by %s", seq, user)
			}
		}
		if !k.IsGone(seq) && (len(got.DelList) != min(deleters, storage.MaxDeleters) || got.DelMore != (deleters > storage.MaxDeleters)) {
			t.Fatalf("seq %d was deleted by %d, it says %v and more: %t", seq, deleters, got.DelList, got.DelMore)
		}
	}
}

func testInspectNothing(t *testing.T, b Backend) {
	in, err := b.Operator.Inspect(t.Context(), "p:alice:nobody", []uint64{1, 101})
	if err != nil || in.State != (storage.State{}) || len(in.Rows)+len(in.Buckets)+len(in.Slots) != 0 || in.ChangeSeq != 0 {
		t.Fatalf("of nothing there is %+v, %v", in, err)
	}
}

// verify verifies the store, which must have no fault, and returns what was looked at.
func verify(tb testing.TB, o storage.Operator) storage.Verified {
	tb.Helper()
	v, err := o.Verify(context.Background(), func(f storage.Fault) { tb.Errorf("fault: %+v", f) }, nil)
	if err != nil || v.Faults != 0 {
		tb.Fatalf("verified %+v, %v", v, err)
	}
	return v
}

// testVerify: a store in which everything was done has no fault, and all of it is looked at.
func testVerify(t *testing.T, b Backend) {
	if v := verify(t, b.Operator); v != (storage.Verified{}) {
		t.Fatalf("an empty store: %+v", v)
	}
	r := seeded(87)
	want := storage.Verified{}
	var seen []storage.Verified
	for i := range 8 {
		k := Direct("alice", fmt.Sprint("bob", i))
		for range 5 {
			appendRuns(t, b.Buckets, k.Run(r, 1+r.IntN(70)))
			doAtRandom(t, b, r, k)
		}
		want.Conversations++
		want.Messages += k.Tail()
		want.Gone += uint64(len(k.marks.gone))
		want.Rows += 2
		if k.ChangeSeq() > 0 {
			want.Changes++
		}
	}
	v, err := b.Operator.Verify(t.Context(), func(f storage.Fault) { t.Errorf("fault: %+v", f) }, func(v storage.Verified) { seen = append(seen, v) })
	if err != nil {
		t.Fatal(err)
	}
	buckets, changes := v.Buckets, v.Changes
	v.Buckets, v.Changes = 0, min(v.Changes, want.Changes)
	if v != want || buckets < want.Conversations || changes < want.Changes {
		t.Fatalf("verified %+v, %d buckets, %d changes, want %+v", v, buckets, changes, want)
	}
	if len(seen) < int(want.Conversations) || seen[len(seen)-1].Messages != want.Messages {
		t.Fatalf("it told of its progress %d times, in the end %+v", len(seen), seen[len(seen)-1:])
	}
}

// testVerifyUnderLoad: what is on its way is no fault.
func testVerifyUnderLoad(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(88)
	appendRuns(t, b.Buckets, k.Run(r, 10))
	done := make(chan struct{})
	var verifying sync.WaitGroup
	verifying.Go(func() {
		for n := 0; n < 5 || !isClosed(done) && n < 1000; n++ {
			if _, err := b.Operator.Verify(context.Background(), func(f storage.Fault) { t.Errorf("fault: %+v", f) }, nil); err != nil || t.Failed() {
				t.Error(err)
				return
			}
		}
	})
	for range 40 {
		appendRuns(t, b.Buckets, k.Run(r, 1+r.IntN(30)))
		doAtRandom(t, b, r, k)
	}
	close(done)
	verifying.Wait()
	k.Check(t, b.Buckets, k.Tail())
}
