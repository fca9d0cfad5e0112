package client

import (
	"bytes"

	"github.com/parley-im/parley/protocol"
)

// event takes an event of the server. What must not be lost is in SYNC. What other handlers are told of, OnEvent is not.
func (c *Client) event(e *protocol.Event) {
	switch e.Type {
	case protocol.EventResync:
		c.resync(e)
		return
	case protocol.EventMessageChanged:
		c.inbox.changeKnown(e.ConversationID, e.ChangeSeq)
		return
	case protocol.EventDeleted, protocol.EventCleared: // a PUSH of the own stream says the same
		return
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
