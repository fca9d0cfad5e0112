package logic

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

func TestSendReachesAllDevicesOfBothSides(t *testing.T) {
	s := startServer(t, nil, nil)
	a1, a2, b1, b2, c := s.online("alice"), s.online("alice"), s.online("bob"), s.online("bob"), s.online("carol")
	ack := a1.send(&protocol.Send{
		ClientMsgID: "m1", Kind: protocol.KindDirect, Target: "bob", ContentType: 100, Content: []byte{0, 1, 2},
		Flags: protocol.FlagNoPush, Mentions: []string{"bob", "*"},
	})
	if ack.Seq != 1 || ack.ConversationID != "p:alice:bob" || ack.ClientMsgID != "m1" || ack.SendTimeMS == 0 {
		t.Errorf("ack %+v", ack)
	}
	for _, d := range []*device{a2, b1, b2} {
		m := d.waitPushed(1)[0]
		if m.Seq != 1 || m.ServerMsgID != ack.ServerMsgID || m.Sender != "alice" || !bytes.Equal(m.Content, []byte{0, 1, 2}) ||
			m.Flags != protocol.FlagNoPush || strings.Join(m.Mentions, ",") != "bob,*" || m.SendTimeMS != ack.SendTimeMS {
			t.Errorf("pushed %+v", m)
		}
	}
	if got := a1.pushed(); len(got) != 0 {
		t.Errorf("the sending device, which has the ack, was pushed %v", got)
	}
	if got := c.pushed(); len(got) != 0 {
		t.Errorf("a stranger was pushed %v", got)
	}
}

// TestPushIsTheProjection: what is pushed, from the encoding that is stored, is what Project makes of the message for a viewer, as PULL
// gives it.
func TestPushIsTheProjection(t *testing.T) {
	s := startServer(t, nil, nil)
	a, b := s.online("alice"), s.online("bob")
	for i := range 150 {
		a.send(&protocol.Send{ClientMsgID: fmt.Sprint(i), Kind: 1, Target: "bob", ContentType: uint16(100 + i), Content: make([]byte, i), Flags: uint32(i % 4)})
	}
	pushed, pulled := b.waitPushed(150), b.pullAll("p:alice:bob", 40)
	for i := range pushed {
		x, y := protocol.AppendBody(nil, &pushed[i]), protocol.AppendBody(nil, &pulled[i])
		if !bytes.Equal(x, y) {
			t.Fatalf("pushed %+v, pulled %+v", pushed[i], pulled[i])
		}
		slot, err := s.l.slot("p:alice:bob", "", uint64(i+1))
		must(t, err)
		view := storage.Project(&slot.Message, &slot.Labels, storage.Viewer{User: "bob", MinSeq: 1})
		if !bytes.Equal(x, protocol.AppendBody(nil, &view)) {
			t.Fatalf("pushed %+v, projected %+v", pushed[i], view)
		}
	}
}

func TestSendToOneself(t *testing.T) {
	s := startServer(t, nil, nil)
	a1, a2 := s.online("alice"), s.online("alice")
	if ack := a1.send(text("m1", "alice")); ack.ConversationID != "p:alice:alice" || ack.Seq != 1 {
		t.Errorf("ack %+v", ack)
	}
	if got := a2.waitPushed(1); len(got) != 1 {
		t.Errorf("pushed %d times", len(got))
	}
	var u protocol.UnreadReply
	must(t, a2.call(protocol.CmdUnread, nil, &u))
	if u.Total != 0 {
		t.Errorf("one's own note is unread: %+v", u)
	}
}

func TestSendRefusals(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	edit := func(change func(*protocol.Send)) *protocol.Send {
		m := text("m", "bob")
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		m    *protocol.Send
		code protocol.ErrorCode
	}{
		"no client_msg_id":     {edit(func(m *protocol.Send) { m.ClientMsgID = "" }), protocol.CodeInvalidArgument},
		"client_msg_id of 65":  {edit(func(m *protocol.Send) { m.ClientMsgID = strings.Repeat("x", 65) }), protocol.CodeInvalidArgument},
		"kind 0":               {edit(func(m *protocol.Send) { m.Kind = 0 }), protocol.CodeInvalidArgument},
		"kind 3":               {edit(func(m *protocol.Send) { m.Kind = 3 }), protocol.CodeInvalidArgument},
		"no target":            {edit(func(m *protocol.Send) { m.Target = "" }), protocol.CodeInvalidArgument},
		"target with a colon":  {edit(func(m *protocol.Send) { m.Target = "a:b" }), protocol.CodeInvalidArgument},
		"content type 0":       {edit(func(m *protocol.Send) { m.ContentType = 0 }), protocol.CodeInvalidArgument},
		"content type 8":       {edit(func(m *protocol.Send) { m.ContentType = 8 }), protocol.CodeInvalidArgument},
		"the server's type":    {edit(func(m *protocol.Send) { m.ContentType = 1003 }), protocol.CodeInvalidArgument},
		"text that is not":     {edit(func(m *protocol.Send) { m.Content = []byte{0xff} }), protocol.CodeInvalidArgument},
		"unknown flag":         {edit(func(m *protocol.Send) { m.Flags = 4 }), protocol.CodeInvalidArgument},
		"bad mention":          {edit(func(m *protocol.Send) { m.Mentions = []string{"a b"} }), protocol.CodeInvalidArgument},
		"101 mentions":         {edit(func(m *protocol.Send) { m.Mentions = make([]string, 101) }), protocol.CodeInvalidArgument},
		"a group":              {edit(func(m *protocol.Send) { m.Kind = 2 }), protocol.CodeForbidden},
		"a group by no member": {edit(func(m *protocol.Send) { m.Kind, m.Target = 2, "no-such" }), protocol.CodeForbidden},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, a.call(protocol.CmdSend, c.m, nil), c.code) })
	}
	if ack := a.send(text("ok", "bob")); ack.Seq != 1 {
		t.Errorf("refused messages took seqs: %+v", ack)
	}
}

