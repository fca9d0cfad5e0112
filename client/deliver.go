package client

import (
	"context"
	"errors"

	"github.com/parley-im/parley/protocol"
)

// batch bounds the messages that are handed on before the cursor is saved.
const batch = 64

// work is what the handlers are called for next; one of its fields is set.
type work struct {
	stale   []string
	gen     uint64 // the inbox's, with stale
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
		return c.handStale(w)
	case w.note != nil:
		return c.handNote(w.note)
	}
	if err := c.handMessages(w); err != nil {
		return err
	}
	if err := c.handChanges(w); err != nil {
		return err
	}
	return c.savePosition(w.cv, true)
}

// handMessages hands on messages of one conversation that follow each other. After an error the cursor stands before the
// message that was not taken.
func (c *Client) handMessages(w work) error {
	for _, h := range w.held {
		if err := c.handMessage(&h.m); err != nil {
			if e := c.savePosition(w.cv, false); e != nil {
				err = errors.Join(err, e)
			}
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
