package storage

import "github.com/parley-im/parley/protocol"

// Labels are what was done to a message after it was stored. Each has writers of its own; the message itself never changes.
type Labels struct {
	Revoke    *protocol.Revoke
	Edit      *Edit      // the latest
	Reactions []Reaction // in the order in which their kinds were first used
	Hidden    bool       // the viewer for whom the slot was read deleted it
	Gone      bool       // purged by an operator
	ChangeSeq uint64     // of the latest change that everybody sees
}

// Edit is a message's content after its sender changed it.
type Edit struct {
	ContentType uint16
	Content     []byte
	TimeMS      int64
}

// Reaction is one kind of reaction to a message.
type Reaction struct {
	Kind  string
	Count uint32
	Users []string // who, as far as the slot has room
	Mine  bool     // the viewer for whom the slot was read is among them
}

// MaxDeleters is how many users who deleted a message for themselves are named in a slot; the others are kept beside it, so that no label
// grows a document without bound. Reactions have protocol.MaxReactions and protocol.MaxReactors.
const MaxDeleters = 64

// Viewer is who looks at a message.
type Viewer struct {
	User        string
	MinSeq      uint64
	PeerReadSeq uint64 // direct: how far the other side has read
}

// Project is the one function from a stored message, its labels and a viewer to what that viewer sees; cached and uncached reads,
// pushes and the API all use it. The message is not changed; the view may share its content.
func Project(m *protocol.Message, l *Labels, v Viewer) protocol.Message {
	switch {
	case l.Gone:
		return placeholder(m, protocol.StatusGone)
	case m.Seq < v.MinSeq || l.Hidden:
		return placeholder(m, protocol.StatusHidden)
	}
	view := *m
	view.ChangeSeq = l.ChangeSeq
	view.IsRead = m.Sender == v.User && m.Seq <= v.PeerReadSeq
	if l.Revoke != nil {
		view.Status = protocol.StatusRevoked
		view.Revoke = l.Revoke
		view.Content = nil
		view.Mentions = nil
		return view
	}
	if l.Edit != nil {
		view.ContentType, view.Content, view.EditMS = l.Edit.ContentType, l.Edit.Content, l.Edit.TimeMS
	}
	for i := range l.Reactions {
		r := &l.Reactions[i]
		view.Reactions = append(view.Reactions, protocol.Reaction{Reaction: r.Kind, Count: r.Count, Mine: r.Mine, Users: r.Users})
	}
	return view
}

// placeholder stands for one seq that has nothing to show: no sender and no content.
func placeholder(m *protocol.Message, status protocol.Status) protocol.Message {
	return protocol.Message{ConversationID: m.ConversationID, Seq: m.Seq, Status: status, Run: 1}
}

// CountsAsUnread tells whether a message raises the other side's unread count.
func CountsAsUnread(m *protocol.Message) bool {
	return m.Flags&protocol.FlagNoUnread == 0 && m.ContentType < protocol.ContentServer
}

// Side is the index in Counts of a user of a direct conversation whose first user in byte order is a.
func Side(user, a string) int {
	if user == a {
		return 0
	}
	return 1
}