func TestMalformedBodyCloses(t *testing.T) {
	s := startServer(t, nil, nil)
	for _, cmd := range []protocol.Command{protocol.CmdSend, protocol.CmdPull, protocol.CmdUnread} {
		a := s.online("alice")
		s.l.Handle(a.session.ID, []protocol.Frame{{Header: protocol.Header{Command: cmd, RequestID: 7}, Body: []byte{0x93, 0xc1}}})
		wantCode(t, a.reply(7, nil), protocol.CodeBadFrame)
		s.g.wait(t, "the close", func() bool { return a.closed })
	}
}

func TestUnknownCommands(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	for _, cmd := range []protocol.Command{
		0, protocol.CmdSetConversation, protocol.CmdRemove, protocol.CmdWatchPresence, protocol.CmdGetProfiles, protocol.CmdSetProfile,
		protocol.CmdReaders, protocol.CmdWelcome, protocol.CmdPush, 81, 101, 65535,
	} {
		wantCode(t, a.call(cmd, nil, nil), protocol.CodeUnknownCommand)
	}
	if a.closed {
		t.Error("an unknown command closed the connection")
	}
}

// TestPipelinedSendsKeepTheirOrder hands in 2,000 sends of one connection, some in one read, some alone.
func TestPipelinedSendsKeepTheirOrder(t *testing.T) {
	s := startServer(t, nil, nil)
	a, b := s.online("alice"), s.online("bob")
	const n = 2000
	var frames []protocol.Frame
	for i := range n {
		body := protocol.AppendBody(nil, text(fmt.Sprint(i), "bob"))
		frames = append(frames, protocol.Frame{Header: protocol.Header{Command: protocol.CmdSend, RequestID: uint32(i + 1)}, Body: body})
		if i%7 == 0 {
			s.l.Handle(a.session.ID, frames)
			frames = frames[:0]
		}
	}
	s.l.Handle(a.session.ID, frames)
	for i, m := range b.waitPushed(n) {
		if m.Seq != uint64(i+1) || m.ClientMsgID != fmt.Sprint(i) {
			t.Fatalf("at %d: seq %d of %s", i, m.Seq, m.ClientMsgID)
		}
	}
	for i := range n {
		var ack protocol.SendAck
		must(t, protocol.Unmarshal(a.frames[i].Body, &ack))
		if ack.Seq != uint64(i+1) || a.frames[i].RequestID != uint32(i+1) {
			t.Fatalf("ack %d is of seq %d", i, ack.Seq)
		}
	}
}

// TestOneBusyConversation: 5,000 messages to one conversation, at once and from many connections, are all stored.
func TestOneBusyConversation(t *testing.T) {
	s := startServer(t, nil, nil)
	const senders, each = 50, 100
	watcher := s.online("bob")
	var wg sync.WaitGroup
	for n := range senders {
		d := s.online([]string{"alice", "bob"}[n%2])
		to := []string{"bob", "alice"}[n%2]
		wg.Go(func() {
			for i := range each {
				d.request(protocol.CmdSend, text(fmt.Sprint(n, "-", i), to))
			}
		})
	}
	wg.Wait()
	pushed := watcher.waitPushed(senders * each)
	last := map[string]int{}
	for i, m := range pushed {
		var n, k int
		_, err := fmt.Sscanf(m.ClientMsgID, "%d-%d", &n, &k)
		must(t, err)
		sender := fmt.Sprint(n)
		if m.Seq != uint64(i+1) || k != last[sender] {
			t.Fatalf("push %d: seq %d, message %d of sender %d, expected its %d", i, m.Seq, k, n, last[sender])
		}
		last[sender]++
	}
	if got := watcher.pullAll("p:alice:bob", 200); len(got) != senders*each {
		t.Errorf("%d messages stored, want %d", len(got), senders*each)
	}
}
