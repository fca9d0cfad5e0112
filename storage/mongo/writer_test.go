package mongo

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
	"github.com/parley-im/parley/storage/storagetest"
)

// wait appends runs and waits.
func wait(s *Store, runs ...*storage.Run) error {
	c, err := s.Append(context.Background(), runs)
	if err == nil {
		err = c.Wait()
	}
	return err
}

// TestAppendUnderFaults: whatever happens to the first, or the second, bulk of an Append, each message is stored once and in its place. The runs insert
// a bucket, fill one, and cross borders.
func TestAppendUnderFaults(t *testing.T) {
	uri := mongotest.Database(t)
	proxy := wiretest.Start(t, uri)
	s, plain := openAt(t, proxy.URI()), openAt(t, uri)
	for name, fault := range map[string]wiretest.Action{
		"not applied, cut":              wiretest.CutBefore(),
		"applied, reply lost":           wiretest.DropReply(),
		"91, not applied":               wiretest.Fail(wiretest.CodeShutdownInProgress, wiretest.Retryable),
		"91, applied":                   wiretest.FailAfter(wiretest.CodeShutdownInProgress, wiretest.Retryable),
		"189, not applied":              wiretest.Fail(wiretest.CodePrimarySteppedDown),
		"189, applied":                  wiretest.FailAfter(wiretest.CodePrimarySteppedDown),
		"11602, applied":                wiretest.FailAfter(wiretest.CodeInterruptedByElection),
		"no majority in time":           wiretest.NoMajority(wiretest.CodeWriteConcernTimeout),
		"duplicate key of one":          wiretest.Duplicate(1),
		"duplicate key of all":          wiretest.Duplicate(0, 1, 2),
		"one failed in passing":         wiretest.WriteError(wiretest.CodeInterruptedByElection, 0),
		"time limit, applied":           wiretest.FailAfter(wiretest.CodeMaxTimeMSExpired),
		"slower than the driver's pool": wiretest.Delay(300 * time.Millisecond),
	} {
		for skip := range 2 {
			r := seeded(uint64(len(name) + skip))
			talks := []*storagetest.Talk{storagetest.Direct(idOf(name), "a"), storagetest.Direct(idOf(name), "b"), storagetest.Direct(idOf(name), "c")}
			appendRuns(t, plain, talks[0].Run(r, 40), talks[1].Run(r, 90+10*skip))
			rule := proxy.On(wiretest.Match{Command: "update", Collection: "buckets", Skip: skip, Times: 1}, fault)
			runs := []*storage.Run{talks[0].Run(r, 70), talks[1].Run(r, 130), talks[2].Run(r, 101)}
			if err := wait(s, runs...); err != nil || rule.Hits() != 1 {
				t.Fatalf("%s, bulk %d: %v, the fault came %d times", name, skip, err, rule.Hits())
			}
			for i, k := range talks {
				if runs[i].Err != nil {
					t.Fatalf("%s, bulk %d: %v", name, skip, runs[i].Err)
				}
				k.Check(t, plain, k.Tail())
			}
			rule.Remove()
			dropAll(t, plain)
		}
	}
}

func idOf(name string) string { return bson.NewObjectID().Hex() + name[:1] }

// dropAll empties the buckets, so that the next case starts anew.
func dropAll(t *testing.T, s *Store) {
	if _, err := s.buckets.DeleteMany(t.Context(), bson.D{}); err != nil {
		t.Fatal(err)
	}
}

// TestAppendRefusedAlone: an error that does not pass is of one run, and the others of its bulk are stored.
func TestAppendRefusedAlone(t *testing.T) {
	uri := mongotest.Database(t)
	proxy := wiretest.Start(t, uri)
	s := openAt(t, proxy.URI())
	r, bad, good := seeded(1), storagetest.Direct("a", "bad"), storagetest.Direct("a", "good")
	appendRuns(t, s, bad.Run(r, 3), good.Run(r, 3))
	proxy.On(wiretest.Match{Command: "update", Collection: "buckets", Times: 1}, wiretest.WriteError(17419, 0))
	lost, kept := bad.Run(r, 2), good.Run(r, 2)
	if err := wait(s, lost, kept); err != nil || lost.Err == nil || errors.Is(lost.Err, storage.ErrStale) || kept.Err != nil {
		t.Fatalf("%v; the refused run: %v, the other: %v", err, lost.Err, kept.Err)
	}
	bad.Cut(3)
	bad.Check(t, s, 3)
	good.Check(t, s, 5)
}

