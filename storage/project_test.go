package storage

import (
	"reflect"
	"testing"

	"github.com/parley-im/parley/protocol"
)

func stored() protocol.Message {
	return protocol.Message{
		ConversationID: "p:alice:bob", Seq: 7, ServerMsgID: "s", ClientMsgID: "c", Sender: "alice", ContentType: 1, Content: []byte("hello"),
		SendTimeMS: 1000, Flags: protocol.FlagNoPush, Mentions: []string{"bob"}, Run: 1,
	}
}

func TestProject(t *testing.T) {
	revoke := &protocol.Revoke{User: "alice", Role: protocol.RoleSender, TimeMS: 2000}
	edit := &Edit{ContentType: protocol.ContentQuote, Content: []byte("hello again"), TimeMS: 3000}
	reactions := []Reaction{{Kind: "+1", Count: 70, Mine: true, Users: []string{"carol"}}}
	nothing := func(status protocol.Status) protocol.Message {
		return protocol.Message{ConversationID: "p:alice:bob", Seq: 7, Status: status, Run: 1}
	}
	changed := func(change func(*protocol.Message)) protocol.Message {
		m := stored()
		change(&m)
		return m
	}
	revoked := changed(func(m *protocol.Message) {
		m.Status, m.Revoke, m.Content, m.Mentions, m.ChangeSeq = protocol.StatusRevoked, revoke, nil, nil, 3
	})
	for _, c := range []struct {
		name   string
		labels Labels
		viewer Viewer
		want   protocol.Message
	}{
		{"plain, for the other side", Labels{}, Viewer{User: "bob", MinSeq: 1}, stored()},
		{"plain, for the sender, not read", Labels{}, Viewer{User: "alice", MinSeq: 1, PeerReadSeq: 6}, stored()},
		{"read", Labels{}, Viewer{User: "alice", MinSeq: 1, PeerReadSeq: 7}, changed(func(m *protocol.Message) { m.IsRead = true })},
		{"read further", Labels{}, Viewer{User: "alice", MinSeq: 1, PeerReadSeq: 100}, changed(func(m *protocol.Message) { m.IsRead = true })},
		{"the reader is not told", Labels{}, Viewer{User: "bob", MinSeq: 1, PeerReadSeq: 100}, stored()},
		{"at the lowest seq", Labels{}, Viewer{User: "bob", MinSeq: 7}, stored()},
		{"below the lowest seq", Labels{}, Viewer{User: "bob", MinSeq: 8}, nothing(protocol.StatusHidden)},
		{"deleted by the viewer", Labels{Hidden: true}, Viewer{User: "bob", MinSeq: 1}, nothing(protocol.StatusHidden)},
		{"revoked", Labels{Revoke: revoke, ChangeSeq: 3}, Viewer{User: "bob", MinSeq: 1}, revoked},
		{"revoked, for its sender, read", Labels{Revoke: revoke, ChangeSeq: 3}, Viewer{User: "alice", MinSeq: 1, PeerReadSeq: 9},
			func() protocol.Message { m := revoked; m.IsRead = true; return m }()},
		{"revoked and deleted", Labels{Revoke: revoke, Hidden: true}, Viewer{User: "bob", MinSeq: 1}, nothing(protocol.StatusHidden)},
		{"purged", Labels{Gone: true}, Viewer{User: "bob", MinSeq: 1}, nothing(protocol.StatusGone)},
		{"purged, revoked, deleted, below the lowest", Labels{Gone: true, Revoke: revoke, Hidden: true, ChangeSeq: 3},
			Viewer{User: "bob", MinSeq: 9}, nothing(protocol.StatusGone)},
		{"edited", Labels{Edit: edit, ChangeSeq: 4}, Viewer{User: "bob", MinSeq: 1}, changed(func(m *protocol.Message) {
			m.ContentType, m.Content, m.EditMS, m.ChangeSeq = protocol.ContentQuote, edit.Content, 3000, 4
		})},
		{"reacted to", Labels{Reactions: reactions, ChangeSeq: 4}, Viewer{User: "bob", MinSeq: 1}, changed(func(m *protocol.Message) {
			m.Reactions, m.ChangeSeq = []protocol.Reaction{{Reaction: "+1", Count: 70, Mine: true, Users: []string{"carol"}}}, 4
		})},
		{"revoked after an edit and a reaction", Labels{Revoke: revoke, Edit: edit, Reactions: reactions, ChangeSeq: 3}, Viewer{User: "bob", MinSeq: 1}, revoked},
		{"changed otherwise", Labels{ChangeSeq: 5}, Viewer{User: "bob", MinSeq: 1}, changed(func(m *protocol.Message) { m.ChangeSeq = 5 })},
	} {
		m := stored()
		if got := Project(&m, &c.labels, c.viewer); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, got, c.want)
		}
		if !reflect.DeepEqual(m, stored()) {
			t.Errorf("%s: the message was changed to %+v", c.name, m)
		}
	}
}

// TestRevokedContentStays: no byte of a revoked message's content or mentions is in what is sent to anybody.
func TestRevokedContentStays(t *testing.T) {
	labels := Labels{
		Revoke: &protocol.Revoke{User: "alice", Role: protocol.RoleSender}, Edit: &Edit{ContentType: 1, Content: []byte("hello again")},
		Reactions: []Reaction{{Kind: "+1", Count: 1}},
	}
	for _, user := range []string{"alice", "bob", ""} {
		m := stored()
		view := Project(&m, &labels, Viewer{User: user, MinSeq: 1})
		if view.Content != nil || view.Mentions != nil || view.Status != protocol.StatusRevoked || view.Reactions != nil || view.EditMS != 0 {
			t.Errorf("%q sees %+v", user, view)
		}
	}
}

func TestCountsAsUnread(t *testing.T) {
	for _, c := range []struct {
		m    protocol.Message
		want bool
	}{
		{protocol.Message{ContentType: protocol.ContentText}, true},
		{protocol.Message{ContentType: 999}, true},
		{protocol.Message{ContentType: protocol.ContentServer}, false},
		{protocol.Message{ContentType: protocol.ContentGroupChange}, false},
		{protocol.Message{ContentType: protocol.ContentText, Flags: protocol.FlagNoUnread}, false},
		{protocol.Message{ContentType: protocol.ContentText, Flags: protocol.FlagNoPush}, true},
		{protocol.Message{ContentType: protocol.ContentText, Flags: protocol.FlagNoPush | protocol.FlagNoUnread}, false},
	} {
		if got := CountsAsUnread(&c.m); got != c.want {
			t.Errorf("type %d, flags %b: %t", c.m.ContentType, c.m.Flags, got)
		}
	}
}

func TestSide(t *testing.T) {
	_, a, b := protocol.ParseConversation(protocol.DirectConversation("bob", "alice"))
	if Side("alice", a) != 0 || Side("bob", a) != 1 || Side(b, a) != 1 {
		t.Errorf("alice is %d, bob %d", Side("alice", a), Side("bob", a))
	}
}
