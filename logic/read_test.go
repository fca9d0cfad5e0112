package logic

import (
	"fmt"
	"testing"

	"github.com/parley-im/parley/protocol"
)

func TestReadAndUnread(t *testing.T) {
	s := startServer(t, nil, nil)
	a, b1, b2 := s.online("alice"), s.online("bob"), s.online("bob")
	for i := range 10 {
		m := text(fmt.Sprint(i), "bob")
		if i == 4 {
			m.Flags = protocol.FlagNoUnread
		}
		a.send(m)
	}
	b1.send(text("own", "alice")) // seq 11: does not count for bob, and does not move his watermark
	unread := func(d *device) (u protocol.UnreadReply) {
		must(t, d.call(protocol.CmdUnread, nil, &u))
		return u
	}
	if u := unread(b1); u.Total != 9 || u.Conversations != 1 {
		t.Errorf("bob has %+v unread, want 9 in 1", u)
	}
	if u := unread(a); u.Total != 1 {
		t.Errorf("alice has %+v unread, want 1", u)
	}
	read := func(d *device, seq uint64) (r protocol.ReadReply) {
		must(t, d.call(protocol.CmdRead, &protocol.Position{ConversationID: "p:alice:bob", Seq: seq}, &r))
		return r
	}
	if r := read(b1, 6); r.Seq != 6 || r.Unread != 4 {
		t.Errorf("READ 6: %+v", r)
	}
	own, peer := b2.waitEvent(protocol.EventRead), a.waitEvent(protocol.EventRead)
	var data protocol.ReadData
	must(t, protocol.Unmarshal(own.Data, &data))
	if own.Seq != 6 || own.User != "bob" || data.Unread != 4 {
		t.Errorf("bob's other device is told %+v %+v", own, data)
	}
	if peer.Seq != 6 || peer.User != "bob" || len(peer.Data) != 0 {
		t.Errorf("alice is told %+v", peer)
	}
	for _, m := range a.pullAll("p:alice:bob", 0) {
		if want := m.Sender == "alice" && m.Seq <= 6; m.IsRead != want {
			t.Errorf("seq %d: is_read %v", m.Seq, m.IsRead)
		}
	}
	if r := read(b2, 3); r.Seq != 6 || r.Unread != 4 {
		t.Errorf("READ went backwards: %+v", r)
	}
	if r := read(b2, 0); r.Seq != 6 {
		t.Errorf("READ 0: %+v", r)
	}
	if r := read(b2, 1<<50); r.Seq != 11 || r.Unread != 0 {
		t.Errorf("READ above the tail: %+v", r)
	}
	if u := unread(b1); u.Total != 0 || u.Conversations != 0 {
		t.Errorf("bob has %+v unread, want none", u)
	}
}

func TestAccess(t *testing.T) {
	s := startServer(t, nil, nil)
	a, c := s.online("alice"), s.online("carol")
	a.send(text("m", "bob"))
	for id, code := range map[string]protocol.ErrorCode{
		"p:alice:bob": protocol.CodeForbidden, "p:alice:nobody": protocol.CodeForbidden, // the same whether it exists or not
		"g:team": protocol.CodeForbidden, "u:alice": protocol.CodeForbidden,
		"p:alice:carol": protocol.CodeNotFound, "u:carol": protocol.CodeNotFound,
		"p:carol:alice": protocol.CodeInvalidArgument, "": protocol.CodeInvalidArgument, "p:carol": protocol.CodeInvalidArgument,
		"p:alice:bob:carol": protocol.CodeInvalidArgument,
	} {
		wantCode(t, c.call(protocol.CmdPull, &protocol.Pull{ConversationID: id}, nil), code)
		wantCode(t, c.call(protocol.CmdRead, &protocol.Position{ConversationID: id, Seq: 1}, nil), code)
	}
	var r protocol.GetConversationsReply
	must(t, c.call(protocol.CmdGetConversation, &protocol.GetConversations{ConversationIDs: []string{"p:alice:bob", "p:alice:carol", "u:alice"}}, &r))
	if len(r.Conversations) != 0 {
		t.Errorf("carol sees %v", ids(r.Conversations))
	}
	wantCode(t, c.call(protocol.CmdGetConversation, &protocol.GetConversations{ConversationIDs: []string{"nonsense"}}, nil), protocol.CodeInvalidArgument)
}

func TestPullRanges(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	for i := range 250 {
		a.send(text(fmt.Sprint(i), "bob"))
	}
	for _, c := range []struct {
		from, to    uint64
		limit       uint16
		newest      bool
		first, last uint64 // 0: empty
		more        bool
	}{
		{0, 0, 0, false, 1, 50, true},
		{0, 0, 0, true, 250, 201, true},
		{0, 0, 1000, false, 1, 200, true},
		{201, 0, 50, false, 201, 250, false},
		{201, 300, 50, false, 201, 250, false},
		{100, 101, 10, false, 100, 101, false},
		{100, 101, 10, true, 101, 100, false},
		{100, 101, 1, true, 101, 101, true},
		{251, 0, 10, false, 0, 0, false},
		{251, 260, 10, true, 0, 0, false},
		{250, 250, 1, false, 250, 250, false},
	} {
		var r protocol.PullReply
		must(t, a.call(protocol.CmdPull, &protocol.Pull{ConversationID: "p:alice:bob", FromSeq: c.from, ToSeq: c.to, Limit: c.limit, NewestFirst: c.newest}, &r))
		if r.MinSeq != 1 || r.MaxSeq != 250 || r.More != c.more {
			t.Errorf("%+v: min %d max %d more %v", c, r.MinSeq, r.MaxSeq, r.More)
		}
		if c.first == 0 {
			if len(r.Messages) != 0 {
				t.Errorf("%+v: %d messages", c, len(r.Messages))
			}
			continue
		}
		if len(r.Messages) == 0 || r.Messages[0].Seq != c.first || r.Messages[len(r.Messages)-1].Seq != c.last {
			t.Errorf("%+v: got %d messages", c, len(r.Messages))
		}
	}
	wantCode(t, a.call(protocol.CmdPull, &protocol.Pull{ConversationID: "p:alice:bob", FromSeq: 7, ToSeq: 6}, nil), protocol.CodeInvalidArgument)
}
