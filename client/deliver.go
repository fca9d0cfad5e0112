package client

import (
	"bytes"
	"context"

	"github.com/parley-im/parley/protocol"
)

// batch bounds the messages that are handed on before the cursor is saved.
const batch = 64

// work is what the handlers are called for next; one of its fields is set.
type work struct {
	stale   []string
	note    any
	cv      *conversation
	held    []*held
	changes []protocol.Message
}

// deliver calls the app's handlers for messages, changes, events and signals, until the client stops.
func (c *Client) deliver() {
	for {
		w, ok := c.inbox.nextWork()
		if !ok {
			return
		}
		if err := c.handOn(w); err != nil {
			c.stop(err)
			return
		}
	}
}

func (c *Client) handOn(w work) error {
	switch {
	case w.stale != nil:
		return c.handStale(w.stale)
	case w.note != nil:
		return c.handNote(w.note)
	}
	if err := c.handMessages(w); err != nil {
		return err
	}
	for _, m := range w.changes {
		if err := c.handChange(m); err != nil {
			return err
		}
	}
	if len(w.changes) > 0 {
		c.inbox.changesTaken(w.cv)
	}
	return c.savePosition(w.cv, true)
}

// handMessages hands on messages of one conversation that follow each other. After an error the cursor stands before the
// message that was not taken.
func (c *Client) handMessages(w work) error {
	for _, h := range w.held {
		if err := c.handMessage(&h.m); err != nil {
			c.savePosition(w.cv, false) // the handler's error is the one to report
			return err
		}
		if !c.inbox.taken(w.cv, h) {
			break
		}
	}
	return nil
}

func (c *Client) handMessage(m *protocol.Message) error {
	kind, _, _ := protocol.ParseConversation(m.ConversationID)
	switch {
	case placeholder(m):
		return nil
	case m.ContentType == protocol.ContentOwnState:
		return c.handOwnState(m)
	case unshown(m.ContentType), kind == protocol.KindUser, c.opts.OnMessage == nil:
		return nil
	}
	return c.handler(nil, func(ctx context.Context) error {
		err := c.opts.OnMessage(ctx, *m)
		if err == nil {
			c.count.delivered.Add(1)
		}
		return err
	})
}

// handler calls one of the app's handlers, when no other one runs. It is not called when the client, or until, ends before.
func (c *Client) handler(until <-chan struct{}, call func(ctx context.Context) error) error {
	select {
	case c.handlers <- struct{}{}:
		defer func() { <-c.handlers }()
	case <-until:
		return errRetired
	case <-c.ctx.Done():
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return call(c.ctx)
}

// unshown tells whether a content type is one of the server's that people are not shown.
func unshown(contentType uint16) bool {
	return contentType >= protocol.ContentServer && contentType != protocol.ContentGroupChange
}

// handOwnState takes a record of the user's own stream. Others cannot write there; what does not decode is not of this version.
func (c *Client) handOwnState(m *protocol.Message) error {
	var s protocol.OwnState
	if m.ConversationID != protocol.UserStream(c.UserID()) || protocol.Unmarshal(m.Content, &s) != nil || c.opts.OnOwnState == nil {
		return nil
	}
	return c.handler(nil, func(ctx context.Context) error { return c.opts.OnOwnState(ctx, s) })
}

func (c *Client) handChange(m protocol.Message) error {
	if c.opts.OnChange == nil || unshown(m.ContentType) {
		return nil
	}
	return c.handler(nil, func(ctx context.Context) error { return c.opts.OnChange(ctx, m) })
}

func (c *Client) handStale(list []string) error {
	if c.opts.OnStale == nil {
		return nil
	}
	return c.handler(nil, func(ctx context.Context) error {
		for _, id := range list {
			if err := c.opts.OnStale(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Client) handNote(note any) error {
	return c.handler(nil, func(ctx context.Context) error {
		switch n := note.(type) {
		case *protocol.Event:
			c.opts.OnEvent(ctx, *n)
		case *protocol.Signal:
			c.opts.OnSignal(ctx, *n)
		}
		return nil
	})
}

// savePosition saves how far a conversation is, unless a reset has dropped it; also while the client stops, so that the app is not
// given again what it took. all: the app took everything that was taken out for it.
func (c *Client) savePosition(cv *conversation, all bool) error {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	p, ok := c.inbox.delivered(cv, all)
	if !ok {
		return nil
	}
	if err := c.opts.State.SavePositions(context.WithoutCancel(c.ctx), []Position{p}); err != nil {
		return &storeError{err}
	}
	return nil
}

// nextWork waits for something to hand on; false when the client stops. A conversation is handed on by one call after the other:
// delivered puts it in the queue again.
func (b *inbox) nextWork() (w work, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		switch {
		case len(b.stale) > 0:
			w.stale, b.stale = b.stale, nil
			return w, true
		case len(b.notes) > 0 && (b.noteNext || len(b.ready) == 0):
			w.note, b.notes[0] = b.notes[0], nil
			b.notes = b.notes[1:]
			b.noteNext = false
			return w, true
		case len(b.ready) > 0:
			cv := b.ready[0]
			b.ready = b.ready[1:]
			b.noteNext = true
			return b.take(cv), true
		}
		b.work.Wait()
	}
	return w, false
}

// take takes out what follows the cursor.
func (b *inbox) take(cv *conversation) work {
	w := work{cv: cv, changes: cv.changes}
	for h := cv.held[cv.cursor+1]; h != nil && len(w.held) < batch; h = cv.held[cv.cursor+1] {
		delete(cv.held, cv.cursor+1)
		w.held = append(w.held, h)
		if h.end > h.m.Seq {
			b.advance(cv, h.end)
		}
		cv.cursor = max(cv.cursor, h.end)
	}
	if b.fetchable(cv) { // the next page comes while the app takes this one
		b.schedule(cv)
	}
	return w
}

// taken notes that the app took one message. It is false when a reset came meanwhile: what follows means nothing any more.
func (b *inbox) taken(cv *conversation, h *held) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range h.acks {
		p.taken()
	}
	if cv.gone {
		return false
	}
	cv.saved = max(cv.saved, h.end)
	b.account(h, -h.size)
	return true
}

// changesTaken notes that the app took the page of changes.
func (b *inbox) changesTaken(cv *conversation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv.changeSeq = max(cv.changeSeq, cv.changesNext)
	cv.changes = nil
}

// delivered ends the turn of a conversation. ok is false when a reset dropped it. Without all the client is about to stop, and the
// conversation gets no further turn.
func (b *inbox) delivered(cv *conversation, all bool) (p Position, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cv.gone {
		return p, false
	}
	if all {
		cv.queued = false
		p = cv.position()
		b.schedule(cv)
		return p, true
	}
	return cv.position(), true
}

// position is what State is to know. Without a turn that is going on, or about to, the app has everything up to the cursor.
func (cv *conversation) position() Position {
	if !cv.queued {
		cv.saved = cv.cursor
	}
	return Position{
		ConversationID: cv.id, Seq: cv.saved, KnownSeq: cv.target, ChangeSeq: cv.changeSeq, KnownChangeSeq: cv.changeTarget,
	}
}

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
