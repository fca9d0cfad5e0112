package wiretest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Rules: which command, how often, after how many, until when, and in what order.
func TestRules(t *testing.T) {
	b := setUp(t, once)
	second := b.On(Match{Command: "insert", Skip: 1, Times: 1}, Fail(CodeNotWritablePrimary))
	five := b.On(Match{Collection: "c", If: func(c *Command) bool {
		return len(c.Statements) == 1 && c.Statements[0].Lookup("_id").AsInt64() == 5
	}}, Fail(CodeMaxTimeMSExpired))
	for _, c := range []struct{ id, code int32 }{
		{1, 0}, {2, CodeNotWritablePrimary}, {3, 0}, {5, CodeMaxTimeMSExpired}, {5, CodeMaxTimeMSExpired}, {6, 0},
	} {
		select {
		case <-second.Reached():
			if c.id < 3 {
				t.Errorf("before %d: reached", c.id)
			}
		default:
			if c.id > 2 {
				t.Errorf("before %d: not reached", c.id)
			}
		}
		if _, err := b.through.InsertOne(t.Context(), doc(c.id)); code(err) != c.code {
			t.Errorf("insert of %d: %v", c.id, err)
		}
	}
	if second.Hits() != 1 || five.Hits() != 2 {
		t.Errorf("hits: %d, %d", second.Hits(), five.Hits())
	}
	five.Remove()
	if _, err := b.through.InsertOne(t.Context(), doc(int32(5))); err != nil {
		t.Errorf("after the rule: %v", err)
	}
	wantIDs(t, b.beside, 1, 3, 5, 6)
}

// Another writer is there first: a duplicate key that is one.
func TestDo(t *testing.T) {
	b := setUp(t)
	b.On(Match{Command: "insert"}, Do(func(c *Command) {
		if _, err := b.beside.InsertOne(t.Context(), c.Statements[0]); err != nil {
			t.Error(err)
		}
	}))
	if _, err := b.through.InsertOne(t.Context(), doc(int32(1))); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("the driver sees %v", err)
	}
	found := 0
	b.On(Match{Command: "update"}, DoAfter(func(*Command) {
		n, err := b.beside.CountDocuments(t.Context(), bson.D{{Key: "v", Value: 1}})
		if err != nil {
			t.Error(err)
		}
		found = int(n)
	}))
	if _, err := b.through.BulkWrite(t.Context(), []mongo.WriteModel{set(1, 1)}); err != nil || found != 1 {
		t.Errorf("%v; in the moment after the update %d documents had it", err, found)
	}
}

// A write that is held reaches the server although its driver gave up.
func TestLateWrite(t *testing.T) {
	b := setUp(t, once)
	gate := NewGate()
	b.On(Match{Command: "insert"}, gate.Before)
	applied := make(chan struct{})
	b.On(Match{Command: "insert"}, DoAfter(func(*Command) { close(applied) }))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { _, err := b.through.InsertOne(ctx, doc(int32(1))); failed <- err }()
	<-gate.Reached()
	cancel()
	if err := <-failed; err == nil {
		t.Error("a held write succeeded")
	}
	wantIDs(t, b.beside)
	gate.Open()
	<-applied
	wantIDs(t, b.beside, 1)
}

// A reply that is held: what was carried out is there for others before its writer knows.
func TestGateAfter(t *testing.T) {
	b := setUp(t)
	gate := NewGate()
	b.On(Match{Command: "insert"}, gate.After)
	done := make(chan error, 1)
	go func() { _, err := b.through.InsertOne(t.Context(), doc(int32(1))); done <- err }()
	<-gate.Reached()
	wantIDs(t, b.beside, 1)
	select {
	case err := <-done:
		t.Fatalf("the writer knows already: %v", err)
	default:
	}
	gate.Open()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDelay(t *testing.T) {
	b := setUp(t)
	const pause = 50 * time.Millisecond
	b.On(Match{Command: "insert"}, Delay(pause))
	start := time.Now()
	if _, err := b.through.InsertOne(t.Context(), doc(int32(1))); err != nil || time.Since(start) < pause {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// A read that is behind, and one that has caught up.
func TestBehind(t *testing.T) {
	b := setUp(t)
	behind := NewBehind()
	b.On(Match{Command: "find"}, behind.Read)
	b.On(Match{Command: "aggregate"}, behind.Read)
	insert := func(id int32) {
		if _, err := b.through.InsertOne(t.Context(), doc(id)); err != nil {
			t.Fatal(err)
		}
	}
	insert(1)
	wantIDs(t, b.through, 1)
	behind.Freeze()
	insert(2)
	wantIDs(t, b.through, 1)
	wantIDs(t, b.beside, 1, 2)
	if n, err := b.through.CountDocuments(t.Context(), bson.D{}); err != nil || n != 2 {
		t.Errorf("a read that was never noted: %d, %v", n, err)
	}
	behind.Thaw()
	wantIDs(t, b.through, 1, 2)
	if behind.Stale() != 1 {
		t.Errorf("%d reads were behind", behind.Stale())
	}
}

// Rules come and go, connections are cut and counts are read while many commands run: for the race detector. What a writer was told is stored
// is there.
func TestManyAtOnce(t *testing.T) {
	b := setUp(t)
	var wg sync.WaitGroup
	var sent atomic.Int32
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := sent.Add(1)
				retry(t, func() error { _, err := b.through.InsertOne(t.Context(), doc(id)); return err })
			}
		})
	}
	for range 20 {
		rule := b.On(Match{Command: "insert", Times: 5}, DropReply())
		<-rule.Reached()
		b.Count("insert", "c")
		rule.Remove()
	}
	close(stop)
	wg.Wait()
	if got, want := len(ids(t, b.beside)), int(sent.Load()); got != want {
		t.Errorf("%d documents of %d", got, want)
	}
}
