package client

import (
	"github.com/parley-im/parley/protocol"
)

// ListPage is a page of the list of conversations. The user's own stream is not among them.
type ListPage struct {
	Conversations []protocol.Conversation
	// Whole says that this list has all conversations: those that none of its pages has are gone. Otherwise it has those
	// that changed.
	Whole bool
	// First and Last mark the first and the last page of a list. A list that was cut off begins again with a first page.
	First, Last bool
}

// list takes a page of the list of conversations; ok is false when a reset came between.
func (b *inbox) list(page []protocol.Conversation, gen uint64) (positions []Position, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gen != b.gen {
		return nil, false
	}
	for i := range page {
		if cv := b.conversation(page[i].ConversationID); cv != nil {
			b.listOne(cv, &page[i])
			positions = append(positions, cv.position())
			b.schedule(cv)
		}
	}
	return positions, true
}

func (b *inbox) listOne(cv *conversation, l *protocol.Conversation) {
	if !cv.known {
		cv.begin(l, b.first, b.historyOf(cv))
		b.distrust(cv, l.MaxSeq)
	} else if l.MinSeq > cv.cursor+1 {
		b.advance(cv, l.MinSeq-1)
	}
	cv.target = max(cv.target, l.MaxSeq)
	cv.changeTarget = max(cv.changeTarget, l.ChangeSeq)
}

// begin gives a conversation that was not known a cursor: before the newest messages on a device that knew nothing, else before
// all that this user may read. What was pushed before the list came is not left out.
func (cv *conversation) begin(l *protocol.Conversation, first bool, history uint64) {
	from := max(l.MinSeq, 1)
	if first && l.MaxSeq > history {
		from = max(from, l.MaxSeq-history+1)
	}
	if cv.lowest > 0 {
		from = min(from, cv.lowest)
	}
	cv.known = true
	cv.cursor, cv.saved = from-1, from-1
	cv.changeSeq = l.ChangeSeq // what is pulled from now on has those changes
}

// complete notes that the list is complete, and gives those conversations a place that it does not have.
func (b *inbox) complete(gen uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gen != b.gen {
		return false
	}
	b.listed = true
	for _, cv := range b.convs {
		if !cv.known {
			b.schedule(cv)
		}
	}
	b.first = false
	return true
}
