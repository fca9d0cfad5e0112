package logic

import (
	"fmt"
	"slices"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// syncAll pages through the list. between runs after each page but the last.
func (d *device) syncAll(token string, limit uint16, between func()) (list []protocol.Conversation, next string, reset bool) {
	d.t.Helper()
	for cursor := ""; ; {
		var r protocol.SyncReply
		must(d.t, d.call(protocol.CmdSync, &protocol.Sync{Token: token, Cursor: cursor, Limit: limit}, &r))
		list = append(list, r.Conversations...)
		if (r.NextCursor == "") == (r.Token == "") {
			d.t.Fatalf("a page has cursor %q and token %q", r.NextCursor, r.Token)
		}
		if r.NextCursor == "" {
			return list, r.Token, r.Reset
		}
		cursor = r.NextCursor
		if between != nil {
			between()
		}
	}
}

func ids(list []protocol.Conversation) (ids []string) {
	for _, c := range list {
		ids = append(ids, c.ConversationID)
	}
	return ids
}

func TestSyncFindsWhatChanged(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	list, token, reset := a.syncAll("", 0, nil)
	if len(list) != 0 || reset {
		t.Errorf("a new user's list: %v, reset %v", list, reset)
	}
	for i := range 25 {
		a.send(text("m", fmt.Sprintf("user-%02d", i)))
	}
	list, token, _ = a.syncAll(token, 10, nil)
	if len(list) != 25 {
		t.Fatalf("%d conversations, want 25", len(list))
	}
	if !slices.IsSortedFunc(list, func(x, y protocol.Conversation) int { return int(y.ActiveMS - x.ActiveMS) }) {
		t.Error("the list is not most recently active first")
	}
	if c := list[0]; c.MaxSeq != 1 || c.MinSeq != 1 || c.LastMessage == nil || c.LastMessage.ClientMsgID != "m" || c.ActiveMS != c.LastMessage.SendTimeMS {
		t.Errorf("conversation %+v", c)
	}
	if list, token, _ = a.syncAll(token, 0, nil); len(list) != 0 {
		t.Errorf("nothing changed, but there are %v", ids(list))
	}

	// A message of the other side, the other side's watermark, and one's own.
	u7, u8 := s.online("user-07"), s.online("user-08")
	u7.send(text("reply", "alice"))
	must(t, u8.call(protocol.CmdRead, &protocol.Position{ConversationID: "p:alice:user-08", Seq: 1}, nil))
	must(t, a.call(protocol.CmdRead, &protocol.Position{ConversationID: "p:alice:user-09", Seq: 1}, nil))
	list, token, _ = a.syncAll(token, 0, nil)
	got := ids(list)
	slices.Sort(got)
	if want := []string{"p:alice:user-07", "p:alice:user-08", "p:alice:user-09"}; !slices.Equal(got, want) {
		t.Errorf("changed: %v, want %v", got, want)
	}
	for _, c := range list {
		switch c.ConversationID {
		case "p:alice:user-07":
			if c.Unread != 1 || c.MaxSeq != 2 {
				t.Errorf("%+v", c)
			}
		case "p:alice:user-08":
			if c.PeerReadSeq != 1 || !c.LastMessage.IsRead {
				t.Errorf("%+v", c)
			}
		case "p:alice:user-09":
			if c.ReadSeq != 1 {
				t.Errorf("%+v", c)
			}
		}
	}
	if list, _, _ = a.syncAll(token, 0, nil); len(list) != 0 {
		t.Errorf("nothing changed, but there are %v", ids(list))
	}
}

// TestSyncWhileThingsChange: what changes between two pages is on a later page or comes with the next SYNC.
func TestSyncWhileThingsChange(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	const n = 30
	for i := range n {
		a.send(text("m", fmt.Sprintf("user-%02d", i)))
	}
	seen := map[string]uint64{}
	step := 0
	note := func(list []protocol.Conversation) {
		for _, c := range list {
			seen[c.ConversationID] = max(seen[c.ConversationID], c.MaxSeq)
		}
	}
	list, token, _ := a.syncAll("", 4, func() {
		a.send(text(fmt.Sprint("n", step), fmt.Sprintf("user-%02d", (step*11)%n)))
		step++
	})
	note(list)
	list, _, _ = a.syncAll(token, 4, nil)
	note(list)
	for i := range n {
		id := fmt.Sprintf("p:alice:user-%02d", i)
		var r protocol.GetConversationsReply
		must(t, a.call(protocol.CmdGetConversation, &protocol.GetConversations{ConversationIDs: []string{id}}, &r))
		if seen[id] != r.Conversations[0].MaxSeq {
			t.Errorf("%s: SYNC has seen max_seq %d, it is %d", id, seen[id], r.Conversations[0].MaxSeq)
		}
	}
}

func TestSyncTokens(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	a.send(text("m", "bob"))
	for name, token := range map[string]string{
		"garbage": "!!", "of another epoch": formatToken(1, "another"), "of the future": formatToken(storage.Stamp(1<<50), s.l.epoch),
		"of another version": "AgA",
	} {
		if list, _, reset := a.syncAll(token, 0, nil); !reset || len(list) != 1 {
			t.Errorf("a token %s: reset %v and %d conversations", name, reset, len(list))
		}
	}
	wantCode(t, a.call(protocol.CmdSync, &protocol.Sync{Cursor: "garbage"}, nil), protocol.CodeInvalidArgument)
	// A token is no credential: another user's shows one's own list.
	_, token, _ := a.syncAll("", 0, nil)
	if list, _, _ := s.online("carol").syncAll(token, 0, nil); len(list) != 0 {
		t.Errorf("carol sees %v", ids(list))
	}
}

// TestSyncPagesFitTheBound: large last messages make short pages, and all come.
func TestSyncPagesFitTheBound(t *testing.T) {
	s := startServer(t, nil, func(o *Options) { o.MaxDown = 70 << 10 })
	a := s.online("alice")
	for i := range 12 {
		m := text("m", fmt.Sprint("user-", i))
		m.Content = make([]byte, 60<<10)
		a.send(m)
	}
	list, _, _ := a.syncAll("", 0, nil)
	if len(list) != 12 {
		t.Errorf("%d conversations, want 12", len(list))
	}
	if got := a.pullAll("p:alice:user-3", 0); len(got) != 1 {
		t.Errorf("pulled %d", len(got))
	}
	for _, f := range a.frames {
		if len(f.Body) > 70<<10 {
			t.Errorf("a body of %d bytes", len(f.Body))
		}
	}
}

// TestNothingFallsBetweenSyncAndPush: a device comes online while messages arrive, 1,000 times. What its SYNC does not have is
// pushed to it.
func TestNothingFallsBetweenSyncAndPush(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				a.send(text(fmt.Sprint(i), "bob"))
			}
		}
	}()
	for round := range 1000 {
		b := s.online("bob")
		list, _, _ := b.syncAll("", 0, nil)
		have := uint64(0)
		if len(list) == 1 {
			have = list[0].MaxSeq
		}
		// From here on the pushes must go on without a gap, from have + 1 or lower.
		pushed := b.waitPushed(1)
		if pushed[0].Seq > have+1 {
			t.Fatalf("round %d: SYNC has up to %d, the first push is %d", round, have, pushed[0].Seq)
		}
		for i := range pushed {
			if pushed[i].Seq != pushed[0].Seq+uint64(i) {
				t.Fatalf("round %d: pushes %d and %d follow each other", round, pushed[i-1].Seq, pushed[i].Seq)
			}
		}
		b.hangUp()
	}
	close(stop)
	<-stopped
}
