package mongo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
	"github.com/parley-im/parley/storage/storagetest"
)

func seeded(a uint64) *rand.Rand { return rand.New(rand.NewPCG(a, 43)) }

// appendRuns stores runs and waits.
func appendRuns(tb testing.TB, s *Store, runs ...*storage.Run) {
	tb.Helper()
	c, err := s.Append(context.Background(), runs)
	if err == nil {
		err = c.Wait()
	}
	for _, r := range runs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// slotOf reads one message as a viewer.
func slotOf(tb testing.TB, s *Store, conversation, viewer string, seq uint64) *storage.Slot {
	tb.Helper()
	var got *storage.Slot
	err := s.Slots(context.Background(), conversation, viewer, []uint64{seq}, func(slot *storage.Slot) bool { got = slot; return true })
	if err != nil || got == nil {
		tb.Fatalf("%s, seq %d for %q: %v, %v", conversation, seq, viewer, got, err)
	}
	return got
}

// revokeOf is the change that revokes a message.
func revokeOf(conversation string, seq, number uint64) *storage.Change {
	r := &protocol.Revoke{User: "alice", Role: protocol.RoleSender, TimeMS: int64(number)}
	return &storage.Change{Conversation: conversation, Seq: seq, ChangeSeq: number, TimeMS: int64(number), Labels: storage.Labels{Revoke: r}}
}

// apply stores changes that must be taken.
func apply(tb testing.TB, s *Store, changes ...*storage.Change) {
	tb.Helper()
	err := s.Apply(context.Background(), changes)
	for _, c := range changes {
		err = errors.Join(err, c.Err)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// notesOf are the changes of a conversation.
func notesOf(tb testing.TB, s *Store, conversation string, since uint64) (notes []storage.Note) {
	tb.Helper()
	err := s.Notes(context.Background(), conversation, since, func(n storage.Note) bool { notes = append(notes, n); return true })
	if err != nil {
		tb.Fatal(err)
	}
	return notes
}

// sound fails for every fault that Verify finds.
func sound(tb testing.TB, s *Store) storage.Verified {
	tb.Helper()
	v, err := s.Verify(context.Background(), func(f storage.Fault) { tb.Errorf("fault: %+v", f) }, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// wantChange holds a conversation whose latest change was c against it.
func wantChange(tb testing.TB, s *Store, c *storage.Change) {
	tb.Helper()
	if n, err := s.ChangeSeq(context.Background(), c.Conversation); err != nil || n != c.ChangeSeq {
		tb.Fatalf("change %d: the latest is %d, %v", c.ChangeSeq, n, err)
	}
	want := storage.Note{ChangeSeq: c.ChangeSeq, Seq: c.Seq, TimeMS: c.TimeMS}
	if got := notesOf(tb, s, c.Conversation, c.ChangeSeq-1); len(got) != 1 || got[0] != want {
		tb.Fatalf("notes %+v, want %+v", got, want)
	}
	l := slotOf(tb, s, c.Conversation, "", c.Seq).Labels
	if l.ChangeSeq != c.ChangeSeq || (l.Revoke == nil) != (c.Labels.Revoke == nil) || len(l.Reactions) != len(c.Labels.Reactions) {
		tb.Fatalf("labels %+v, want %+v", l, c.Labels)
	}
}

// TestChangeBuckets: 250 changes of 7 messages lie in three change buckets, of which one is flagged as the newest, or two for a moment.
func TestChangeBuckets(t *testing.T) {
	t.Parallel()
	s, k := openStore(t), storagetest.Direct("alice", "bob")
	appendRuns(t, s, k.Run(seeded(1), 7))
	for n := uint64(1); n <= 250; n++ {
		c := revokeOf(k.ID, 1+n%7, n)
		apply(t, s, c)
		if n%25 == 1 {
			wantChange(t, s, c)
		}
	}
	for _, since := range []uint64{0, 1, 98, 99, 100, 101, 199, 249, 250, 251, 300, 10_086, protocol.MaxInt} {
		notes := notesOf(t, s, k.ID, since)
		if want := max(250-int64(min(since, 250)), 0); int64(len(notes)) != want {
			t.Fatalf("since %d: %d notes, want %d", since, len(notes), want)
		}
		for i, n := range notes {
			if number := since + 1 + uint64(i); n != (storage.Note{ChangeSeq: number, Seq: 1 + number%7, TimeMS: int64(number)}) {
				t.Fatalf("since %d: note %+v", since, n)
			}
		}
	}
	var flagged []changeHead
	if err := all(t.Context(), s.changes, bson.D{{Key: "conv", Value: k.ID}, {Key: "newest", Value: true}}, nil, &flagged); err != nil || len(flagged) != 1 || flagged[0].N != 2 {
		t.Fatalf("flagged: %+v, %v", flagged, err)
	}
	if v := sound(t, s); v.Changes != 250 || v.Messages != 7 {
		t.Fatalf("verified %+v", v)
	}
}

// TestApplyRefuses: what is refused leaves nothing behind, alone among others.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	r := seeded(2)
	k, other := storagetest.Direct("alice", "bob"), storagetest.Direct("alice", "carol")
	appendRuns(t, s, k.Run(r, 120), other.Run(r, 1))
	if n, err := s.Purge(t.Context(), k.ID, 5, 5); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	apply(t, s, revokeOf(k.ID, 2, 1))
	for i, bad := range []struct {
		seq, number uint64
		err         error
	}{
		{3, 1, storage.ErrStale}, {3, 3, storage.ErrStale}, {3, 0, storage.ErrStale}, {2, 1, storage.ErrStale},
		{0, 2, storage.ErrNotFound}, {121, 2, storage.ErrNotFound}, {201, 2, storage.ErrNotFound}, {1e12, 2, storage.ErrNotFound}, {1 << 63, 2, storage.ErrNotFound},
		{5, 2, storage.ErrGone},
	} {
		c, good := revokeOf(k.ID, bad.seq, bad.number), revokeOf(other.ID, 1, uint64(i+1))
		c.Reactor = &storage.Reactor{User: "dave", Reaction: "+1", On: true}
		good.Err = errors.New("left from before")
		if err := s.Apply(t.Context(), []*storage.Change{c, good}); err != nil || !errors.Is(c.Err, bad.err) || good.Err != nil {
			t.Fatalf("%+v: %v, %v; the other: %v", bad, c.Err, err, good.Err)
		}
		if n, err := s.ChangeSeq(t.Context(), k.ID); n != 1 || err != nil {
			t.Fatalf("%+v: the latest change is %d, %v", bad, n, err)
		}
		if l := slotOf(t, s, k.ID, "", 3).Labels; l.Revoke != nil || l.ChangeSeq != 0 {
			t.Fatalf("%+v: labels %+v", bad, l)
		}
	}
	if n, err := s.reactors.CountDocuments(t.Context(), bson.D{}); n != 0 || err != nil {
		t.Fatalf("%d bitmaps, %v", n, err)
	}
	if err := s.Apply(t.Context(), []*storage.Change{revokeOf(k.ID, 3, 2), revokeOf(k.ID, 4, 2)}); err == nil {
		t.Fatal("two changes of a conversation at once")
	}
	sound(t, s)
}

// TestOlderChangeNeverWins: a change that was decided before the label that is there changes nothing, whatever the notes say.
func TestOlderChangeNeverWins(t *testing.T) {
	t.Parallel()
	s, k := openStore(t), storagetest.Direct("alice", "bob")
	appendRuns(t, s, k.Run(seeded(3), 3))
	for n := uint64(1); n <= 3; n++ {
		apply(t, s, revokeOf(k.ID, 2, n))
	}
	// As if another process had not seen the last two notes.
	back := bson.D{{Key: "$set", Value: bson.D{{Key: "tail", Value: 1}}}}
	if _, err := s.changes.UpdateOne(t.Context(), bson.D{{Key: "conv", Value: k.ID}}, back); err != nil {
		t.Fatal(err)
	}
	c := &storage.Change{Conversation: k.ID, Seq: 2, ChangeSeq: 2}
	if err := s.Apply(t.Context(), []*storage.Change{c}); err != nil || !errors.Is(c.Err, storage.ErrStale) {
		t.Fatalf("%v, %v", c.Err, err)
	}
	if l := slotOf(t, s, k.ID, "", 2).Labels; l.ChangeSeq != 3 || l.Revoke == nil {
		t.Fatalf("labels %+v", l)
	}
}

// TestReactorsOlderNeverWins: the same for who reacted.
func TestReactorsOlderNeverWins(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	id := reactedBy("dave", "g:x", "+1\n2").id(7)
	step := func(e bitEdit, want bool) {
		t.Helper()
		if err := s.changeBits(t.Context(), s.reactors, map[string]bitEdit{id: e}); err != nil {
			t.Fatal(err)
		}
		got, err := s.reactedSeqs(t.Context(), "g:x", "dave", []reactedTo{{7, "+1\n2"}, {8, "+1\n2"}, {7, "+1"}})
		if err != nil || got[reactedTo{7, "+1\n2"}] != want || got[reactedTo{8, "+1\n2"}] || got[reactedTo{7, "+1"}] {
			t.Fatalf("%+v, %v, want %t", got, err, want)
		}
	}
	step(bitEdit{at: 5, add: []uint32{7}}, true)
	step(bitEdit{at: 4, remove: []uint32{7}}, true)
	step(bitEdit{at: 6, remove: []uint32{7}}, false)
	step(bitEdit{at: 5, add: []uint32{7}}, false)
	step(bitEdit{at: 6, remove: []uint32{7}}, false)
	step(bitEdit{at: 7, add: []uint32{7}}, true)
}

// TestCrashBetweenLabelAndNote: the label is there, the note is not; the same change again makes it whole.
func TestCrashBetweenLabelAndNote(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.Direct("alice", "bob")
	appendRuns(t, s, k.Run(seeded(4), 3))
	for n := uint64(1); n <= 101; n += 50 { // an insert of a change bucket, an update, the insert of the next
		rule := proxy.On(wiretest.Match{Command: "update", Collection: "changes", Times: 1}, wiretest.Fail(13))
		c := revokeOf(k.ID, 2, n)
		c.Reactor = &storage.Reactor{User: "dave", Reaction: "+1", On: true}
		if err := s.Apply(t.Context(), []*storage.Change{c}); err == nil || rule.Hits() != 1 {
			t.Fatalf("not authorized, and yet %v", err)
		}
		if l := slotOf(t, s, k.ID, "", 2).Labels; l.ChangeSeq != n {
			t.Fatalf("labels %+v", l)
		}
		if got, err := s.ChangeSeq(t.Context(), k.ID); err != nil || got != n-1 {
			t.Fatalf("the latest change is %d, %v", got, err)
		}
		apply(t, s, c)
		wantChange(t, s, c)
		for m := n + 1; m < n+50; m++ {
			apply(t, s, revokeOf(k.ID, 1, m))
		}
	}
}

// TestChangesUnderFaults fails every command of an Apply in every way: the change is there, once.
func TestChangesUnderFaults(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.NewTalk("g:friends", "alice", "bob", "carol")
	appendRuns(t, s, k.Run(seeded(5), 150))
	commands := []struct{ command, collection string }{
		{"find", "changes"}, {"find", "buckets"}, {"find", "reactors"}, {"insert", "reactors"}, {"update", "reactors"}, {"update", "buckets"}, {"update", "changes"},
	}
	number := uint64(0)
	for _, c := range commands {
		for name, f := range faults() {
			t.Run(fmt.Sprint(c.command, " ", c.collection, " ", name), func(t *testing.T) {
				for range 2 { // the second is in the middle of a change bucket
					number++
					ch := revokeOf(k.ID, 1+number*37%150, number)
					if ch.Labels.Revoke = nil; number%2 == 0 {
						ch.Labels.Reactions = []storage.Reaction{{Kind: "+1", Count: 3, Users: []string{"alice"}}}
					}
					user := "bob"
					if c.command == "insert" {
						user = fmt.Sprint("bob", number)
					}
					ch.Reactor = &storage.Reactor{User: user, Reaction: "+1", On: true}
					rule := proxy.On(wiretest.Match{Command: c.command, Collection: c.collection, Times: 1}, f)
					apply(t, s, ch)
					rule.Remove()
					if rule.Hits() == 0 && (c.command != "insert" && c.command != "update" || c.collection != "reactors") {
						t.Fatal("the command was not sent")
					}
					wantChange(t, s, ch)
				}
			})
		}
	}
	if v := sound(t, s); v.Changes != number {
		t.Fatalf("verified %+v after %d changes", v, number)
	}
}

// faults are the ways in which a command fails that pass.
func faults() map[string]wiretest.Action {
	const label = "RetryableWriteError"
	return map[string]wiretest.Action{
		"cut before":             wiretest.CutBefore(),
		"reply lost":             wiretest.DropReply(),
		"shutting down":          wiretest.Fail(91, label),
		"stepped down":           wiretest.Fail(189, label),
		"stepped down, no label": wiretest.Fail(189),
		"applied, stepped down":  wiretest.FailAfter(189),
		"applied, shutting down": wiretest.FailAfter(91, label),
		"time limit":             wiretest.FailAfter(50),
	}
}

// TestCompetingChanges: many apply changes of one conversation, each on what it last saw. Who is not refused has the number, and who is left nothing.
func TestCompetingChanges(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 15
	s, k := openStore(t), storagetest.Direct("alice", "bob")
	appendRuns(t, s, k.Run(seeded(6), writers))
	done := make(chan map[uint64]uint64, writers)
	for w := range uint64(writers) {
		go func() {
			won := make(map[uint64]uint64)
			for len(won) < each && !t.Failed() {
				n, err := s.ChangeSeq(context.Background(), k.ID)
				if err != nil {
					t.Error(err)
				}
				c := revokeOf(k.ID, w+1, n+1)
				if err := s.Apply(context.Background(), []*storage.Change{c}); err != nil || c.Err != nil && !errors.Is(c.Err, storage.ErrStale) {
					t.Error(err, c.Err)
				}
				if c.Err == nil {
					won[n+1] = w + 1
				}
			}
			done <- won
		}()
	}
	owner := make(map[uint64]uint64)
	for range writers {
		for number, seq := range <-done {
			if owner[number] != 0 {
				t.Errorf("change %d was given twice", number)
			}
			owner[number] = seq
		}
	}
	notes := notesOf(t, s, k.ID, 0)
	if len(notes) != writers*each || slices.ContainsFunc(notes, func(n storage.Note) bool { return owner[n.ChangeSeq] != n.Seq }) {
		t.Fatalf("%d notes: %+v; won %v", len(notes), notes, owner)
	}
	sound(t, s)
}

// TestSlowWriteIsStampedAgain: a device that went on while a write was under way still gets what it changed.
func TestSlowWriteIsStampedAgain(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.Direct("alice", "bob")
	appendRuns(t, s, k.Run(seeded(7), 3))
	s.settle = 100 * time.Millisecond
	writes := map[string]func() error{
		"changes": func() error { return s.Apply(context.Background(), []*storage.Change{revokeOf(k.ID, 2, 1)}) },
		"rows": func() error {
			return s.ApplyOwn(context.Background(), []*storage.Own{{User: "alice", Conversation: k.ID, MinSeq: 2}})
		},
		"read": func() error { _, _, err := s.RaiseRead(context.Background(), "bob", k.ID, 2, 1); return err },
	}
	for name, write := range writes {
		match := wiretest.Match{Command: "update", Collection: name, Times: 1}
		if name == "read" {
			match = wiretest.Match{Command: "findAndModify", Collection: "rows", Times: 1}
		}
		gate := wiretest.NewGate()
		proxy.On(match, gate.After)
		done := make(chan error)
		go func() { done <- write() }()
		<-gate.Reached()
		// The device looks, again and again, until what it goes on from is above the stamp of the write.
		began, err := s.clock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var upTo storage.Stamp
		for upTo <= storage.Stamp(began.UnixMilli()) {
			if _, upTo, err = s.Changed(t.Context(), "alice", 0); err != nil {
				t.Fatal(err)
			}
		}
		gate.Open()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		entries, _, err := s.Changed(t.Context(), "alice", upTo)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%s: since %d there is %+v, %v", name, upTo, entries, err)
		}
	}
}
