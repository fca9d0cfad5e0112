package client

import (
	"context"
	"crypto/rand"
	"sync"
	"unicode/utf8"

	"github.com/parley-im/parley/protocol"
)

// Target is whom a message or a signal is for.
type Target struct {
	Kind protocol.ConversationKind // KindDirect or KindGroup
	ID   string                    // of the user or the group
}

// User is the target that is another user (or oneself: notes for all own devices).
func User(id string) Target { return Target{Kind: protocol.KindDirect, ID: id} }

// Group is the target that is a group.
func Group(id string) Target { return Target{Kind: protocol.KindGroup, ID: id} }

// Conversation is the id of the target's conversation, as user sees it.
func (t Target) Conversation(user string) string {
	if t.Kind == protocol.KindGroup {
		return protocol.GroupConversation(t.ID)
	}
	return protocol.DirectConversation(user, t.ID)
}

// Outgoing is a message to send.
type Outgoing struct {
	To          Target
	ContentType uint16 // 0: ContentText
	Content     []byte
	Flags       uint32   // FlagNoUnread, FlagNoPush
	Mentions    []string // user ids, or "*" for all
	// ClientMsgID makes a repeat harmless: the same target and id is the same message. "": random. An app that may queue a message a second
	// time, after a crash say, gives it an id of its own.
	ClientMsgID string
}

// Text is a text message.
func Text(to Target, text string) Outgoing { return Outgoing{To: to, Content: []byte(text)} }

// Pending is a message in the outbox.
type Pending struct {
	c    *Client
	id   string
	done chan struct{}
	ack  protocol.SendAck // valid when done is closed
	err  error
}

// ClientMsgID is the message's id.
func (p *Pending) ClientMsgID() string { return p.id }

// Done is closed when the server has acked the message, or refused it for good.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait waits for the ack, or for the error for good (a *protocol.Error). When ctx ends before, or the client stops, the message stays in
// the outbox and is still sent.
func (p *Pending) Wait(ctx context.Context) (protocol.SendAck, error) {
	select {
	case <-p.done:
		return p.ack, p.err
	default:
	}
	select {
	case <-p.done:
		return p.ack, p.err
	case <-ctx.Done():
		return protocol.SendAck{}, ctx.Err()
	case <-p.c.ctx.Done():
		return protocol.SendAck{}, p.c.closedErr()
	}
}

// sender has the messages that are not acked yet, in a lane for each target.
type sender struct {
	mu     sync.Mutex
	closed bool
	lanes  map[Target]*lane
	order  uint64 // of the last entry
	count  int
	bytes  int
}

// lane is the queue of one target. Guarded by sender.mu.
type lane struct {
	to      Target
	items   []*item
	running bool // a goroutine drains it
}

// item is a message in a lane. entry is of the goroutine that drains the lane; flying is guarded by sender.mu.
type item struct {
	Pending
	entry  Entry
	flying bool
}

// Send queues a message and waits for its ack; see Queue and Pending.Wait.
func (c *Client) Send(ctx context.Context, m Outgoing) (protocol.SendAck, error) {
	p, err := c.Queue(ctx, m)
	if err != nil {
		return protocol.SendAck{}, err
	}
	return p.Wait(ctx)
}

// Queue puts a message into the outbox. Messages to one target are sent in the order of the calls. While a message with the same
// target and id is in the outbox, that one is returned. Before Run or Start, Queue waits.
func (c *Client) Queue(ctx context.Context, m Outgoing) (*Pending, error) {
	select {
	case <-c.loaded:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, c.closedErr()
	}
	send, err := m.check()
	if err != nil {
		return nil, err
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.closed {
		return nil, c.closedErr()
	}
	if it := c.out.lanes[m.To].find(send.ClientMsgID); it != nil {
		return &it.Pending, nil
	}
	if c.out.count >= c.opts.OutboxLimit || c.out.bytes+len(send.Content) > c.opts.OutboxBytes {
		return nil, ErrOutboxFull
	}
	e := Entry{Order: c.out.order + 1, Send: send}
	if err := c.opts.Outbox.Put(ctx, e); err != nil {
		return nil, &storeError{err}
	}
	return &c.enqueue(e).Pending, nil
}

// check makes the SEND of a message; what the server would refuse in any case is refused here.
func (m *Outgoing) check() (protocol.Send, error) {
	s := protocol.Send{
		ClientMsgID: m.ClientMsgID, Kind: m.To.Kind, Target: m.To.ID, ContentType: m.ContentType, Content: m.Content,
		Flags: m.Flags, Mentions: m.Mentions,
	}
	fill(&s.ContentType, protocol.ContentText)
	if s.ClientMsgID == "" {
		s.ClientMsgID = rand.Text()
	}
	switch {
	case s.Kind != protocol.KindDirect && s.Kind != protocol.KindGroup, !protocol.ValidID(s.Target):
		return s, protocol.Errorf(protocol.CodeInvalidArgument, "target is no user or group id")
	case len(s.ClientMsgID) > protocol.MaxClientMsgID, !utf8.ValidString(s.ClientMsgID):
		return s, protocol.Errorf(protocol.CodeInvalidArgument, "client_msg_id must have 1 to 64 bytes")
	case s.ContentType >= protocol.ContentServer:
		return s, protocol.Errorf(protocol.CodeInvalidArgument, "content_type is the server's")
	case len(s.Mentions) > protocol.MaxArray:
		return s, protocol.Errorf(protocol.CodeInvalidArgument, "mentions has too many elements")
	}
	return s, nil
}

func (l *lane) find(id string) *item {
	if l == nil {
		return nil
	}
	for _, it := range l.items {
		if it.id == id {
			return it
		}
	}
	return nil
}

// enqueue adds an entry to its lane and starts the lane's goroutine. sender.mu is held.
func (c *Client) enqueue(e Entry) *item {
	l := c.out.lanes[e.Target()]
	if l == nil {
		l = &lane{to: e.Target()}
		c.out.lanes[l.to] = l
	}
	it := &item{Pending: Pending{c: c, id: e.Send.ClientMsgID, done: make(chan struct{})}, entry: e}
	l.items = append(l.items, it)
	c.out.order = max(c.out.order, e.Order)
	c.out.count++
	c.out.bytes += len(e.Send.Content)
	if !l.running {
		l.running = true
		c.wg.Go(func() { c.drain(l) })
	}
	return it
}

// loadOutbox goes on with what a former process had queued.
func (c *Client) loadOutbox() error {
	list, err := c.opts.Outbox.List(c.ctx)
	if err != nil {
		return err
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	for _, e := range list {
		c.enqueue(e)
	}
	return nil
}

// closeLanes keeps new lanes from starting.
func (c *Client) closeLanes() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.closed = true
}
