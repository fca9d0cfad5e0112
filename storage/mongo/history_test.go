package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
)

const (
	histories      = 1_000
	largeHistories = 10_000 // with PARLEY_TEST_LARGE=1
	shards         = 5
	together       = 200 // histories in one bulk, so that one of many fails alone
	steps          = 5   // Appends in each
)

// history is a conversation, as plain slices, and what two writers believe of it.
type history struct {
	id     string
	slots  []slot // by seq - 1
	active int64
	past   []*storage.Run // that were stored
	next   int
}

// TestHistories: random runs of two writers, one of which may be stale, that start anywhere, cross borders and are repeated, under faults that come before
// and after a bulk was applied, and to one of its writes alone. In the end the documents are those of a model that is nothing but arrays.
func TestHistories(t *testing.T) {
	n := histories
	if os.Getenv("PARLEY_TEST_LARGE") == "1" {
		n = largeHistories
	}
	for shard := range shards { // they mostly wait: for the server, and in the pauses after faults
		t.Run(fmt.Sprint("shard ", shard), func(t *testing.T) {
			t.Parallel()
			runHistories(t, shard*n/shards, (shard+1)*n/shards)
		})
	}
}

func runHistories(t *testing.T, from, to int) {
	uri := mongotest.Database(t)
	proxy := wiretest.Start(t, uri)
	writers := []*Store{openAt(t, proxy.URI()), openAt(t, proxy.URI())}
	for first := from; first < to && !t.Failed(); first += together {
		r := rand.New(rand.NewPCG(uint64(first), 7))
		list := make([]*history, together)
		for i := range list {
			list[i] = &history{id: protocol.DirectConversation("a", fmt.Sprint("h", first+i))}
		}
		for range steps {
			step(t, r, proxy, writers[r.IntN(2)], list)
		}
		checkHistories(t, writers[0], list)
		dropAll(t, writers[0])
	}
}

// step is one Append, or two in flight, of a run for each history.
func step(t *testing.T, r *rand.Rand, proxy *wiretest.Proxy, s *Store, list []*history) {
	t.Helper()
	spoilt := -1
	var rule *wiretest.Rule
	if r.IntN(3) > 0 {
		var fault wiretest.Action
		if fault, spoilt = bulkFault(r); fault != nil {
			rule = proxy.On(wiretest.Match{Command: "update", Collection: "buckets", Skip: r.IntN(2), Times: 1}, fault)
		}
	}
	var commits []storage.Commit
	var runs [][]*storage.Run
	for range 1 + r.IntN(2) {
		batch := make([]*storage.Run, len(list))
		for i, h := range list {
			batch[i] = h.run(r, runs, i)
		}
		c, err := s.Append(context.Background(), batch)
		if err != nil {
			t.Fatal(err)
		}
		commits, runs = append(commits, c), append(runs, batch)
	}
	refused := make([]bool, len(list)) // a run behind one that was refused is refused, too, if it was queued by then
	for k, c := range commits {
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
		for i, h := range list {
			h.settle(t, runs[k][i], spoilt >= 0 || refused[i])
			refused[i] = refused[i] || runs[k][i].Err != nil
		}
	}
	if rule != nil {
		rule.Remove()
	}
}

// bulkFault is a random fault of a bulk. With spoilt at 0 or above some run may be refused with an error of its own.
func bulkFault(r *rand.Rand) (fault wiretest.Action, spoilt int) {
	one := r.IntN(together)
	switch r.IntN(9) {
	case 0:
		return wiretest.CutBefore(), -1
	case 1:
		return wiretest.DropReply(), -1
	case 2:
		return wiretest.Fail(wiretest.CodeShutdownInProgress, wiretest.Retryable), -1
	case 3:
		return wiretest.FailAfter(wiretest.CodePrimarySteppedDown), -1
	case 4:
		return wiretest.NoMajority(wiretest.CodeWriteConcernTimeout), -1
	case 5:
		return wiretest.Duplicate(one), one
	case 6:
		return wiretest.WriteError(wiretest.CodeInterruptedByElection, one), -1
	case 7:
		return wiretest.WriteError(17419, one), one
	default:
		return nil, -1
	}
}

// run is the next run of a history: most follow what is stored, or what is in flight; some are stale, too high, or repeated.
func (h *history) run(r *rand.Rand, before [][]*storage.Run, i int) *storage.Run {
	tail := uint64(len(h.slots))
	var counts storage.Counts
	if tail > 0 {
		counts = h.slots[tail-1].Counts
	}
	if len(before) > 0 {
		last := before[len(before)-1][i]
		if last.First == tail+1 {
			tail, counts = tail+uint64(len(last.Messages)), last.After
		}
	}
	switch n := r.IntN(12); {
	case n == 0 && len(h.past) > 0:
		again := *h.past[r.IntN(len(h.past))]
		return &again
	case n == 1 && tail > 0:
		return h.make(r, r.Uint64N(tail), storage.Counts{}, 1+r.IntN(5))
	case n == 2:
		return h.make(r, tail+1+r.Uint64N(120), storage.Counts{}, 1+r.IntN(3))
	}
	size := 1 + r.IntN(4)
	if tail%storage.BucketSize == 0 && r.IntN(2) == 0 {
		size = 95 + r.IntN(8) // the next ones meet the border
	} else if r.IntN(40) == 0 {
		size = 100 + r.IntN(150)
	}
	return h.make(r, tail, counts, size)
}

