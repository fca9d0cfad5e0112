package storagetest

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// TestLog is the suite of storage.Log. open makes an empty one whose queues take about queueBytes; 0 stands for enough.
func TestLog(t *testing.T, open func(tb testing.TB, queueBytes int64) storage.Log) {
	for _, sub := range []struct {
		name  string
		bytes int64
		test  func(*testing.T, storage.Log)
	}{
		{"Records", 0, testRecords},
		{"Order", 0, testOrder},
		{"Overlap", 0, testOverlap},
		{"Full", logBound, testFull},
		{"FullThenDrained", logBound, testFullThenDrained},
		{"CloseDrains", 0, testCloseDrains},
		{"CloseWithoutConsumer", 0, testCloseWithoutConsumer},
		{"CloseInBetween", 0, testCloseInBetween},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, open(t, sub.bytes)) })
	}
}

const logBound = 1 << 20

// gather is a consumer that keeps what it is given.
type gather struct {
	mu      sync.Mutex
	byTalk  map[string][]*storage.Record
	part    map[string]int // the partition of each conversation
	lastMS  map[int]int64  // of each partition
	inside  map[int]int    // calls of Process, by partition
	errs    []error        //
	before  func(recs int) // called in Process, without mu
	records int
}

func newGather() *gather {
	return &gather{byTalk: map[string][]*storage.Record{}, part: map[string]int{}, lastMS: map[int]int64{}, inside: map[int]int{}}
}

