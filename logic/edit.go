package logic

import (
	"bytes"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// edit replaces a message's content: the sender may, for a time.
func (l *Logic) edit(s *session, j job, q *protocol.Edit) error {
	if err := checkContent(q.ContentType, q.Content); err != nil {
		return err
	}
	slot, err := l.changeable(s, q.ConversationID, q.Seq)
	if err != nil {
		return err
	}
	if slot.Labels.Revoke != nil {
		return storage.ErrNotFound
	}
	if err := l.mayChange(s, &slot.Message, l.o.EditWithin); err != nil {
		return err
	}
	return l.intend(s, j, q.ConversationID, &storage.Intent{Op: storage.OpEdit, Seq: q.Seq, ContentType: q.ContentType, Content: q.Content})
}

// editLabels keeps the reactions. The message itself is never touched.
func editLabels(slot *storage.Slot, in *storage.Intent) *storage.Labels {
	contentType, content := slot.Message.ContentType, slot.Message.Content
	if e := slot.Labels.Edit; e != nil {
		contentType, content = e.ContentType, e.Content
	}
	if contentType == in.ContentType && bytes.Equal(content, in.Content) {
		return nil
	}
	return &storage.Labels{
		Edit: &storage.Edit{ContentType: in.ContentType, Content: in.Content, TimeMS: in.TimeMS}, Reactions: slot.Labels.Reactions,
	}
}
