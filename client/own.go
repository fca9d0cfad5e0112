package client

import (
	"context"
	"slices"

	"github.com/parley-im/parley/protocol"
)

// Delete hides messages from the user, on all of their devices; others see them as before. OnDeleted is told, on this device too. More than
// 200 seqs go out in several requests: after an error some of them may be hidden. Like Call it waits for a connection and repeats,
// until ctx ends.
func (c *Client) Delete(ctx context.Context, conversationID string, seqs ...uint64) error {
	for some := range slices.Chunk(seqs, protocol.MaxSeqs) {
		if err := c.Call(ctx, protocol.CmdDelete, &protocol.Delete{ConversationID: conversationID, Seqs: some}, nil); err != nil {
			return err
		}
		c.inbox.streamGrew()
	}
	return nil
}

// Clear hides everything up to a seq from the user, on all of their devices; 0 is all that there is at the moment of the call, and no
// more, however often it is repeated. It returns the lowest seq that is left to see. OnCleared is told, on this device too.
func (c *Client) Clear(ctx context.Context, conversationID string, upTo uint64) (minSeq uint64, err error) {
	if upTo == 0 {
		newest, err := c.Pull(ctx, protocol.Pull{ConversationID: conversationID, NewestFirst: true, Limit: 1})
		if err != nil {
			return 0, err
		}
		upTo = newest.MaxSeq
	}
	var reply protocol.ClearReply
	if err := c.Call(ctx, protocol.CmdClear, &protocol.Clear{ConversationID: conversationID, UpToSeq: upTo}, &reply); err != nil {
		return 0, err
	}
	c.inbox.streamGrew()
	return reply.MinSeq, nil
}

// streamGrew notes that the own stream has an entry more, which is not pushed to the device that caused it.
func (b *inbox) streamGrew() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cv := b.conversation(b.stream); cv != nil {
		cv.ask = true
		b.schedule(cv)
	}
}

// handOwnState takes an entry of the user's own stream. Others cannot write there; what does not decode is not of this version. From
// then on nothing that it hides is handed on any more.
func (c *Client) handOwnState(m *protocol.Message) error {
	s, ok := ownState(m)
	if !ok || m.ConversationID != protocol.UserStream(c.UserID()) {
		return nil
	}
	switch {
	case s.Op == protocol.OwnDelete && len(s.Seqs) > 0:
		c.inbox.hide(s.ConversationID, s.Seqs)
		if c.opts.OnDeleted == nil {
			return nil
		}
		return c.handler(nil, func(ctx context.Context) error { return c.opts.OnDeleted(ctx, s.ConversationID, s.Seqs) })
	case s.Op == protocol.OwnClear:
		c.inbox.cleared(s.ConversationID, s.UpToSeq)
		if c.opts.OnCleared == nil {
			return nil
		}
		return c.handler(nil, func(ctx context.Context) error { return c.opts.OnCleared(ctx, s.ConversationID, s.UpToSeq) })
	}
	return nil
}

func ownState(m *protocol.Message) (s protocol.OwnState, ok bool) {
	err := protocol.Unmarshal(m.Content, &s)
	return s, err == nil
}

// hide takes messages out of what is on its way to the app: held, fetched, or still to be pushed.
func (b *inbox) hide(id string, seqs []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := b.conversation(id)
	if cv == nil {
		return
	}
	for _, seq := range seqs {
		if h := cv.held[seq]; h != nil {
			b.blank(h, protocol.StatusHidden)
		}
	}
	cv.stamp++
	cv.pullTo = max(cv.pullTo, slices.Max(seqs))
	b.hideChanges(cv, func(m protocol.Message) bool { return slices.Contains(seqs, m.Seq) })
	b.schedule(cv)
}

// cleared passes over everything up to a seq.
func (b *inbox) cleared(id string, upTo uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := b.conversation(id)
	if cv == nil {
		return
	}
	cv.stamp++
	b.distrust(cv, upTo)
	if cv.known {
		b.advance(cv, upTo)
	}
	b.hideChanges(cv, func(m protocol.Message) bool { return m.Seq <= upTo })
	b.schedule(cv)
}

// hideChanges drops changes that the app was not told of yet.
func (b *inbox) hideChanges(cv *conversation, hidden func(protocol.Message) bool) {
	if len(cv.changes) == 0 {
		return
	}
	size := 0
	cv.changes = slices.DeleteFunc(cv.changes, func(m protocol.Message) bool {
		if !hidden(m) {
			return false
		}
		size += sizeOf(&m)
		return true
	})
	b.releaseChanges(cv, size)
	if len(cv.changes) == 0 {
		b.changedUpTo(cv, cv.changesNext)
	}
}

// blank leaves nothing to show of a held message.
func (b *inbox) blank(h *held, status protocol.Status) {
	if placeholder(&h.m) {
		return
	}
	b.account(h, messageOverhead-h.size)
	h.m = protocol.Message{ConversationID: h.m.ConversationID, Seq: h.m.Seq, Status: status, Run: 1}
	h.size = messageOverhead
}
