package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// TestChanges is the suite of storage.Changes.
func TestChanges(t *testing.T, open func(tb testing.TB) Backend) {
	for _, sub := range []struct {
		name string
		test func(*testing.T, Backend)
	}{
		{"None", testNoChanges},
		{"Labels", testLabels},
		{"LabelsAreWhole", testLabelsAreWhole},
		{"Refused", testChangesRefused},
		{"AppliedAgain", testAppliedAgain},
		{"SurviveAppends", testLabelsSurviveAppends},
		{"Notes", testNotes},
		{"Reactors", testReactors},
		{"CompetingChanges", testCompetingChanges},
		{"LabelBeforeNote", testLabelBeforeNote},
		{"Entry", testChangesInEntries},
		{"Random", testRandomChanges},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, open(t)) })
	}
}

func testNoChanges(t *testing.T, b Backend) {
	k := Direct("alice", "bob")
	k.CheckChanges(t, b.Changes) // there is no such conversation
	appendRuns(t, b.Buckets, k.Run(seeded(50), 3))
	k.CheckChanges(t, b.Changes)
	if err := b.Changes.Apply(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// allViews holds what several viewers see of all messages against the model.
func allViews(t *testing.T, b Backend, k *Talk, viewers ...string) {
	t.Helper()
	for _, viewer := range append(viewers, "") {
		for _, newestFirst := range []bool{false, true} {
			k.CheckRange(t, b.Buckets, storage.Range{Viewer: viewer, From: 1, To: k.Tail() + 1, NewestFirst: newestFirst}, k.Tail())
		}
	}
}

func testLabels(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(51)
	for _, n := range []int{3, 1, 6} {
		appendRuns(t, b.Buckets, k.Run(r, n))
	}
	revoke := &protocol.Revoke{User: "alice", Role: protocol.RoleSender, TimeMS: 1_700_000_000_123}
	edit := &storage.Edit{ContentType: protocol.ContentQuote, Content: []byte("now so"), TimeMS: 1_700_000_000_456}
	for _, c := range []*storage.Change{
		k.add(1, storage.Labels{Revoke: revoke}),
		k.add(4, storage.Labels{Edit: edit}),
		k.add(10, storage.Labels{Edit: &storage.Edit{ContentType: 1, Content: []byte{}, TimeMS: 1}}),
		k.React(5, "bob", "+1", true),
		k.React(4, "alice", "\U0001f469\u200d\U0001f680", true),
		k.React(4, "bob", "\U0001f469\u200d\U0001f680", true),
		k.React(5, "bob", "+1", false),
		k.add(10, storage.Labels{Revoke: &protocol.Revoke{User: "op", Role: protocol.RoleOperator, TimeMS: 5}}),
	} {
		was := *c
		apply(t, b.Changes, c)
		if c.Seq != was.Seq || c.ChangeSeq != was.ChangeSeq {
			t.Fatalf("%+v became %+v", was, c)
		}
	}
	k.CheckChanges(t, b.Changes)
	allViews(t, b, k, "alice", "bob", "carol")
	k.CheckSlots(t, b.Buckets, "bob", []uint64{10, 4, 1, 4, 99, 5}, k.Tail())
	k.CheckState(t, b.Buckets, k.Tail())
	k.CheckRecent(t, b.Buckets, k.Tail())
}

// testLabelsAreWhole: what a change does not have is gone.
func testLabelsAreWhole(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(52)
	appendRuns(t, b.Buckets, k.Run(r, 2))
	edit := &storage.Edit{ContentType: 1, Content: content(r), TimeMS: 7}
	for _, l := range []storage.Labels{
		{Edit: edit, Reactions: []storage.Reaction{{Kind: "+1", Count: 1, Users: []string{"bob"}}}},
		{Edit: edit},
		{Reactions: []storage.Reaction{{Kind: "-1", Count: 2, Users: []string{"bob", "alice"}}, {Kind: "+1", Count: 1, Users: []string{"bob"}}}},
		{},
		{Edit: edit},
		{Revoke: &protocol.Revoke{User: "bob", Role: protocol.RoleSender, TimeMS: 9}},
	} {
		apply(t, b.Changes, k.add(2, l))
		k.CheckRead(t, b.Buckets, 1, 2, false, 2)
	}
	k.CheckChanges(t, b.Changes)
}

// testChangesRefused: what cannot be is refused, alone, and leaves no trace.
func testChangesRefused(t *testing.T, b Backend) {
	r := seeded(53)
	k, other := Direct("alice", "bob"), Direct("alice", "carol")
	appendRuns(t, b.Buckets, k.Run(r, 120), other.Run(r, 3))
	for seq := range uint64(3) {
		apply(t, b.Changes, k.React(1+seq, "bob", "+1", true))
	}
	if n, err := b.Operator.Purge(t.Context(), k.ID, 110, 111); err != nil || n != k.Gone(110, 111) {
		t.Fatalf("purged %d, %v", n, err)
	}
	labels := storage.Labels{Revoke: &protocol.Revoke{User: "alice", Role: protocol.RoleSender, TimeMS: 1}}
	for _, c := range []struct {
		conversation   string
		seq, changeSeq uint64
		want           error
	}{
		{k.ID, 4, 0, storage.ErrStale}, {k.ID, 4, 1, storage.ErrStale}, {k.ID, 3, 3, storage.ErrStale}, {k.ID, 4, 5, storage.ErrStale},
		{k.ID, 4, 1 << 40, storage.ErrStale},
		{k.ID, 0, 4, storage.ErrNotFound}, {k.ID, 121, 4, storage.ErrNotFound}, {k.ID, 201, 4, storage.ErrNotFound},
		{k.ID, 1_000_000_000_000, 4, storage.ErrNotFound}, {k.ID, 1 << 63, 4, storage.ErrNotFound},
		{"p:alice:nobody", 1, 1, storage.ErrNotFound},
		{k.ID, 110, 4, storage.ErrGone}, {k.ID, 111, 4, storage.ErrGone},
	} {
		bad := &storage.Change{Conversation: c.conversation, Seq: c.seq, ChangeSeq: c.changeSeq, TimeMS: 5, Labels: labels}
		good := other.React(1, fmt.Sprint("user", other.ChangeSeq()), "+1", true)
		good.Err = errors.New("left from before")
		if err := b.Changes.Apply(t.Context(), []*storage.Change{bad, good}); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(bad.Err, c.want) || good.Err != nil {
			t.Fatalf("change %d of seq %d: %v, want %v; the other: %v", c.changeSeq, c.seq, bad.Err, c.want, good.Err)
		}
		other.CheckChanges(t, b.Changes)
		k.CheckChanges(t, b.Changes)
	}
	NewTalk("p:alice:nobody").Check(t, b.Buckets, 0)
	allViews(t, b, k, "bob")
	allViews(t, b, other, "user0", "user5")
}

// testAppliedAgain: a change whose answer was lost and that is applied again changes nothing.
func testAppliedAgain(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(54)
	appendRuns(t, b.Buckets, k.Run(r, 5))
	for range 3 {
		c := k.React(2, fmt.Sprint("user", k.ChangeSeq()), "+1", true)
		apply(t, b.Changes, c)
		again := *c
		if err := b.Changes.Apply(t.Context(), []*storage.Change{&again}); err != nil || !errors.Is(again.Err, storage.ErrStale) {
			t.Fatalf("a change that is there: %v, %v", again.Err, err)
		}
		k.CheckChanges(t, b.Changes)
		allViews(t, b, k, "user1")
	}
}

// testLabelsSurviveAppends: labels, and what users deleted, stay where they are while the conversation goes on, over many buckets.
func testLabelsSurviveAppends(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(55)
	for _, n := range []int{1, 60, 38, 1, 1, 150, 7, 42} {
		appendRuns(t, b.Buckets, k.Run(r, n))
		for _, seq := range []uint64{k.Tail(), 1 + r.Uint64N(k.Tail())} {
			if c := k.Change(r, seq); c != nil {
				apply(t, b.Changes, c)
			}
			applyOwn(t, b.Directory, k.Own("bob", 0, seq))
		}
		allViews(t, b, k, "alice", "bob")
	}
	seqs := []uint64{300, 1, 99, 100, 101, 200, 201, 61, 62, 250, 251, 299, 10_086}
	k.CheckSlots(t, b.Buckets, "bob", seqs, k.Tail())
	slices.Reverse(seqs)
	k.CheckSlots(t, b.Buckets, "alice", seqs, k.Tail())
	k.Check(t, b.Buckets, k.Tail())
}

// testNotes: over many change buckets, from anywhere, and not further than asked for.
func testNotes(t *testing.T, b Backend) {
	k, r := Direct("alice", "bob"), seeded(56)
	appendRuns(t, b.Buckets, k.Run(r, 150))
	for i := range 260 {
		seq := uint64(1 + i%150)
		if i > 200 {
			seq = 7
		}
		apply(t, b.Changes, k.React(seq, fmt.Sprint("user", i), "+1", true))
	}
	for _, since := range []uint64{0, 1, 98, 99, 100, 101, 150, 199, 200, 201, 258, 259, 260, 261, 1_000_000_000_000} {
		k.CheckNotes(t, b.Changes, since)
	}
	k.CheckChanges(t, b.Changes)
	for limit := 1; limit < 20; limit++ {
		n := 0
		err := b.Changes.Notes(t.Context(), k.ID, 30, func(storage.Note) bool { n++; return n < limit })
		if err != nil || n != limit {
			t.Fatalf("the notes stopped at %d of %d: %v", n, limit, err)
		}
	}
}

// testReactors: 200 users react to one message, which names 64 of them; all of them see that they did. Half of them take it back, and some
// come again.
func testReactors(t *testing.T, b Backend) {
	const users = 200
	k := Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(seeded(57), 2))
	react := func(i int, on bool) {
		t.Helper()
		apply(t, b.Changes, k.React(2, fmt.Sprint("user", i), []string{"+1", "heart"}[i%2], on))
	}
	check := func() {
		t.Helper()
		for _, i := range []int{0, 1, 2, 62, 63, 64, 65, 66, 98, 99, 100, 198, 199, 200} {
			k.CheckSlots(t, b.Buckets, fmt.Sprint("user", i), []uint64{2, 1}, 2)
		}
		k.CheckSlots(t, b.Buckets, "", []uint64{2, 1}, 2)
	}
	for i := range users {
		react(i, true)
	}
	if v := k.View("user199", 2).Labels.Reactions; len(v[0].Users)+len(v[1].Users) != protocol.MaxReactors || v[1].Count != users/2 || !v[1].Mine {
		t.Fatalf("the model has %+v", v)
	}
	check()
	for i := range users / 2 {
		react(2*i+i%2, false)
	}
	check()
	for i := range 20 {
		react(2*i+i%2, true)
	}
	check()
}

// testCompetingChanges: many change one conversation, each on the number that it last saw. Each number is given once.
func testCompetingChanges(t *testing.T, b Backend) {
	const writers, each = 6, 15
	k := Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(seeded(58), writers))
	var mu sync.Mutex
	seqOf := make(map[uint64]uint64)
	var all sync.WaitGroup
	for w := range uint64(writers) {
		all.Go(func() {
			for n := 0; n < each; {
				last, err := b.Changes.ChangeSeq(context.Background(), k.ID)
				edit := &storage.Edit{ContentType: 1, Content: fmt.Appendf(nil, "%d by %d", last+1, w)}
				c := &storage.Change{Conversation: k.ID, Seq: w + 1, ChangeSeq: last + 1, TimeMS: int64(w), Labels: storage.Labels{Edit: edit}}
				if err == nil {
					err = b.Changes.Apply(context.Background(), []*storage.Change{c})
				}
				switch {
				case err != nil || c.Err != nil && !errors.Is(c.Err, storage.ErrStale):
					t.Error(err, c.Err)
					return
				case c.Err == nil:
					n++
					mu.Lock()
					if other, taken := seqOf[c.ChangeSeq]; taken {
						t.Errorf("change %d is of seqs %d and %d", c.ChangeSeq, other, c.Seq)
					}
					seqOf[c.ChangeSeq] = c.Seq
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	last, err := b.Changes.ChangeSeq(t.Context(), k.ID)
	if err != nil || last != writers*each || len(seqOf) != writers*each || t.Failed() {
		t.Fatalf("the latest change is %d, %d were made, %v", last, len(seqOf), err)
	}
	latest := make(map[uint64]uint64)
	err = b.Changes.Notes(t.Context(), k.ID, 0, func(n storage.Note) bool {
		if seqOf[n.ChangeSeq] != n.Seq || n.TimeMS != int64(n.Seq-1) {
			t.Errorf("%+v, which was made of seq %d", n, seqOf[n.ChangeSeq])
		}
		latest[n.Seq] = n.ChangeSeq
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Buckets.Read(t.Context(), storage.Range{Conversation: k.ID, From: 1, To: writers}, func(s *storage.Slot) bool {
		want := fmt.Sprintf("%d by %d", latest[s.Message.Seq], s.Message.Seq-1)
		if e := s.Labels.Edit; e == nil || string(e.Content) != want || s.Labels.ChangeSeq != latest[s.Message.Seq] {
			t.Errorf("seq %d has %s, want %s", s.Message.Seq, describe(&s.Labels), want)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// testLabelBeforeNote: whoever learns of a change, from the number, a note or an entry, can read it. Numbers do not fall.
func testLabelBeforeNote(t *testing.T, b Backend) {
	const messages, changes = 4, 80
	k := Direct("alice", "bob")
	appendRuns(t, b.Buckets, k.Run(seeded(59), messages))
	var looking sync.WaitGroup
	done := make(chan struct{})
	for _, since := range []uint64{0, changes / 2} {
		looking.Go(func() {
			for seen := uint64(0); !isClosed(done) && !t.Failed(); {
				seen = lookAtChanges(t, b, k.ID, since, seen)
			}
		})
	}
	for n := range uint64(changes) {
		edit := &storage.Edit{ContentType: 1, Content: fmt.Append(nil, n+1), TimeMS: int64(n + 1)}
		apply(t, b.Changes, k.add(1+n%messages, storage.Labels{Edit: edit}))
	}
	close(done)
	looking.Wait()
	k.CheckChanges(t, b.Changes)
}

// lookAtChanges reads the number of the latest change, the notes, and the messages that they are of.
func lookAtChanges(t *testing.T, b Backend, conversation string, since, seen uint64) uint64 {
	last, err := b.Changes.ChangeSeq(context.Background(), conversation)
	if err != nil || last < seen {
		t.Errorf("the latest change is %d, before it was %d, %v", last, seen, err)
		return seen
	}
	var notes []storage.Note
	err = b.Changes.Notes(context.Background(), conversation, since, func(n storage.Note) bool {
		notes = append(notes, n)
		return true
	})
	if err != nil || last > since && (len(notes) == 0 || notes[len(notes)-1].ChangeSeq < last) {
		t.Errorf("the latest change is %d, the notes since %d are %v, %v", last, since, notes, err)
	}
	for _, n := range notes {
		last = max(last, n.ChangeSeq)
		err := b.Buckets.Slots(context.Background(), conversation, "bob", []uint64{n.Seq}, func(s *storage.Slot) bool {
			if l := &s.Labels; l.ChangeSeq < n.ChangeSeq || l.Edit == nil || l.Edit.TimeMS != int64(l.ChangeSeq) {
				t.Errorf("after %+v the message has %s", n, describe(l))
			}
			return true
		})
		if err != nil {
			t.Error(err)
		}
	}
	return last
}

// testChangesInEntries: a change is on the lists of both sides, and makes the entry a changed one.
func testChangesInEntries(t *testing.T, b Backend) {
	r := seeded(60)
	k, group := Direct("alice", "bob"), NewTalk("g:friends", "alice", "bob", "carol")
	appendRuns(t, b.Buckets, k.Run(r, 3), group.Run(r, 3))
	_, upTo := list(t, b.Directory, "alice", 0)
	for n := range uint64(5) {
		for _, k := range []*Talk{k, group} {
			was := entry(t, b.Directory, "alice", k.ID)
			apply(t, b.Changes, k.React(1+n%3, "bob", "+1", n < 3))
			for _, user := range k.Members {
				e := entry(t, b.Directory, user, k.ID)
				if e.ChangeSeq != n+1 || e.State != was.State {
					t.Fatalf("after change %d %s has %+v, before %+v", n+1, user, e, was)
				}
				if user == "alice" && !b.later(e.Changed, was.Changed) {
					t.Fatalf("%+v changed no later than %+v", e, was)
				}
			}
			changed, next := list(t, b.Directory, "alice", upTo)
			if e, ok := changed[k.ID]; !ok || e.ChangeSeq != n+1 {
				t.Fatalf("changed since %d: %+v", upTo, changed)
			}
			upTo = next
		}
	}
	appendRuns(t, b.Buckets, k.Run(r, 1))
	if e := entry(t, b.Directory, "bob", k.ID); e.ChangeSeq != 5 || e.State.Tail != 4 {
		t.Fatalf("after a message there is %+v", e)
	}
}

// testRandomChanges is a random history of appends and changes against the model.
func testRandomChanges(t *testing.T, b Backend) {
	r := seeded(61)
	var talks []*Talk
	for i := range 5 {
		talks = append(talks, Direct("user", fmt.Sprint("peer", i)))
	}
	for range 60 {
		var runs []*storage.Run
		var changes []*storage.Change
		for _, i := range r.Perm(len(talks))[:1+r.IntN(len(talks))] {
			runs = append(runs, talks[i].Run(r, 1+r.IntN(1+r.IntN(30))))
		}
		appendRuns(t, b.Buckets, runs...)
		for _, k := range talks {
			if k.Tail() == 0 {
				continue
			}
			if c := k.Change(r, 1+r.Uint64N(k.Tail())); c != nil {
				changes = append(changes, c)
			}
		}
		apply(t, b.Changes, changes...)
		k := talks[r.IntN(len(talks))]
		from, viewer := 1+r.Uint64N(k.Tail()+3), fmt.Sprint("fan", r.IntN(90))
		k.CheckRange(t, b.Buckets, storage.Range{Viewer: viewer, From: from, To: from + r.Uint64N(120), NewestFirst: r.IntN(2) == 0}, k.Tail())
		k.CheckChanges(t, b.Changes)
	}
	for _, k := range talks {
		allViews(t, b, k, "fan1", "fan50")
		k.Check(t, b.Buckets, k.Tail())
	}
}
