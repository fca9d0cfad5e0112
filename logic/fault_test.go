package logic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// faultyBuckets fails writes on purpose, before they were applied and after.
type faultyBuckets struct {
	storage.Buckets
	mu     sync.Mutex
	before error // Append fails, nothing is stored
	after  error // Wait fails, everything is stored
	stale  string
}

func (f *faultyBuckets) set(before, after error, stale string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after, f.stale = before, after, stale
}

func (f *faultyBuckets) Append(ctx context.Context, runs []*storage.Run) (storage.Commit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		return nil, f.before
	}
	var kept []*storage.Run
	for _, r := range runs {
		if r.Conversation == f.stale {
			r.Err = storage.ErrStale
		} else {
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 {
		return commitFunc(func() error { return nil }), nil
	}
	c, err := f.Buckets.Append(ctx, kept)
	if err != nil || f.after == nil {
		return c, err
	}
	after := f.after
	return commitFunc(func() error { return errors.Join(c.Wait(), after) }), nil
}

type commitFunc func() error

func (f commitFunc) Wait() error { return f() }

func startFaulty(t *testing.T) (*server, *faultyBuckets) {
	var f *faultyBuckets
	s := startServer(t, nil, func(o *Options) {
		f = &faultyBuckets{Buckets: o.Buckets}
		o.Buckets = f
	})
	return s, f
}

// TestWriteRefused: while the disk is full sends get unavailable and reads go on. Afterwards numbers go on densely, without a restart, and a
// repeat of what was refused is a new message.
func TestWriteRefused(t *testing.T) {
	s, f := startFaulty(t)
	a, b := s.online("alice"), s.online("bob")
	a.send(text("1", "bob"))
	for _, err := range []error{storage.ErrFull, storage.ErrClosed} {
		f.set(err, nil, "")
		for i := range 5 {
			wantCode(t, a.call(protocol.CmdSend, text(fmt.Sprint("refused ", i), "bob"), nil), protocol.CodeUnavailable)
		}
		if got := b.pullAll("p:alice:bob", 0); len(got) != 1 {
			t.Errorf("pulled %d messages, want 1", len(got))
		}
	}
	f.set(nil, nil, "")
	if ack := a.send(text("refused 3", "bob")); ack.Seq != 2 {
		t.Errorf("the next message has seq %d, want 2", ack.Seq)
	}
	if got := b.waitPushed(2); got[1].ClientMsgID != "refused 3" || len(got) != 2 {
		t.Errorf("pushed %+v", got)
	}
}

// TestWriteInDoubt: the store says that a write failed, but has it. The sender repeats, and there is one message.
func TestWriteInDoubt(t *testing.T) {
	s, f := startFaulty(t)
	a, b := s.online("alice"), s.online("bob")
	a.send(text("1", "bob"))
	f.set(nil, errors.New("reply lost"), "")
	wantCode(t, a.call(protocol.CmdSend, text("2", "bob"), nil), protocol.CodeUnavailable)
	f.set(nil, nil, "")
	if ack := a.send(text("3", "bob")); ack.Seq != 3 {
		t.Errorf("the next message has seq %d, want 3", ack.Seq)
	}
	if ack := a.send(text("2", "bob")); ack.Seq != 2 {
		t.Errorf("the repeat has seq %d, want 2", ack.Seq)
	}
	if got := b.pullAll("p:alice:bob", 0); len(got) != 3 {
		t.Errorf("%d messages, want 3", len(got))
	}
}

// TestOneConversationRefused: a stale tail stops one conversation's messages only.
func TestOneConversationRefused(t *testing.T) {
	s, f := startFaulty(t)
	a := s.online("alice")
	a.send(text("1", "bob"))
	a.send(text("1", "carol"))
	f.set(nil, nil, "p:alice:bob")
	wantCode(t, a.call(protocol.CmdSend, text("2", "bob"), nil), protocol.CodeUnavailable)
	if ack := a.send(text("2", "carol")); ack.Seq != 2 {
		t.Errorf("carol's message has seq %d, want 2", ack.Seq)
	}
	f.set(nil, nil, "")
	if ack := a.send(text("2", "bob")); ack.Seq != 2 {
		t.Errorf("bob's message has seq %d, want 2", ack.Seq)
	}
}

// TestPipelineRefused: many batches are on their way when writes begin to fail; what is acked is dense and in order, the rest is answered.
func TestPipelineRefused(t *testing.T) {
	s, f := startFaulty(t)
	a, b := s.online("alice"), s.online("bob")
	const n = 3000
	errorsSeen := 0
	moreErrors := func() bool { // so that every fault meets at least one batch
		count := 0
		for _, fr := range a.frames {
			if fr.Command == protocol.CmdError {
				count++
			}
		}
		more := count > errorsSeen
		errorsSeen = count
		return more
	}
	for i := range n {
		switch i % 500 {
		case 100:
			f.set(storage.ErrFull, nil, "")
		case 200:
			s.g.wait(t, "a refusal", moreErrors)
			f.set(nil, nil, "p:alice:bob")
		case 300:
			s.g.wait(t, "a refusal", moreErrors)
			f.set(nil, nil, "")
		}
		a.request(protocol.CmdSend, text(fmt.Sprint(i), "bob"))
	}
	var acks, refused int
	s.g.wait(t, "all replies", func() bool { return len(a.frames) == n })
	for _, fr := range a.frames {
		if fr.Command == protocol.CmdSendAck {
			acks++
			continue
		}
		var e protocol.Error
		must(t, protocol.Unmarshal(fr.Body, &e))
		wantCode(t, &e, protocol.CodeUnavailable)
		refused++
	}
	stored := b.pullAll("p:alice:bob", 200)
	if acks == 0 || refused == 0 || len(stored) != acks {
		t.Errorf("%d acked, %d refused, %d stored", acks, refused, len(stored))
	}
	last := -1
	for i, m := range stored {
		var k int
		_, err := fmt.Sscan(m.ClientMsgID, &k)
		must(t, err)
		if m.Seq != uint64(i+1) || k <= last {
			t.Fatalf("stored at %d: seq %d, message %d after %d", i, m.Seq, k, last)
		}
		last = k
	}
}

// TestRoutesLost: when nobody can be found, messages are stored and acked all the same.
func TestRoutesLost(t *testing.T) {
	s := startServer(t, nil, func(o *Options) { o.Routes = lostRoutes{o.Routes} })
	a, b := s.online("alice"), s.online("bob")
	if ack := a.send(text("1", "bob")); ack.Seq != 1 {
		t.Errorf("ack %+v", ack)
	}
	if got := b.pullAll("p:alice:bob", 0); len(got) != 1 {
		t.Errorf("%d messages, want 1", len(got))
	}
}

type lostRoutes struct{ storage.Routes }

func (lostRoutes) Online(context.Context, []string, [][]storage.Route) ([][]storage.Route, error) {
	return nil, errors.New("no route to the routes")
}
