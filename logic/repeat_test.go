package logic

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

func sameMessage(t *testing.T, what string, first, again protocol.SendAck) {
	t.Helper()
	if first != again {
		t.Errorf("%s: acked as %+v, before as %+v", what, again, first)
	}
}

func TestRepeats(t *testing.T) {
	s := startServer(t, nil, nil)
	a, a2, b := s.online("alice"), s.online("alice"), s.online("bob")

	// At once, within one read.
	frame := func(id uint32) protocol.Frame {
		return protocol.Frame{
			Header: protocol.Header{Command: protocol.CmdSend, RequestID: id}, Body: protocol.AppendBody(nil, text("m1", "bob")),
		}
	}
	s.l.Handle(a.session.ID, []protocol.Frame{frame(1001), frame(1002), frame(1003)})
	var first, ack protocol.SendAck
	must(t, a.reply(1001, &first))
	must(t, a.reply(1002, &ack))
	sameMessage(t, "in one read", first, ack)
	must(t, a.reply(1003, &ack))
	sameMessage(t, "in one read", first, ack)

	// Later, on another connection, with another content: the first stands.
	other := text("m1", "bob")
	other.Content = []byte("changed my mind")
	sameMessage(t, "on another connection", first, a2.send(other))

	// The same id to another user is another message; so is another sender's in the same conversation.
	if ack := a.send(text("m1", "carol")); ack.ServerMsgID == first.ServerMsgID || ack.Seq != 1 {
		t.Errorf("to another user: %+v", ack)
	}
	if ack := b.send(text("m1", "alice")); ack.ServerMsgID == first.ServerMsgID || ack.Seq != 2 {
		t.Errorf("from the other side: %+v", ack)
	}
	if got := b.pullAll("p:alice:bob", 0); len(got) != 2 || string(got[0].Content) != "text of m1" {
		t.Errorf("stored: %+v", got)
	}
}

// TestRepeatsAtTheSameMoment sends each message on two connections at once.
func TestRepeatsAtTheSameMoment(t *testing.T) {
	s := startServer(t, nil, nil)
	a1, a2, b := s.online("alice"), s.online("alice"), s.online("bob")
	const n = 300
	acks := make([][2]protocol.SendAck, n)
	var wg sync.WaitGroup
	for k, d := range []*device{a1, a2} {
		wg.Go(func() {
			for i := range n {
				acks[i][k] = d.send(text(fmt.Sprint("m", i), "bob"))
			}
		})
	}
	wg.Wait()
	for i := range acks {
		sameMessage(t, "on two connections", acks[i][0], acks[i][1])
	}
	if got := b.pullAll("p:alice:bob", 200); len(got) != n {
		t.Errorf("%d messages stored, want %d", len(got), n)
	}
}

// TestRepeatAfterRestart: the ids are read back from the newest messages, 200 of them at any age.
func TestRepeatAfterRestart(t *testing.T) {
	clock := newClock()
	s := startServer(t, nil, clock.options)
	a := s.online("alice")
	var acks []protocol.SendAck
	for i := range 200 {
		acks = append(acks, a.send(text(fmt.Sprint(i), "bob")))
	}
	s.stop()
	clock.add(time.Hour)
	s2 := startServer(t, s.fs, clock.options)
	a = s2.online("alice")
	for i := range acks {
		sameMessage(t, "after a restart", acks[i], a.send(text(fmt.Sprint(i), "bob")))
	}
	if ack := a.send(text("next", "bob")); ack.Seq != 201 {
		t.Errorf("the next message has seq %d, want 201", ack.Seq)
	}
}

// TestStatesAreBounded keeps next to no conversation in memory: they are loaded again and again, and numbers and repeats stay right.
func TestStatesAreBounded(t *testing.T) {
	s := startServer(t, nil, func(o *Options) { o.StateBytes = 1 })
	a := s.online("alice")
	var first [20]protocol.SendAck
	for round := range 10 {
		for c := range first {
			to := fmt.Sprint("user-", c)
			if ack := a.send(text(fmt.Sprint(round), to)); ack.Seq != uint64(round+1) {
				t.Fatalf("to %s in round %d: seq %d", to, round, ack.Seq)
			}
			ack := a.send(text("0", to))
			if round == 0 {
				first[c] = ack
			}
			sameMessage(t, "after eviction", first[c], ack)
		}
	}
}
