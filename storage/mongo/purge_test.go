package mongo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
	"github.com/parley-im/parley/storage/storagetest"
)

// purge purges and holds how many were against want.
func purge(tb testing.TB, s *Store, conversation string, from, to, want uint64) {
	tb.Helper()
	if n, err := s.Purge(context.Background(), conversation, from, to); n != want || err != nil {
		tb.Fatalf("purged %d of [%d, %d], want %d: %v", n, from, to, want, err)
	}
}

// TestPurgeBeside: what lies beside the slots of purged messages goes with them, and nothing else does.
func TestPurgeBeside(t *testing.T) {
	t.Parallel()
	s, k := openStore(t), storagetest.NewTalk("g:friends", users(70)...)
	near := storagetest.NewTalk("g:friends2", users(70)...)
	appendRuns(t, s, k.Run(seeded(20), 220), near.Run(seeded(21), 10))
	var owns []*storage.Own
	for _, user := range k.Members {
		owns = append(owns, &storage.Own{User: user, Conversation: k.ID, Hide: []uint64{5, 105, 205}}, &storage.Own{User: user, Conversation: near.ID, Hide: []uint64{5}})
	}
	if err := s.ApplyOwn(t.Context(), owns); err != nil {
		t.Fatal(err)
	}
	reaction := []storage.Reaction{{Kind: "+1", Count: 2, Users: []string{"alice"}}}
	for n, seq := range []uint64{6, 106} {
		c := &storage.Change{Conversation: k.ID, Seq: seq, ChangeSeq: uint64(n + 1), TimeMS: 1, Labels: storage.Labels{Reactions: reaction}}
		c.Reactor = &storage.Reactor{User: "user000069", Reaction: "+1", On: true}
		apply(t, s, c)
	}
	beside := func(hidden, reactors, count uint64) {
		t.Helper()
		in, err := s.Inspect(t.Context(), k.ID, nil)
		n, err2 := s.hidden.CountDocuments(t.Context(), besideOf(k.ID))
		m, err3 := s.reactors.CountDocuments(t.Context(), besideOf(k.ID))
		if err := errors.Join(err, err2, err3); err != nil || uint64(n) != hidden || uint64(m) != reactors || in.Rows[69].Hidden != count {
			t.Fatalf("%d and %d bitmaps, %d hidden, want %d, %d and %d; %v", n, m, in.Rows[69].Hidden, hidden, reactors, count, err)
		}
		if n, err := s.hidden.CountDocuments(t.Context(), besideOf(near.ID)); n != 6 || err != nil {
			t.Fatalf("%d bitmaps of the other conversation, %v", n, err)
		}
	}
	beside(6, 1, 3)
	purge(t, s, k.ID, 1, 100, 100)
	beside(6, 1, 2)
	purge(t, s, k.ID, 50, 150, 50)
	beside(6, 0, 1)
	purge(t, s, k.ID, 1, 220, 70)
	beside(0, 0, 0)
	if got := hiddenFor(t, s, near.ID, "user000069", 10); len(got) != 1 {
		t.Fatalf("hidden in the other conversation: %v", got)
	}
	if v := sound(t, s); v.Gone != 220 || v.Messages != 230 {
		t.Fatalf("verified %+v", v)
	}
}

