package client

import (
	"context"
	"errors"
	"slices"

	"github.com/parley-im/parley/protocol"
)

// drain sends what is in a lane, until it is empty or the client stops.
func (c *Client) drain(l *lane) {
	retry := c.opts.newBackoff()
	for !c.laneEmpty(l) {
		k, err := c.online(c.ctx)
		if err != nil {
			return
		}
		acked, err := c.flight(k, l)
		if acked {
			retry.Reset()
		}
		after, _ := retryable(err)
		if err == nil || isLost(err) {
			continue // nothing left, or the next connection
		}
		if !c.pause(after+retry.NextBackOff(), nil) {
			return
		}
	}
}

// laneEmpty ends the lane when nothing is in it.
func (c *Client) laneEmpty(l *lane) bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if len(l.items) > 0 {
		return false
	}
	l.running = false
	delete(c.out.lanes, l.to)
	return true
}

// flight sends the messages of a lane on one connection, at most Options.Pipeline at a time, until none is left or one must be repeated
// (the error says why). Then it waits for those that are in flight and lets no later one overtake.
func (c *Client) flight(k *conn, l *lane) (acked bool, err error) {
	type launched struct {
		it *item
		r  *request
	}
	var flying []launched
	for {
		for err == nil && len(flying) < c.opts.Pipeline {
			it := c.nextItem(l)
			if it == nil {
				break
			}
			var r *request
			if r, err = c.launch(k, it); r != nil {
				flying = append(flying, launched{it, r})
			}
		}
		if len(flying) == 0 {
			return acked, err
		}
		if err == nil && len(flying) < c.opts.Pipeline && !k.waitOr(c.ctx, flying[0].r, l.more) {
			continue // there is room for what was queued meanwhile
		}
		first := flying[0]
		flying = flying[1:]
		if e := c.land(k, first.it, first.r); e == nil {
			acked = true
		} else if err == nil {
			err = e
		}
	}
}

// nextItem is the first message of a lane that is not in flight.
func (c *Client) nextItem(l *lane) *item {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	for _, it := range l.items {
		if !it.flying {
			it.flying = true
			return it
		}
	}
	return nil
}

func (c *Client) grounded(it *item) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	it.flying = false
}

// launch sends a message. Without a request it is finished already, or the error says why it must be sent later.
func (c *Client) launch(k *conn, it *item) (r *request, err error) {
	defer func() {
		if err != nil {
			c.grounded(it)
		}
	}()
	body := protocol.AppendBody(nil, &it.entry.Send)
	if err := k.fits(body); err != nil {
		c.finish(it, protocol.SendAck{}, err)
		return nil, nil
	}
	ack, err := c.findStored(k, it)
	if err != nil {
		return nil, err
	}
	if ack != nil {
		c.count.found.Add(1)
		c.finish(it, *ack, nil)
		return nil, nil
	}
	repeated := it.entry.TriedMS != 0
	if err := c.markTried(k, it); err != nil {
		return nil, err
	}
	if repeated {
		c.count.repeated.Add(1)
	}
	e := it.entry // the reply may come after a timeout, when it belongs to the next try
	return k.start(c.ctx, protocol.CmdSend, body, func(b []byte) { c.acked(k, &e, repeated, b) })
}

// acked is called by the goroutine that reads, so that an ack and the PUSHes around it come to the inbox in the order of seq.
// The message is handed on from here when the ack has its seq and it was sent once; otherwise the server's copy is the one to show.
func (c *Client) acked(k *conn, e *Entry, repeated bool, body []byte) {
	var ack protocol.SendAck
	s := &e.Send
	if protocol.Unmarshal(body, &ack) != nil || ack.Seq == 0 || ack.ClientMsgID != s.ClientMsgID {
		return
	}
	id := e.conversation(k)
	if repeated || ack.ConversationID != id {
		c.inbox.exists(id, ack.Seq, k.gen)
		return
	}
	c.inbox.own(&protocol.Message{
		ConversationID: id, Seq: ack.Seq, ServerMsgID: ack.ServerMsgID, ClientMsgID: s.ClientMsgID, Sender: k.welcome.UserID,
		ContentType: s.ContentType, Content: slices.Clone(s.Content), SendTimeMS: ack.SendTimeMS, Flags: s.Flags, Mentions: slices.Clone(s.Mentions),
	}, k.gen)
}

// land waits for the reply to a message. The error says why it must be repeated.
func (c *Client) land(k *conn, it *item, r *request) error {
	body, err := k.wait(c.ctx, r)
	var ack protocol.SendAck
	if err == nil {
		err = k.decode(body, &ack)
	}
	if err == nil && ack.ClientMsgID != it.id {
		err = &lostError{errors.New("an ack for another message")}
		k.fail(err)
	}
	if _, again := retryable(err); again || c.ctx.Err() != nil {
		c.grounded(it)
		return err
	}
	c.finish(it, ack, err)
	return nil
}

// finish takes a message out of the outbox: it was acked, or refused for good.
func (c *Client) finish(it *item, ack protocol.SendAck, err error) {
	if err == nil {
		c.count.sent.Add(1)
	} else {
		c.count.failed.Add(1)
	}
	if e := c.opts.Outbox.Remove(context.WithoutCancel(c.ctx), it.entry.Order); e != nil {
		c.opts.Logger.Error("client: outbox", "err", e) // it is sent again after a restart, under the same id
	}
	c.out.mu.Lock()
	c.out.count--
	c.out.bytes -= len(it.entry.Send.Content)
	l := c.out.lanes[it.entry.Target()]
	l.items = slices.DeleteFunc(l.items, func(o *item) bool { return o == it })
	c.out.mu.Unlock()
	it.ack, it.err = ack, err
	close(it.done)
	if c.opts.OnSent != nil {
		c.opts.OnSent(it.entry, ack, err)
	}
}
