package client

import (
	"time"

	"github.com/parley-im/parley/protocol"
)

const (
	// repeatHorizon is how many messages may have followed the first try before the server may not know it again. The server
	// keeps 10,000; what is known here may be a little behind.
	repeatHorizon = 9000
	// resendMargin is how long a SEND may be on its way when its age is held against resend_s.
	resendMargin = 10 * time.Second
)

// markTried records, before the first try, when that is and how far the conversation is known. It is durable before the SEND leaves.
func (c *Client) markTried(k *conn, it *item) error {
	if it.entry.TriedMS != 0 {
		return nil
	}
	seq, _ := c.inbox.extent(it.entry.conversation(k))
	return c.tried(k, it, seq)
}

func (c *Client) tried(k *conn, it *item, seq uint64) error {
	e := it.entry
	e.TriedMS, e.TriedSeq, e.TriedEpoch = time.Now().UnixMilli(), seq, k.welcome.Epoch
	if err := c.opts.Outbox.Put(c.ctx, e); err != nil {
		c.opts.Logger.Error("client: outbox", "err", err)
		return &storeError{err}
	}
	it.entry = e
	return nil
}

// conversation is the id of the entry's conversation, for the user of the connection.
func (e *Entry) conversation(k *conn) string { return e.Target().Conversation(k.welcome.UserID) }

// doubtful tells whether the server may have forgotten that it stored the entry already.
func (c *Client) doubtful(k *conn, e *Entry) bool {
	if e.TriedMS == 0 {
		return false
	}
	resend := time.Duration(k.welcome.ResendS) * time.Second
	age := time.Since(time.UnixMilli(e.TriedMS))
	_, target := c.inbox.extent(e.conversation(k))
	return age < 0 || age >= resend-min(resendMargin, resend/4) || target > e.TriedSeq+repeatHorizon
}

// findStored looks for a message that was first tried so long ago that the server may not know it again: newest first, down to where
// the conversation was at the first try. Without one, that try counts as never made. A conversation that cannot be
// read has nothing to find.
func (c *Client) findStored(k *conn, it *item) (*protocol.SendAck, error) {
	e := &it.entry
	if !c.doubtful(k, e) {
		return nil, nil
	}
	low := uint64(1)
	if e.TriedEpoch == k.welcome.Epoch {
		low = e.TriedSeq + 1
	}
	id := e.conversation(k)
	var top uint64
	for to := uint64(0); ; {
		var reply protocol.PullReply
		ask := protocol.Pull{ConversationID: id, FromSeq: low, ToSeq: to, Limit: c.pages.get(), NewestFirst: true}
		if err := k.call(c.ctx, protocol.CmdPull, &ask, &reply); err != nil {
			if _, again := retryable(err); again || c.ctx.Err() != nil {
				return nil, err
			}
			return nil, c.tried(k, it, low-1)
		}
		if ack := c.match(k, e, reply.Messages); ack != nil {
			return ack, nil
		}
		top = max(top, reply.MaxSeq)
		n := len(reply.Messages)
		if !reply.More || n == 0 || reply.Messages[n-1].Seq <= low || to != 0 && reply.Messages[n-1].Seq > to {
			return nil, c.tried(k, it, top)
		}
		to = reply.Messages[n-1].Seq - 1
	}
}

// match looks for an entry among messages.
func (c *Client) match(k *conn, e *Entry, list []protocol.Message) *protocol.SendAck {
	for i := range list {
		m := &list[i]
		if m.ClientMsgID != e.Send.ClientMsgID || m.Sender != k.welcome.UserID {
			continue
		}
		c.inbox.exists(e.conversation(k), m.Seq, k.gen)
		return &protocol.SendAck{
			ClientMsgID: m.ClientMsgID, ServerMsgID: m.ServerMsgID, ConversationID: m.ConversationID, SendTimeMS: m.SendTimeMS, Seq: m.Seq,
		}
	}
	return nil
}

// extent is how far a conversation is taken, and how far it is known to go.
func (b *inbox) extent(id string) (cursor, target uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := b.convs[id]
	if cv == nil || !cv.known {
		return 0, 0
	}
	return cv.cursor, cv.target
}
