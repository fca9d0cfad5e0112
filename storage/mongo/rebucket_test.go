package mongo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
	"github.com/parley-im/parley/storage/storagetest"
)

// checkTalk holds all of a conversation against its model, as it was moved to buckets of size.
func checkTalk(tb testing.TB, s *Store, k *storagetest.Talk, viewers ...string) {
	tb.Helper()
	k.Check(tb, s, k.Tail())
	k.CheckChanges(tb, s)
	for _, viewer := range viewers {
		for _, newestFirst := range []bool{false, true} {
			q := storage.Range{Conversation: k.ID, Viewer: viewer, From: 1, To: k.Tail(), NewestFirst: newestFirst, Expect: 20}
			k.CheckRange(tb, s, q, k.Tail())
		}
	}
}

// checkLayout holds the documents against the layout that they should be in, the move being over.
func checkLayout(tb testing.TB, s *Store, conversation string, size int) {
	tb.Helper()
	h, err := s.loadHome(context.Background(), conversation)
	if err != nil || h != settled(h.now) || h.now.layout != size {
		tb.Fatalf("%s is at %+v, want size %d: %v", conversation, h, size, err)
	}
	var docs []bucket
	if err := all(context.Background(), s.buckets, bson.D{{Key: "conv", Value: conversation}}, nil, &docs); err != nil {
		tb.Fatal(err)
	}
	flagged := 0
	for _, d := range docs {
		if d.Newest {
			flagged++
		}
		here := d.place() == h.now
		if here == d.Sealed || here && len(d.Slots) != size || !here && len(d.Slots) != 0 {
			tb.Fatalf("%s has %d slots, sealed: %t, and the conversation is in %+v", d.ID, len(d.Slots), d.Sealed, h.now)
		}
	}
	if flagged != 1 {
		tb.Fatalf("%d buckets of %s are flagged as the newest", flagged, conversation)
	}
}

// TestRebucket moves conversations of all lengths from size to size, and back. A store that has slept since before still reads, labels and
// appends, and makes no bucket of its own.
func TestRebucket(t *testing.T) {
	uri := mongotest.Database(t)
	small := func(o *Options) { o.MaxBody = 24 << 10 }
	s, sleeper := openAt(t, uri, small), openAt(t, uri, small)
	for _, n := range []int{1, 37, 100, 101, 200} {
		r, k := seeded(uint64(n)), storagetest.Direct("alice", fmt.Sprint("bob", n))
		appendRuns(t, sleeper, k.Run(r, n))
		checkTalk(t, sleeper, k)
		for i, size := range []int{37, 100, 250, 60, 100} {
			var steps []uint64
			if err := s.Rebucket(t.Context(), k.ID, size, func(done, total uint64) { steps = append(steps, done, total) }); err != nil {
				t.Fatal(err)
			}
			if len(steps) == 0 || steps[len(steps)-2] != k.Tail() || steps[len(steps)-1] != k.Tail() {
				t.Fatalf("%d messages to %d: progress %v", k.Tail(), size, steps)
			}
			checkLayout(t, s, k.ID, size)
			if i%2 == 0 { // otherwise it sleeps through two moves
				if change := k.Change(r, 1+r.Uint64N(k.Tail())); change != nil {
					apply(t, sleeper, change)
				}
				if err := sleeper.ApplyOwn(t.Context(), []*storage.Own{k.Own("alice", 0, 1+r.Uint64N(k.Tail()))}); err != nil {
					t.Fatal(err)
				}
				appendRuns(t, sleeper, k.Run(r, 1+r.IntN(3)))
			}
			checkTalk(t, s, k, "alice", "bob")
			checkTalk(t, sleeper, k, "alice", "bob")
		}
		if err := s.Rebucket(t.Context(), k.ID, 100, func(uint64, uint64) { t.Error("it has that size already") }); err != nil {
			t.Fatal(err)
		}
	}
	sound(t, s)
}

func TestRebucketRefuses(t *testing.T) {
	s := openStore(t)
	if err := s.Rebucket(t.Context(), "p:no:body", 50, nil); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("no such conversation: %v", err)
	}
	k := storagetest.Direct("alice", "bob")
	appendRuns(t, s, k.Run(seeded(1), 3))
	for _, size := range []int{-1, 0, 118, 100_000} {
		if err := s.Rebucket(t.Context(), k.ID, size, nil); err == nil {
			t.Fatalf("size %d was taken", size)
		}
	}
	stop, cancel := context.WithCancel(t.Context())
	proxy := wiretest.Start(t, s.o.URI)
	proxy.On(wiretest.Match{Command: "update", Collection: "buckets"}, wiretest.Do(func(*wiretest.Command) { cancel() }))
	if err := openAt(t, proxy.URI()).Rebucket(stop, k.ID, 50, nil); err == nil {
		t.Fatal("it was not stopped")
	}
	if err := s.Rebucket(t.Context(), k.ID, 60, nil); err == nil {
		t.Fatal("it is on its way to 50, and went to 60")
	}
	if err := s.Rebucket(t.Context(), k.ID, 50, nil); err != nil {
		t.Fatal(err)
	}
	checkLayout(t, s, k.ID, 50)
	checkTalk(t, s, k)
}

