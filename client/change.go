package client

import (
	"context"
	"slices"

	"github.com/parley-im/parley/protocol"
)

// Revoke takes a message back for everybody: its sender may, for as long as the server says. It returns the change_seq of that. The
// message, as it then is, comes by OnChange, once, like every other change; so it is with Edit and React. Like Call all three wait for a
// connection and repeat, until ctx ends; repeating them does no harm.
func (c *Client) Revoke(ctx context.Context, conversationID string, seq uint64) (changeSeq uint64, err error) {
	return c.alter(ctx, protocol.CmdRevoke, conversationID, &protocol.Position{ConversationID: conversationID, Seq: seq})
}

// Edit replaces a message's content: its sender may, for as long as the server says. contentType 0 is ContentText.
func (c *Client) Edit(ctx context.Context, conversationID string, seq uint64, contentType uint16, content []byte) (changeSeq uint64, err error) {
	fill(&contentType, protocol.ContentText)
	return c.alter(ctx, protocol.CmdEdit, conversationID, &protocol.Edit{
		ConversationID: conversationID, Seq: seq, ContentType: contentType, Content: content,
	})
}

// React sets the user's reaction to a message, or with on false takes it back. A user may have reactions of several kinds.
func (c *Client) React(ctx context.Context, conversationID string, seq uint64, reaction string, on bool) (changeSeq uint64, err error) {
	return c.alter(ctx, protocol.CmdReact, conversationID, &protocol.React{
		ConversationID: conversationID, Seq: seq, Reaction: reaction, On: on,
	})
}

func (c *Client) alter(ctx context.Context, cmd protocol.Command, conversationID string, body protocol.Body) (uint64, error) {
	var reply protocol.ChangeReply
	if err := c.Call(ctx, cmd, body, &reply); err != nil {
		return 0, err
	}
	c.inbox.changeKnown(conversationID, reply.ChangeSeq)
	return reply.ChangeSeq, nil
}

// changeKnown notes that a conversation's changes go up to seq; 0: that there may be more than is known.
func (b *inbox) changeKnown(id string, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := b.conversation(id)
	if cv == nil {
		return
	}
	cv.changeTarget = max(cv.changeTarget, seq)
	cv.askChanges = cv.askChanges || seq == 0
	b.schedule(cv)
}

// fetchedChanges takes a page of changes. One that was asked for before messages were hidden may still have them.
func (b *inbox) fetchedChanges(j job, reply *protocol.ChangesReply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := j.cv
	if cv.gone {
		return
	}
	b.ended(j, j.stamp == cv.stamp)
	switch {
	case j.stamp != cv.stamp:
		b.schedule(cv)
		return
	case reply.Reset:
		b.forget(cv, reply.Next)
		b.schedule(cv)
		return
	}
	for i := range reply.Messages {
		if m := &reply.Messages[i]; m.ConversationID == cv.id {
			b.takeChange(cv, m)
		}
	}
	cv.changesNext = max(reply.Next, j.since)
	if !reply.More && cv.changeTarget == j.target {
		cv.changeTarget = cv.changesNext // that is all; more, if it was announced, was a mistake
	}
	if len(cv.changes) == 0 {
		b.changedUpTo(cv, cv.changesNext)
	}
	b.progress(j, cv.changesNext > j.since || !reply.More)
}

// takeChange takes a changed message of which an older copy is with the app, held, or yet to come.
func (b *inbox) takeChange(cv *conversation, m *protocol.Message) {
	old := cv.held[m.Seq]
	switch {
	case m.Seq <= cv.cursor && m.Status == protocol.StatusHidden: // the own stream tells
	case m.Seq <= cv.cursor:
		own := *m
		own.Content = slices.Clone(m.Content) // m's is a part of the whole reply
		cv.changes = append(cv.changes, own)
		cv.changesSize += sizeOf(m)
		b.fetchedBytes += sizeOf(m)
	case old == nil:
		cv.target, cv.pullTo = max(cv.target, m.Seq), max(cv.pullTo, m.Seq)
	case placeholder(m):
		b.blank(old, m.Status)
	default:
		own := *m
		own.Content = slices.Clone(m.Content)
		b.replace(old, &own, nil)
	}
}

// dropHeld drops what waits for its turn. It is fetched again.
func (b *inbox) dropHeld(cv *conversation) {
	for at, h := range cv.held {
		b.account(h, -h.size)
		delete(cv.held, at)
	}
}

// distrust drops what was pushed up to a seq, and what still will be.
func (b *inbox) distrust(cv *conversation, upTo uint64) {
	cv.pullTo = max(cv.pullTo, upTo)
	for at, h := range cv.held {
		if at <= upTo && !h.pulled {
			b.account(h, -h.size)
			delete(cv.held, at)
		}
	}
}

// handChanges hands on a page of changes. After an error those that were taken are not handed on again.
func (c *Client) handChanges(w work) error {
	for i := range w.changes {
		m := &w.changes[i]
		if !c.inbox.news(w.cv, m) {
			continue
		}
		if err := c.handChange(*m); err != nil {
			c.inbox.changeRefused(w.cv, w.changes[:i])
			if e := c.savePosition(w.cv, false); e != nil {
				return e
			}
			return err
		}
	}
	if len(w.changes) > 0 {
		c.inbox.changesTaken(w.cv)
	}
	return nil
}

// news tells whether the app does not have a change yet. After a reset nothing is.
func (b *inbox) news(cv *conversation, m *protocol.Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !cv.gone && !cv.told[m.ChangeSeq]
}

func (c *Client) handChange(m protocol.Message) error {
	if c.opts.OnChange == nil || unshown(m.ContentType) {
		return nil
	}
	return c.handler(nil, func(ctx context.Context) error { return c.opts.OnChange(ctx, m) })
}

// changesTaken notes that the app took the page of changes.
func (b *inbox) changesTaken(cv *conversation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cv.gone {
		return
	}
	b.changedUpTo(cv, cv.changesNext)
	b.releaseChanges(cv, cv.changesSize)
	cv.changes = nil
}

// changeRefused notes that the app took no more than these of a page.
func (b *inbox) changeRefused(cv *conversation, taken []protocol.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !cv.gone {
		b.changedUpTo(cv, latestChange(taken))
	}
}

// releaseChanges gives back the room of fetched changes.
func (b *inbox) releaseChanges(cv *conversation, size int) {
	cv.changesSize -= size
	b.fetchedBytes -= size
	b.fetch.Broadcast()
}
