package logic

import (
	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// clear takes everything up to a seq out of the user's sight, on all of their devices: one write, however many messages.
func (l *Logic) clear(s *session, j job, q *protocol.Clear) error {
	e, err := l.ownEntry(s, q.ConversationID)
	if err != nil {
		return err
	}
	upTo := e.State.Tail
	if q.UpToSeq != 0 {
		upTo = min(q.UpToSeq, upTo)
	}
	change := &storage.Own{User: s.User, Conversation: e.Conversation, MinSeq: upTo + 1}
	state := &protocol.OwnState{Op: protocol.OwnClear, ConversationID: e.Conversation, UpToSeq: upTo}
	return l.applyOwn(s, j, change, state, &protocol.ClearReply{MinSeq: max(e.MinSeq, upTo+1)})
}