// TestRebucketInUse moves a conversation from size to size while messages, changes and deletions arrive and others read, and kills the copier again and
// again: by ending its context, by cutting its connection, and by losing replies, at random. Now and then two copiers run.
func TestRebucketInUse(t *testing.T) {
	uri := mongotest.Database(t)
	writer, reader := openAt(t, uri), openAt(t, uri)
	r, k := seeded(77), storagetest.Direct("alice", "bob")
	appendRuns(t, writer, k.Run(r, 95))

	var mu sync.Mutex // of k
	moving := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for n := 0; !t.Failed(); n++ {
			select {
			case <-moving:
				return
			default:
			}
			mu.Lock()
			disturb(t, writer, r, k)
			mu.Unlock()
		}
	})
	others.Go(func() {
		for seen := uint64(0); !t.Failed(); {
			select {
			case <-moving:
				return
			default:
			}
			seen = readWhole(t, reader, k.ID, seen)
		}
	})
	moveUntil(t, uri, k.ID)
	close(moving)
	others.Wait()
	if t.Failed() {
		return
	}
	checkTalk(t, reader, k, "alice", "bob")
	sound(t, reader)
}

// disturb is a random write: a message that ends or starts a bucket as likely as any, a change or a deletion.
func disturb(t *testing.T, s *Store, r *rand.Rand, k *storagetest.Talk) {
	switch r.IntN(4) {
	case 0:
		if change := k.Change(r, 1+r.Uint64N(k.Tail())); change != nil {
			if err := s.Apply(context.Background(), []*storage.Change{change}); err != nil || change.Err != nil {
				t.Errorf("change %d: %v, %v", change.ChangeSeq, err, change.Err)
			}
		}
	case 1:
		own := k.Own([]string{"alice", "bob"}[r.IntN(2)], 0, 1+r.Uint64N(k.Tail()), k.Tail())
		if err := s.ApplyOwn(context.Background(), []*storage.Own{own}); err != nil {
			t.Errorf("delete %v: %v", own.Hide, err)
		}
	default:
		run := k.Run(r, 1+r.IntN(3))
		c, err := s.Append(context.Background(), []*storage.Run{run})
		if err == nil {
			err = c.Wait()
		}
		if err = errors.Join(err, run.Err); err != nil {
			t.Errorf("append %d: %v", run.First, err)
		}
	}
}

// readWhole reads a conversation from both ends, finds no hole, and returns how far it went.
func readWhole(t *testing.T, s *Store, conversation string, seen uint64) uint64 {
	tail := uint64(0)
	up := storage.Range{Conversation: conversation, Viewer: "alice", From: 1, To: 1 << 40, Expect: 50}
	err := s.Read(context.Background(), up, func(slot *storage.Slot) bool { tail++; return slot.Message.Seq == tail })
	if err != nil || tail < seen {
		t.Errorf("read up to %d, before to %d: %v", tail, seen, err)
	}
	down, next := up, uint64(0)
	down.NewestFirst = true
	err = s.Read(context.Background(), down, func(slot *storage.Slot) bool {
		ok := next == 0 || slot.Message.Seq == next-1
		next = slot.Message.Seq
		return ok
	})
	if err != nil || next != 1 {
		t.Errorf("read down to %d: %v", next, err)
	}
	return tail
}

// moveUntil moves the conversation to a few sizes, each in as many tries as it takes, of which most are killed.
func moveUntil(t *testing.T, uri, conversation string) {
	proxy := wiretest.Start(t, uri)
	copier, second := openAt(t, proxy.URI()), openAt(t, uri)
	r := seeded(78)
	const tries = 5
	for _, size := range []int{37, 100, 23} {
		for try := 0; ; try++ {
			rule := proxy.On(wiretest.Match{Skip: r.IntN(60), Times: 1}, faultOf(r))
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20+r.IntN(400))*time.Millisecond)
			if try == tries {
				rule.Remove()
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			}
			var both sync.WaitGroup
			if try%3 == 1 {
				both.Go(func() { _ = second.Rebucket(ctx, conversation, size, nil) }) // whoever gets there first
			}
			err := copier.Rebucket(ctx, conversation, size, nil)
			both.Wait()
			cancel()
			rule.Remove()
			if err == nil {
				checkHome(t, copier, conversation, size)
				break
			}
			if try == tries || errors.Is(err, errDamaged) {
				t.Errorf("to %d, try %d: %v", size, try, err)
				return
			}
		}
	}
}

func checkHome(t *testing.T, s *Store, conversation string, size int) {
	if h, err := s.loadHome(context.Background(), conversation); err != nil || h != settled(h.now) || h.now.layout != size {
		t.Errorf("it is at %+v, want size %d: %v", h, size, err)
	}
}

// faultOf is a random fault.
func faultOf(r *rand.Rand) wiretest.Action {
	switch r.IntN(4) {
	case 0:
		return wiretest.CutBefore()
	case 1:
		return wiretest.DropReply()
	case 2:
		return wiretest.Fail(91, "RetryableWriteError")
	default:
		return wiretest.Delay(30 * time.Millisecond)
	}
}