// make is a run of n messages above tail.
func (h *history) make(r *rand.Rand, tail uint64, counts storage.Counts, n int) *storage.Run {
	run := &storage.Run{Conversation: h.id, First: tail + 1, LogTimeMS: int64(1000 + r.IntN(1000)), Before: counts, ActiveMS: int64(r.IntN(5000))}
	for i := range n {
		h.next++
		m := &protocol.Message{
			ConversationID: h.id, Seq: tail + 1 + uint64(i), Sender: "a", ClientMsgID: fmt.Sprintf("%d-%x", h.next, r.Uint32()), ContentType: protocol.ContentText,
			Content: []byte{byte(r.Uint32())}, SendTimeMS: 1, Run: 1,
		}
		m.ServerMsgID = protocol.NewMessageID(h.id, m.Sender, m.ClientMsgID).String()
		run.Messages = append(run.Messages, m)
		counts[0]++
	}
	run.Wire, run.After = wireOf(run.Messages), counts
	return run
}

// wireOf is Run.Wire.
func wireOf(messages []*protocol.Message) (wire []byte) {
	for _, m := range messages {
		wire = protocol.AppendBody(wire, m)
	}
	return wire
}

// settle holds what became of a run against what must have, and takes it into the model. When errors of single writes are about, a run that would
// have been taken may be refused, or end at a border.
func (h *history) settle(t *testing.T, run *storage.Run, spoilt bool) {
	t.Helper()
	repeat := slices.ContainsFunc(h.past, func(p *storage.Run) bool {
		return p.First == run.First && p.Messages[0].ServerMsgID == run.Messages[0].ServerMsgID
	})
	due := run.First == uint64(len(h.slots))+1
	switch {
	case run.Err == nil && due:
		h.take(run)
	case run.Err == nil && repeat, errors.Is(run.Err, storage.ErrStale) && (!due || spoilt), run.Err != nil && spoilt:
	default:
		t.Fatalf("%s: a run of %d from %d, with the tail at %d, repeated: %t: %v", h.id, len(run.Messages), run.First, len(h.slots), repeat, run.Err)
	}
}

func (h *history) take(run *storage.Run) {
	counts := run.Before
	for _, m := range run.Messages {
		counts[0]++
		id, _ := protocol.ParseMessageID(m.ServerMsgID)
		h.slots = append(h.slots, slot{ID: id[:], Time: run.LogTimeMS, Counts: counts, Msg: appendStored(nil, protocol.AppendBody(nil, m))})
	}
	h.active = run.ActiveMS
	kept := *run
	kept.Err = nil
	h.past = append(h.past, &kept)
}

// checkHistories is the one closing checker: the documents are what the arrays make of them.
func checkHistories(t *testing.T, s *Store, list []*history) {
	t.Helper()
	byConv := make(map[string][]bucket)
	var docs []bucket
	if err := all(context.Background(), s.buckets, bson.D{}, nil, &docs); err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		byConv[d.Conv] = append(byConv[d.Conv], d)
	}
	for _, h := range list {
		h.check(t, byConv[h.id])
	}
}

func (h *history) check(t *testing.T, docs []bucket) {
	t.Helper()
	slices.SortFunc(docs, func(a, b bucket) int { return int(a.N) - int(b.N) })
	if want := (len(h.slots) + storage.BucketSize - 1) / storage.BucketSize; len(docs) != want {
		t.Fatalf("%s: %d messages are in %d buckets", h.id, len(h.slots), len(docs))
	}
	for n, d := range docs {
		first := n * storage.BucketSize
		tail := min(first+storage.BucketSize, len(h.slots))
		if d.ID != plain().id(h.id, uint64(n)) || d.Tail != uint64(tail) || d.Counts != h.slots[tail-1].Counts || len(d.Slots) != storage.BucketSize || d.Sealed {
			t.Fatalf("%s: tail %d, counts %v, %d slots; want tail %d, counts %v", d.ID, d.Tail, d.Counts, len(d.Slots), tail, h.slots[tail-1].Counts)
		}
		if last := n == len(docs)-1; last && (d.ActiveMS != h.active || !d.Newest) {
			t.Fatalf("%s: active %d, want %d; newest: %t", d.ID, d.ActiveMS, h.active, d.Newest)
		}
		for i, got := range d.Slots {
			var want slot
			if first+i < tail {
				want = h.slots[first+i]
			}
			if !bytes.Equal(got.ID, want.ID) || got.Time != want.Time || got.Counts != want.Counts || !bytes.Equal(got.Msg, want.Msg) {
				t.Fatalf("%s: slot %d is %+v, want %+v", d.ID, i, got, want)
			}
		}
	}
}
