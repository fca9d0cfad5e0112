package logic

import (
	"slices"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// conversationBytes is what a conversation takes in a reply without its last message, at most.
const conversationBytes = 512

// getConversations answers for those of the conversations that are on the user's list. One that is not, and one that is nobody's, are left out
// alike. If their last messages together are too much for one reply, the later ones come without: PULL has them.
func (l *Logic) getConversations(s *session, q *protocol.GetConversations) (*protocol.GetConversationsReply, error) {
	var ids []string
	for _, id := range q.ConversationIDs {
		if kind, _, _ := protocol.ParseConversation(id); kind == protocol.KindInvalid {
			return nil, invalid("conversation_ids has an invalid id")
		}
		if _, err := mayRead(s.User, id); err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	entries, err := l.o.Directory.Entries(l.ctx, s.User, ids)
	if err != nil {
		return nil, err
	}
	reply := &protocol.GetConversationsReply{}
	room := l.o.MaxDown - replyOverhead - len(entries)*conversationBytes
	for i := range entries {
		c, err := l.conversation(s, &entries[i])
		if err != nil {
			return nil, err
		}
		if c.LastMessage != nil {
			if room -= encodedSize(c.LastMessage); room < 0 {
				c.LastMessage = nil
			}
		}
		reply.Conversations = append(reply.Conversations, c)
	}
	return reply, nil
}

// conversation is an entry as its owner sees it, with its last message.
func (l *Logic) conversation(s *session, e *storage.Entry) (c protocol.Conversation, err error) {
	c = protocol.Conversation{
		ConversationID: e.Conversation, MaxSeq: e.State.Tail, MinSeq: e.MinSeq, ReadSeq: e.ReadSeq, PeerReadSeq: e.PeerReadSeq,
		ActiveMS: e.State.ActiveMS, ChangeSeq: e.ChangeSeq,
	}
	if c.Unread, err = l.unreadOf(s.User, e); err != nil {
		return c, err
	}
	if e.State.Tail < max(e.MinSeq, 1) {
		return c, nil
	}
	last, err := l.slot(e.Conversation, s.User, e.State.Tail)
	if err != nil {
		return c, err
	}
	view := storage.Project(&last.Message, &last.Labels, s.viewer(e))
	c.LastMessage = &view
	return c, nil
}
