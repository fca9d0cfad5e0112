package client

import (
	"bytes"

	"github.com/parley-im/parley/protocol"
)

// event takes an event of the server. What must not be lost is in SYNC.
func (c *Client) event(e *protocol.Event) {
	switch e.Type {
	case protocol.EventResync:
		c.resync(e)
		return
	case protocol.EventMessageChanged:
		c.inbox.changeKnown(e.ConversationID, e.ChangeSeq)
	default:
		if e.Type == 0 || e.Type > protocol.EventResync {
			return
		}
	}
	e.Data = bytes.Clone(e.Data)
	if c.opts.OnEvent != nil && !c.inbox.note(e) {
		c.count.eventsDropped.Add(1)
		c.sync.request(jitter(maxLostEvent))
	}
}

func (c *Client) signal(s *protocol.Signal) {
	s.Data = bytes.Clone(s.Data)
	if c.opts.OnSignal != nil && !c.inbox.note(s) {
		c.count.signalsDropped.Add(1)
	}
}

// note queues an event or a signal for the app; false when there is no room.
func (b *inbox) note(n any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.notes) >= b.maxNotes {
		return false
	}
	b.notes = append(b.notes, n)
	b.work.Signal()
	return true
}

// changeKnown notes that a conversation's changes go up to seq; 0: further than is known.
func (b *inbox) changeKnown(id string, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := b.convs[id]
	if cv == nil || !cv.known {
		return
	}
	if seq == 0 {
		seq = cv.changeTarget + 1
	}
	cv.changeTarget = max(cv.changeTarget, seq)
	b.schedule(cv)
}