// Process implements storage.Consumer. It holds the log to its promises.
func (g *gather) Process(partition int, recs []*storage.Record) {
	g.enter(partition, 1)
	defer g.enter(partition, -1)
	if g.before != nil {
		g.before(len(recs))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(recs) == 0 {
		g.errs = append(g.errs, errors.New("an empty batch"))
	}
	for i, rec := range recs {
		id := rec.Message.ConversationID
		if p, ok := g.part[id]; ok && p != partition {
			g.errs = append(g.errs, fmt.Errorf("%s is in partitions %d and %d", id, p, partition))
		}
		if rec.LogTimeMS <= 0 || rec.LogTimeMS < g.lastMS[partition] {
			g.errs = append(g.errs, fmt.Errorf("log time %d after %d", rec.LogTimeMS, g.lastMS[partition]))
		}
		g.part[id], g.lastMS[partition] = partition, rec.LogTimeMS
		g.byTalk[id] = append(g.byTalk[id], rec)
		g.records++
		recs[i] = nil // the slice is the log's, and what is left in it must not matter
	}
}

func (g *gather) enter(partition, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[partition] += n; g.inside[partition] > 1 {
		g.errs = append(g.errs, fmt.Errorf("two calls at once for partition %d", partition))
	}
}

// consume starts Consume. stop closes the log and checks that Consume ended by then.
func consume(t *testing.T, l storage.Log, c storage.Consumer) (stop func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- l.Consume(c) }()
	return func() {
		t.Helper()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// check holds what was seen against what was accepted, conversation by conversation.
func (g *gather) check(t *testing.T, accepted map[string][]*storage.Record) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, err := range g.errs {
		t.Error(err)
	}
	if len(g.byTalk) != len(accepted) {
		t.Errorf("%d conversations were seen, want %d", len(g.byTalk), len(accepted))
	}
	for id, want := range accepted {
		got := g.byTalk[id]
		if len(got) != len(want) {
			t.Fatalf("%s: %d records were seen, want %d", id, len(got), len(want))
		}
		for i := range want {
			if got[i].ID != want[i].ID || !reflect.DeepEqual(got[i].Origin, want[i].Origin) || got[i].Message.ClientMsgID != want[i].Message.ClientMsgID {
				t.Fatalf("%s: record %d is %+v, want %+v", id, i, got[i], want[i])
			}
		}
	}
}

func record(conversation string, n, size int) *storage.Record {
	id := fmt.Sprint(n)
	return &storage.Record{
		Message: protocol.Message{ConversationID: conversation, ClientMsgID: id, Sender: "alice", ContentType: 1, Content: make([]byte, size)},
		ID:      protocol.NewMessageID(conversation, "alice", id),
		Origin:  storage.Origin{Session: 7, RequestID: uint32(n)},
	}
}

func testRecords(t *testing.T, l storage.Log) {
	g := newGather()
	stop := consume(t, l, g)
	accepted := make(map[string][]*storage.Record)
	for i := range 1000 {
		rec := record(fmt.Sprint("g:", i%37), i, i%300)
		if err := l.Ready(); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(rec); err != nil {
			t.Fatal(err)
		}
		accepted[rec.Message.ConversationID] = append(accepted[rec.Message.ConversationID], record(rec.Message.ConversationID, i, 0))
	}
	stop()
	g.check(t, accepted)
}

// testOrder: many append at once, each to a conversation of its own and to one that all share. What one appended to a
// conversation keeps its order.
func testOrder(t *testing.T, l storage.Log) {
	const appenders, each = 8, 500
	g := newGather()
	stop := consume(t, l, g)
	var all sync.WaitGroup
	for a := range appenders {
		all.Go(func() {
			for i := range each {
				for _, id := range []string{fmt.Sprint("g:", a), "g:shared"} {
					rec := record(id, i, 10)
					rec.Origin.Session = protocol.SessionID(a)
					if err := l.Append(rec); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	stop()
	for _, err := range g.errs {
		t.Error(err)
	}
	for a := range appenders {
		next := 0
		for _, rec := range g.byTalk["g:shared"] {
			if rec.Origin.Session != protocol.SessionID(a) {
				continue
			}
			if int(rec.Origin.RequestID) != next {
				t.Fatalf("appender %d: record %d comes as number %d", a, rec.Origin.RequestID, next)
			}
			next++
		}
		if next != each || len(g.byTalk[fmt.Sprint("g:", a)]) != each {
			t.Fatalf("appender %d: %d records in the shared conversation, %d in its own, want %d", a, next, len(g.byTalk[fmt.Sprint("g:", a)]), each)
		}
	}
}

// testOverlap: records gather while Process is at work, and Append goes on.
func testOverlap(t *testing.T, l storage.Log) {
	g := newGather()
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	g.before = func(int) { entered <- struct{}{}; <-leave }
	stop := consume(t, l, g)
	if err := l.Append(record("g:a", 0, 10)); err != nil {
		t.Fatal(err)
	}
	<-entered
	want := []*storage.Record{record("g:a", 0, 0)}
	for i := 1; i < 200; i++ {
		if err := l.Append(record("g:a", i, 10)); err != nil {
			t.Fatal(err)
		}
		want = append(want, record("g:a", i, 0))
	}
	close(leave)
	stop()
	g.check(t, map[string][]*storage.Record{"g:a": want})
}

// fill appends to one conversation until the log is full, and returns what it took.
func fill(t *testing.T, l storage.Log, size int) (accepted []*storage.Record) {
	t.Helper()
	for i := 0; ; i++ {
		err := l.Append(record("g:a", i, size))
		if errors.Is(err, storage.ErrFull) {
			return accepted
		}
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, record("g:a", i, 0))
		if int64(i*size) > logBound || i > logBound/100 {
			t.Fatalf("the log took %d records of %d bytes, its bound is %d", i, size, logBound)
		}
	}
}

func testFull(t *testing.T, l storage.Log) {
	accepted := fill(t, l, 50_000)
	if len(accepted) < 5 {
		t.Fatalf("the log took only %d records", len(accepted))
	}
	for i := 10_000; ; i++ { // small ones may still fit; the bound counts what they take beside their content
		err := l.Append(record("g:a", i, 0))
		if errors.Is(err, storage.ErrFull) {
			break
		}
		if err != nil || i > 20_000 {
			t.Fatalf("the log took %d small records: %v", i-10_000, err)
		}
		accepted = append(accepted, record("g:a", i, 0))
	}
	if err := l.Append(record("g:a", 1, 2*logBound)); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("a record larger than the bound: %v", err)
	}
	g := newGather()
	consume(t, l, g)()
	g.check(t, map[string][]*storage.Record{"g:a": accepted})
}

// testFullThenDrained: what was refused is not seen, and there is room again when the queue was drained.
func testFullThenDrained(t *testing.T, l storage.Log) {
	accepted := fill(t, l, 10_000)
	g := newGather()
	stop := consume(t, l, g)
	for i := range 500 {
		for n := 100_000 + i; ; {
			err := l.Append(record("g:a", n, 10_000))
			if err == nil {
				accepted = append(accepted, record("g:a", n, 0))
				break
			}
			if !errors.Is(err, storage.ErrFull) {
				t.Fatal(err)
			}
			runtime.Gosched() // until the consumer has caught up
		}
	}
	stop()
	g.check(t, map[string][]*storage.Record{"g:a": accepted})
}

func testCloseDrains(t *testing.T, l storage.Log) {
	accepted := make(map[string][]*storage.Record)
	for i := range 300 {
		rec := record(fmt.Sprint("g:", i%11), i, 10)
		if err := l.Append(rec); err != nil {
			t.Fatal(err)
		}
		accepted[rec.Message.ConversationID] = append(accepted[rec.Message.ConversationID], record(rec.Message.ConversationID, i, 0))
	}
	g := newGather()
	slow := make(chan struct{})
	g.before = func(int) { <-slow }
	stop := consume(t, l, g)
	go close(slow)
	stop()
	g.check(t, accepted)
	if err := l.Append(record("g:0", 0, 10)); !errors.Is(err, storage.ErrClosed) {
		t.Fatalf("append after close: %v", err)
	}
	if err := l.Ready(); !errors.Is(err, storage.ErrClosed) {
		t.Fatalf("ready after close: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatalf("closing again: %v", err)
	}
	g.check(t, accepted)
}

func testCloseWithoutConsumer(t *testing.T, l storage.Log) {
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(record("g:0", 0, 10)); !errors.Is(err, storage.ErrClosed) {
		t.Fatalf("append after close: %v", err)
	}
}

// testCloseInBetween: Close comes while many append. Whatever was taken is seen, and nothing else.
func testCloseInBetween(t *testing.T, l storage.Log) {
	const appenders = 8
	g := newGather()
	stop := consume(t, l, g)
	accepted := make(map[string][]*storage.Record)
	var mu sync.Mutex
	var all, started sync.WaitGroup
	started.Add(appenders)
	for a := range appenders {
		all.Go(func() {
			id := fmt.Sprint("g:", a)
			var taken []*storage.Record
			ready := sync.OnceFunc(started.Done)
			defer ready()
			for i := 0; ; i++ {
				if i == 50 {
					ready()
				}
				err := l.Append(record(id, i, 10))
				if errors.Is(err, storage.ErrFull) {
					runtime.Gosched()
					i--
					continue
				}
				if errors.Is(err, storage.ErrClosed) {
					break
				}
				if err != nil {
					t.Error(err)
					return
				}
				taken = append(taken, record(id, i, 0))
			}
			mu.Lock()
			accepted[id] = taken
			mu.Unlock()
		})
	}
	started.Wait()
	stop()
	all.Wait()
	g.check(t, accepted)
}
