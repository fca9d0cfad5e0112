package client

import (
	"context"
	"crypto/rand"
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
