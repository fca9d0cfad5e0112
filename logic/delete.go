package logic

import (
	"slices"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// delete hides messages from the user who asks, on all of their devices. Others see them as before.
func (l *Logic) delete(s *session, j job, q *protocol.Delete) error {
	e, err := l.ownEntry(s, q.ConversationID)
	if err != nil {
		return err
	}
	seqs := slices.Compact(slices.Sorted(slices.Values(q.Seqs)))
	switch {
	case len(seqs) == 0:
		return invalid("seqs must have 1 to 200 numbers")
	case seqs[0] == 0:
		return storage.ErrInvalidSeq
	case seqs[len(seqs)-1] > e.State.Tail:
		return storage.ErrNotFound
	}
	change := &storage.Own{User: s.User, Conversation: e.Conversation, Hide: seqs}
	state := &protocol.OwnState{Op: protocol.OwnDelete, ConversationID: e.Conversation, Seqs: seqs}
	return l.applyOwn(s, j, change, state, &protocol.Empty{})
}
