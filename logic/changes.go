package logic

import (
	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

const (
	defaultChangesLimit = 50
	// maxChangesBehind is how far back CHANGES goes. A device that is further behind reads anew what it keeps: that costs less.
	maxChangesBehind = 10_000
)

// changes answers which messages changed since a change_seq, each as it is now, in the order of their last change.
func (l *Logic) changes(s *session, q *protocol.Changes) (*protocol.ChangesReply, error) {
	e, err := l.entry(s, q.ConversationID)
	if err != nil {
		return nil, err
	}
	if q.Since > e.ChangeSeq || e.ChangeSeq-q.Since > maxChangesBehind {
		return &protocol.ChangesReply{Next: e.ChangeSeq, Reset: true}, nil
	}
	limit := pageLimit(q.Limit, defaultChangesLimit, protocol.MaxArray)
	notes := make([]storage.Note, 0, limit)
	reply := &protocol.ChangesReply{Next: q.Since}
	err = l.o.Changes.Notes(l.ctx, q.ConversationID, q.Since, func(n storage.Note) bool {
		if reply.More = len(notes) == limit; reply.More {
			return false
		}
		notes = append(notes, n)
		return true
	})
	if err != nil {
		return nil, err
	}
	return reply, l.changesPage(s, e, q.ConversationID, notes, reply)
}

// changesPage adds the messages of the notes, as far as there is room.
func (l *Logic) changesPage(s *session, e *storage.Entry, conversation string, notes []storage.Note, reply *protocol.ChangesReply) error {
	seqs := make([]uint64, len(notes))
	for i, n := range notes {
		seqs[i] = n.Seq
	}
	room, viewer := l.o.MaxDown-replyOverhead, s.viewer(e)
	i := 0
	err := l.o.Buckets.Slots(l.ctx, conversation, s.User, seqs, func(slot *storage.Slot) bool {
		n := notes[i]
		if slot.Message.Seq == n.Seq && (slot.Labels.ChangeSeq == n.ChangeSeq || slot.Labels.Gone) { // or it changed again, and comes later
			view := storage.Project(&slot.Message, &slot.Labels, viewer)
			if room -= encodedSize(&view); room < 0 && len(reply.Messages) > 0 {
				reply.More = true
				return false
			}
			reply.Messages = append(reply.Messages, view)
		}
		reply.Next = n.ChangeSeq
		i++
		return true
	})
	if err == nil && i < len(notes) && !reply.More {
		err = l.hole(conversation, notes[i].Seq)
	}
	return err
}