// TestWorkerDiesAtBorder: a writer that dies between the fill of a bucket and the insert of the next leaves a conversation that ends at the border. Its
// successor finds the ids that are there, and adds the rest.
func TestWorkerDiesAtBorder(t *testing.T) {
	uri := mongotest.Database(t)
	proxy := wiretest.Start(t, uri)
	s := openAt(t, proxy.URI(), func(o *Options) { o.RetryFor = 200 * time.Millisecond })
	r, k := seeded(2), storagetest.Direct("a", "b")
	appendRuns(t, s, k.Run(r, 97))
	rule := proxy.On(wiretest.Match{Command: "update", Collection: "buckets", Skip: 1}, wiretest.CutBefore())
	run := k.Run(r, 9)
	if err := wait(s, run); !errors.Is(err, storage.ErrUnavailable) {
		t.Fatalf("the insert never came through: %v", err)
	}
	rule.Remove()
	successor := openAt(t, uri)
	state, err := successor.State(t.Context(), k.ID)
	if err != nil || state.Tail != 100 {
		t.Fatalf("tail %d, %v", state.Tail, err)
	}
	k.CheckRecent(t, successor, 100)
	k.CheckRead(t, successor, 1, 110, false, 100)
	rest := *run
	rest.First, rest.Messages, rest.Before = 101, run.Messages[3:], k.Slots[99].Counts
	rest.Wire = wireOf(rest.Messages)
	appendRuns(t, successor, &rest)
	k.Check(t, successor, 106)
}

// TestWriterBehindMajority: what is read after a write that did not match is behind it for a while. The writer looks again until it sees.
func TestWriterBehindMajority(t *testing.T) {
	uri := mongotest.Database(t)
	proxy := wiretest.Start(t, uri)
	s, other := openAt(t, proxy.URI()), openAt(t, uri)
	r, k := seeded(3), storagetest.Direct("a", "b")
	appendRuns(t, s, k.Run(r, 5))
	if _, err := s.State(t.Context(), k.ID); err != nil { // noted
		t.Fatal(err)
	}
	behind := wiretest.NewBehind()
	proxy.On(wiretest.Match{Command: "find", Collection: "buckets"}, behind.Read)
	if _, err := s.heads(t.Context(), []string{k.ID}); err != nil {
		t.Fatal(err)
	}
	fork := *k
	ours := fork.Run(r, 2)
	appendRuns(t, other, k.Run(r, 1))
	behind.Freeze()
	c, err := s.Append(t.Context(), []*storage.Run{ours})
	if err != nil {
		t.Fatal(err)
	}
	for behind.Stale() < 3 {
		select {
		case <-c.(*commit).done:
			t.Fatalf("it was decided on a read that was behind: %v", ours.Err)
		case <-time.After(time.Millisecond):
		}
	}
	behind.Thaw()
	if err := c.Wait(); err != nil || !errors.Is(ours.Err, storage.ErrStale) {
		t.Fatalf("%v, %v", err, ours.Err)
	}
	k.Check(t, other, 6)
}

// TestRowsBeforeMessages: a crash between the rows and the messages leaves rows of a conversation that is on nobody's list; the repeat adds the messages.
func TestRowsBeforeMessages(t *testing.T) {
	uri := mongotest.Database(t)
	proxy := wiretest.Start(t, uri)
	s := openAt(t, proxy.URI(), func(o *Options) { o.RetryFor = 100 * time.Millisecond })
	rule := proxy.On(wiretest.Match{Command: "update", Collection: "buckets"}, wiretest.CutBefore())
	k := storagetest.Direct("a", "b")
	run := k.Run(seeded(4), 2)
	if err := wait(s, run); !errors.Is(err, storage.ErrUnavailable) {
		t.Fatal(err)
	}
	if entries, _, err := s.Changed(t.Context(), "a", 0); err != nil || len(entries) != 0 {
		t.Fatalf("%+v, %v", entries, err)
	}
	rule.Remove()
	appendRuns(t, s, run)
	for _, user := range k.Members {
		if entries, _, err := s.Changed(t.Context(), user, 0); err != nil || len(entries) != 1 || entries[0].State.Tail != 2 {
			t.Fatalf("%+v, %v", entries, err)
		}
	}
}

// TestQueueIsBounded: Appends beyond the bound in bytes are refused, and nothing of them is stored; after Close all are.
func TestQueueIsBounded(t *testing.T) {
	uri := mongotest.Database(t)
	proxy := wiretest.Start(t, uri)
	s, err := Open(t.Context(), Options{URI: proxy.URI(), QueueBytes: 40_000})
	if err != nil {
		t.Fatal(err)
	}
	gate := wiretest.NewGate()
	proxy.On(wiretest.Match{Command: "update", Collection: "buckets"}, gate.Before)
	r, k := seeded(5), storagetest.Direct("a", "b")
	var open []storage.Commit
	for {
		run := k.Run(r, 5)
		c, err := s.Append(t.Context(), []*storage.Run{run})
		if errors.Is(err, storage.ErrFull) {
			k.Cut(run.First - 1)
			break
		}
		if open = append(open, c); err != nil || len(open) > 1000 {
			t.Fatal(len(open), err)
		}
	}
	gate.Open()
	for _, c := range open {
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	k.Check(t, s, k.Tail())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), []*storage.Run{k.Run(r, 1)}); !errors.Is(err, storage.ErrClosed) {
		t.Fatal(err)
	}
}