// TestPurgeKeepsDocuments: no document is deleted, and the bytes are gone from them.
func TestPurgeKeepsDocuments(t *testing.T) {
	t.Parallel()
	s, k := openStore(t), storagetest.Direct("alice", "bob")
	appendRuns(t, s, k.Run(seeded(22), 250))
	purge(t, s, k.ID, 1, 250, 250)
	for n := range 3 {
		raw, err := s.buckets.FindOne(t.Context(), bson.D{{Key: "_id", Value: fmt.Sprint(k.ID, ":", n)}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		slots, err := raw.Lookup("slots").Array().Values()
		if err != nil || len(slots) != 100 {
			t.Fatalf("%d slots, %v", len(slots), err)
		}
		for i, v := range slots {
			elements, err := v.Document().Elements()
			if err != nil || n < 2 && len(elements) != 4 || n == 2 && i < 50 && len(elements) != 4 || n == 2 && i >= 50 && len(elements) != 0 {
				t.Fatalf("slot %d of %d: %v, %v", i, n, v, err)
			}
		}
	}
	appendRuns(t, s, k.Run(seeded(23), 60))
	purge(t, s, k.ID, 1, 310, 60)
	sound(t, s)
}

// TestPurgeAgainIsQuick: a retention that comes by again does not look at what is gone.
func TestPurgeAgainIsQuick(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.Direct("alice", "bob")
	r := seeded(24)
	for range 6 {
		appendRuns(t, s, k.Run(r, 1000))
	}
	purge(t, s, k.ID, 1, 5950, 5950)
	proxy.ResetCounts()
	purge(t, s, k.ID, 1, 5950, 0)
	if n := proxy.Count("", "").Commands; n > 2 {
		t.Fatalf("that were %d commands: %v", n, proxy.Names())
	}
	purge(t, s, k.ID, 1, 6000, 50)
	purge(t, s, k.ID, 5000, 6000, 0)
	last, err := s.LastBefore(t.Context(), k.ID, 1<<60)
	if err != nil || last != 6000 {
		t.Fatalf("the last before the end of time is %d, %v", last, err)
	}
}

// TestPurgeWhileItIsUsed: messages, labels and deletions arrive while everything up to the tail is purged again and again by two at once. Each
// message is counted once, none comes back, and the numbers go on.
func TestPurgeWhileItIsUsed(t *testing.T) {
	t.Parallel()
	const rounds = 40
	s, k := openStore(t), storagetest.NewTalk("g:friends", users(70)...)
	r := seeded(25)
	appendRuns(t, s, k.Run(r, 30))
	runs := make([]*storage.Run, rounds)
	for i := range runs {
		runs[i] = k.Run(r, 1+r.IntN(12))
	}
	done := make(chan struct{})
	var writing, purging sync.WaitGroup
	writing.Go(func() {
		for _, run := range runs {
			c, err := s.Append(context.Background(), []*storage.Run{run})
			if err == nil {
				err = c.Wait()
			}
			if err := errors.Join(err, run.Err); err != nil {
				t.Error(err)
			}
		}
	})
	writing.Go(func() {
		number := uint64(1)
		for range rounds {
			state, err := s.State(context.Background(), k.ID)
			c := revokeOf(k.ID, state.Tail, number)
			if err == nil {
				err = s.Apply(context.Background(), []*storage.Change{c})
			}
			if err != nil || c.Err != nil && !errors.Is(c.Err, storage.ErrGone) {
				t.Error(err, c.Err)
				return
			}
			if c.Err == nil {
				number++
			}
		}
	})
	writing.Go(func() {
		for i := range rounds {
			state, err := s.State(context.Background(), k.ID)
			var owns []*storage.Own
			for _, user := range k.Members[:66+i%4] {
				owns = append(owns, &storage.Own{User: user, Conversation: k.ID, Hide: []uint64{state.Tail, state.Tail - 1}})
			}
			if err == nil {
				err = s.ApplyOwn(context.Background(), owns)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	purged := make([]uint64, 2)
	for i := range purged {
		purging.Go(func() {
			for last := false; !last; {
				last = isClosed(done)
				state, err := s.State(context.Background(), k.ID)
				if err != nil {
					t.Error(err)
				}
				n, err := s.Purge(context.Background(), k.ID, 1, state.Tail)
				if err != nil {
					t.Error(err)
				}
				purged[i] += n
			}
		})
	}
	go func() { writing.Wait(); close(done) }()
	purging.Wait()
	<-done
	if total := purged[0] + purged[1]; total != k.Tail() {
		t.Fatalf("%v were purged of %d", purged, k.Tail())
	}
	if v := sound(t, s); v.Gone != k.Tail() {
		t.Fatalf("verified %+v", v)
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// TestPurgeUnderFaults fails every command of a purge in every way: everything is gone.
func TestPurgeUnderFaults(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.NewTalk("g:friends", users(66)...)
	appendRuns(t, s, k.Run(seeded(26), 200))
	var odd []uint64
	for seq := uint64(1); seq <= 200; seq++ {
		odd = append(odd, seq)
	}
	var owns []*storage.Own
	for _, user := range k.Members {
		owns = append(owns, &storage.Own{User: user, Conversation: k.ID, Hide: odd})
	}
	if err := s.ApplyOwn(t.Context(), owns); err != nil {
		t.Fatal(err)
	}
	commands := []struct{ command, collection string }{{"find", "buckets"}, {"update", "buckets"}, {"find", "hidden"}, {"update", "hidden"}}
	seq := uint64(0)
	for _, c := range commands {
		for name, f := range faults() {
			t.Run(fmt.Sprint(c.command, " ", c.collection, " ", name), func(t *testing.T) {
				seq += 5
				rule := proxy.On(wiretest.Match{Command: c.command, Collection: c.collection, Times: 1}, f)
				_, err := s.Purge(t.Context(), k.ID, seq-4, seq)
				if rule.Remove(); rule.Hits() != 1 {
					t.Fatal("the command was not sent")
				}
				if errors.Is(err, storage.ErrUnavailable) && c.command == "find" { // a read that is not tried again
					_, err = s.Purge(t.Context(), k.ID, seq-4, seq)
				}
				if err != nil || !slotOf(t, s, k.ID, "", seq).Labels.Gone || slotOf(t, s, k.ID, "", seq+1).Labels.Gone {
					t.Fatalf("purged up to %d: %v", seq, err)
				}
			})
		}
	}
	if v := sound(t, s); v.Gone != seq {
		t.Fatalf("verified %+v, want %d to be gone", v, seq)
	}
}
