package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/parley-im/parley/protocol"
)

// maxLostEvent bounds the random delay before the SYNC that makes good a lost event.
const maxLostEvent = 5 * time.Second

// syncClock says when the next SYNC is due.
type syncClock struct {
	mu      sync.Mutex
	wanted  bool
	at      time.Time
	changed chan struct{} // capacity 1
}

// request asks for a SYNC after a delay, or before if one is due before.
func (s *syncClock) request(delay time.Duration) {
	s.mu.Lock()
	at := time.Now().Add(delay)
	if !s.wanted || at.Before(s.at) {
		s.wanted, s.at = true, at
	}
	s.mu.Unlock()
	signal(s.changed)
}

// due tells whether a SYNC is due now, and forgets it then; else how long it is until it is, negative for none.
func (s *syncClock) due() (now bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wanted {
		return false, -1
	}
	if wait = time.Until(s.at); wait > 0 {
		return false, wait
	}
	s.wanted = false
	return true, 0
}

// next waits until a SYNC is due; false when stop is closed.
func (s *syncClock) next(stop <-chan struct{}) bool {
	for {
		now, wait := s.due()
		if now {
			return true
		}
		var timer <-chan time.Time
		if wait >= 0 {
			timer = time.After(wait)
		}
		select {
		case <-timer:
		case <-s.changed:
		case <-stop:
			return false
		}
	}
}

// jitter is a random duration from 0 to limit.
func jitter(limit time.Duration) time.Duration { return rand.N(max(limit, 0) + 1) }

// resync follows EVENT resync: the server skipped frames for this device.
func (c *Client) resync(e *protocol.Event) {
	var data protocol.ResyncData
	if protocol.Unmarshal(e.Data, &data) != nil {
		data = protocol.ResyncData{}
	}
	c.sync.request(jitter(millis(data.MaxDelayMS)))
}

// syncLoop asks for the list of conversations whenever that is due: after each WELCOME, after a resync.
func (c *Client) syncLoop() {
	retry := c.opts.newBackoff()
	for c.sync.next(c.ctx.Done()) {
		k, err := c.online(c.ctx)
		if err == nil {
			err = c.catchUp(k)
		}
		var store *storeError
		var handler *handlerError
		switch {
		case err == nil:
			retry.Reset()
			c.change(func() { c.synced = k })
		case c.ctx.Err() != nil || isLost(err): // the next connection asks for it
		case errors.As(err, &handler):
			c.stop(handler.cause)
		case errors.As(err, &store):
			c.stop(err)
		default:
			after, _ := retryable(err)
			c.opts.Logger.Warn("client: cannot sync", "err", err)
			c.sync.request(after + retry.NextBackOff())
		}
	}
}

// catchUp reads the list of conversations that changed since the last time. Messages that arrive meanwhile are pushed; both
// only raise targets, so nothing falls between the two. The token is saved when everything that it covers is in the State.
func (c *Client) catchUp(k *conn) error {
	ask := protocol.Sync{Token: c.syncToken()}
	whole := ask.Token == ""
	for first := true; ; first = false {
		reply, err := c.syncPage(k, &ask)
		if err != nil {
			return err
		}
		whole = whole || reply.Reset
		last := reply.NextCursor == "" || reply.NextCursor == ask.Cursor
		err = c.handList(k, ListPage{Conversations: shown(reply.Conversations), Whole: whole, First: first, Last: last})
		if err == nil {
			err = c.noteList(k, reply.Conversations)
		}
		if err != nil {
			return err
		}
		if last {
			return c.listComplete(k, reply.Token)
		}
		ask.Cursor = reply.NextCursor
	}
}

// shown is a list without the user's own stream, which is not for people.
func shown(list []protocol.Conversation) []protocol.Conversation {
	i := slices.IndexFunc(list, isStream)
	if i < 0 {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), isStream)
}

func isStream(cv protocol.Conversation) bool {
	kind, _, _ := protocol.ParseConversation(cv.ConversationID)
	return kind == protocol.KindUser
}

func (c *Client) syncToken() string {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.session.Token
}

// syncPage asks for a page. A token that the server cannot read is dropped; a server without SYNC has an empty list.
func (c *Client) syncPage(k *conn, ask *protocol.Sync) (*protocol.SyncReply, error) {
	ask.Limit = min(c.pages.get(), protocol.MaxArray)
	reply := &protocol.SyncReply{}
	err := k.call(c.ctx, protocol.CmdSync, ask, reply)
	switch {
	case errors.Is(err, &protocol.Error{Code: protocol.CodeUnknownCommand}):
		return &protocol.SyncReply{Token: ask.Token}, nil
	case errors.Is(err, &protocol.Error{Code: protocol.CodeInvalidArgument}) && ask.Token != "" && ask.Cursor == "":
		ask.Token = ""
		reply = &protocol.SyncReply{}
		err = k.call(c.ctx, protocol.CmdSync, ask, reply)
		reply.Reset = true
	}
	return reply, err
}

// handList gives a page to the app, before what it says is noted: the app learns of a conversation before its messages, unless
// they were pushed.
func (c *Client) handList(k *conn, p ListPage) error {
	if c.opts.OnList == nil {
		return nil
	}
	err := c.handler(k.done, func(ctx context.Context) error {
		if err := c.opts.OnList(ctx, p); err != nil {
			return &handlerError{err}
		}
		return nil
	})
	if errors.Is(err, errRetired) {
		return &lostError{err}
	}
	return err
}

// noteList notes how far the conversations of a page go, and saves that.
func (c *Client) noteList(k *conn, list []protocol.Conversation) error {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	positions, ok := c.inbox.list(list, k.gen)
	if !ok {
		return &lostError{errRetired}
	}
	if len(positions) == 0 {
		return nil
	}
	if err := c.opts.State.SavePositions(c.ctx, positions); err != nil {
		return &storeError{err}
	}
	return nil
}

func (c *Client) listComplete(k *conn, token string) error {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if !c.inbox.complete(k.gen) {
		return &lostError{errRetired}
	}
	if token == c.session.Token {
		return nil
	}
	next := c.session
	next.Token = token
	if err := c.opts.State.Save(c.ctx, next); err != nil {
		return &storeError{err}
	}
	c.session = next
	return nil
}
