package logic

import (
	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// revoke takes a message back: the sender may, for a time. One that was taken back before stays so, and is told again.
func (l *Logic) revoke(s *session, j job, q *protocol.Position) error {
	slot, err := l.changeable(s, q.ConversationID, q.Seq)
	if err != nil {
		return err
	}
	if slot.Labels.Revoke == nil {
		if err := l.mayChange(s, &slot.Message, l.o.RevokeWithin); err != nil {
			return err
		}
	}
	return l.intend(s, j, q.ConversationID, &storage.Intent{Op: storage.OpRevoke, Seq: q.Seq, Role: protocol.RoleSender})
}

// revokeLabels replaces all other labels: they belong to the content.
func revokeLabels(l *storage.Labels, in *storage.Intent) *storage.Labels {
	if l.Revoke != nil {
		return nil
	}
	return &storage.Labels{Revoke: &protocol.Revoke{User: in.User, Role: in.Role, TimeMS: in.TimeMS}}
}
