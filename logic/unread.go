package logic

import (
	"math"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// unread sums over the user's list.
func (l *Logic) unread(s *session, _ *protocol.Empty) (*protocol.UnreadReply, error) {
	entries, _, err := l.o.Directory.Changed(l.ctx, s.User, 0)
	if err != nil {
		return nil, err
	}
	var total, conversations uint64
	for i := range entries {
		n, err := l.unreadOf(s.User, &entries[i])
		if err != nil {
			return nil, err
		}
		if n > 0 {
			total += uint64(n)
			conversations++
		}
	}
	return &protocol.UnreadReply{Total: clamp32(total), Conversations: clamp32(conversations)}, nil
}

// unreadOf is the other side's messages that count, above the watermark: a difference of two running counts, not a counter that
// could drift.
func (l *Logic) unreadOf(user string, e *storage.Entry) (uint32, error) {
	side := otherSide(user, e.Conversation)
	read := e.ReadCount
	if e.MinSeq > e.ReadSeq+1 { // what lies below min_seq is out of sight, read or not
		slot, err := l.slot(e.Conversation, "", e.MinSeq-1)
		if err != nil {
			return 0, err
		}
		read = max(read, slot.Counts[side])
	}
	if e.State.Counts[side] <= read {
		return 0, nil
	}
	return clamp32(e.State.Counts[side] - read), nil
}

// otherSide is the index in Counts of the side that is not the user's.
func otherSide(user, conversation string) int {
	_, a, _ := protocol.ParseConversation(conversation)
	return 1 - storage.Side(user, a)
}

func clamp32(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
