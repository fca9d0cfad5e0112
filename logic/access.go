package logic

import (
	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// mayRead checks that a user may read a conversation, before anything about it is looked up, so that the answer is the same whether it
// exists or not. peer is the other side of a direct conversation.
func mayRead(user, conversation string) (peer string, err error) {
	kind, a, b := protocol.ParseConversation(conversation)
	switch {
	case kind == protocol.KindInvalid:
		return "", invalid("conversation_id is not valid")
	case kind == protocol.KindDirect && user == a:
		return b, nil
	case kind == protocol.KindDirect && user == b:
		return a, nil
	case kind == protocol.KindUser && user == a:
		return "", nil
	}
	return "", &protocol.Error{Code: protocol.CodeForbidden, Message: "not a member", Reason: protocol.ReasonNotMember}
}

// entry looks up a conversation on the session's user's list.
func (l *Logic) entry(s *session, conversation string) (*storage.Entry, error) {
	if _, err := mayRead(s.User, conversation); err != nil {
		return nil, err
	}
	entries, err := l.o.Directory.Entries(l.ctx, s.User, []string{conversation})
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, &protocol.Error{Code: protocol.CodeNotFound, Message: "no such conversation"}
	}
	return &entries[0], nil
}

// viewer is the session's user before an entry of theirs.
func (s *session) viewer(e *storage.Entry) storage.Viewer {
	return storage.Viewer{User: s.User, MinSeq: e.MinSeq, PeerReadSeq: e.PeerReadSeq}
}
