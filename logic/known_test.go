package logic

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

// TestRepeatAfterHours: far beyond the sequencer's horizon a repeat is still known, as a rule.
func TestRepeatAfterHours(t *testing.T) {
	clock := newClock()
	s := startServer(t, nil, clock.options)
	a := s.online("alice")
	first := a.send(text("m", "bob"))
	for i := range repeatLast + 1 {
		a.send(text(fmt.Sprint(i), "bob"))
	}
	clock.add(20 * time.Hour)
	sameMessage(t, "after hours", first, a.send(text("m", "bob")))
	if ack := a.send(text("next", "bob")); ack.Seq != repeatLast+3 {
		t.Errorf("the next message has seq %d, want %d", ack.Seq, repeatLast+3)
	}
}

// TestKnownIsOnlyAHint: entries that point to other messages, or to nothing, are found out.
func TestKnownIsOnlyAHint(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	a.send(text("1", "bob"))
	s.l.known.put(protocol.NewMessageID("p:alice:bob", "alice", "2"), 1)
	if ack := a.send(text("2", "bob")); ack.Seq != 2 {
		t.Errorf("a new message was taken for another: %+v", ack)
	}
}

// watchedGateway calls see before each Deliver.
type watchedGateway struct {
	Gateway
	see func()
}

func (w *watchedGateway) Deliver(ds []protocol.Delivery) {
	w.see()
	w.Gateway.Deliver(ds)
}

// TestKnownAfterItsAck: a message is known only when its ack has gone out, with the pushes of its batch: a worker that answers a repeat does not
// overtake them.
func TestKnownAfterItsAck(t *testing.T) {
	id := protocol.NewMessageID("p:alice:bob", "alice", "1")
	var s *server
	var armed, early atomic.Bool
	w := &watchedGateway{see: func() {
		if armed.Swap(false) { // the ack
			_, known := s.l.known.get(id)
			early.Store(known)
		}
	}}
	s = startServer(t, nil, func(o *Options) { w.Gateway, o.Gateway = o.Gateway, w })
	a := s.online("alice")
	armed.Store(true)
	ack := a.send(text("1", "bob"))
	if armed.Load() || early.Load() {
		t.Error("the message was known before its ack")
	}
	a.send(text("2", "bob"))
	if _, known := s.l.known.get(id); !known { // the next batch comes after all of this one
		t.Error("the message is not known")
	}
	sameMessage(t, "a repeat", ack, a.send(text("1", "bob")))
}

func TestKnownForgetsSafely(t *testing.T) {
	k := make(known, 4)
	var ids []protocol.MessageID
	for i := range 100 {
		id := protocol.NewMessageID("p:a:b", "a", fmt.Sprint(i))
		ids = append(ids, id)
		k.put(id, uint64(i+1))
	}
	found := 0
	for i, id := range ids {
		if seq, ok := k.get(id); ok {
			found++
			if seq != uint64(i+1) {
				t.Errorf("message %d is said to be at %d", i+1, seq)
			}
		}
	}
	if found == 0 || found > len(k) {
		t.Errorf("%d found in a table of %d", found, len(k))
	}
}

// TestIDsThatCollide: two ids of a conversation share the 8 bytes that the sequencer keeps. The second message is not acked as the
// first, and gets in when the first is out of the horizon.
func TestIDsThatCollide(t *testing.T) {
	clock := newClock()
	s := startServer(t, nil, clock.options)
	a := s.online("alice")
	a.send(text("1", "bob"))
	for _, seq := range s.l.consumer.list { // idle: what it has was answered
		if c := seq.states.peek("p:alice:bob"); c != nil {
			e := *c.recent.at(1)
			e.tag = tagOf(protocol.NewMessageID("p:alice:bob", "alice", "2"))
			c.recent.link(1, e)
		}
	}
	wantCode(t, a.call(protocol.CmdSend, text("2", "bob"), nil), protocol.CodeUnavailable)
	for i := range repeatLast {
		a.send(text(fmt.Sprint("more ", i), "bob"))
	}
	clock.add(6 * time.Minute)
	if ack := a.send(text("2", "bob")); ack.Seq != repeatLast+2 {
		t.Errorf("acked with seq %d, want %d", ack.Seq, repeatLast+2)
	}
}
