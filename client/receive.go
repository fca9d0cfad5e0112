package client

import (
	"bytes"

	"github.com/parley-im/parley/protocol"
)

// read takes the server's frames until the connection ends. It never waits for the app: what has no room is dropped, and fetched
// later. So replies and heartbeats pass however slow a handler is.
func (c *Client) read(k *conn) error {
	for {
		f, err := k.in.next()
		if err != nil {
			return &lostError{err}
		}
		if err := c.receive(k, f); err != nil {
			return err
		}
	}
}

// receive takes one frame. An error ends the connection. Commands that are not known are ignored.
func (c *Client) receive(k *conn, f protocol.Frame) error {
	switch f.Command {
	case protocol.CmdPush:
		return c.receivePush(k, f)
	case protocol.CmdEvent:
		return c.receiveEvents(k, f)
	case protocol.CmdSignal:
		return c.receiveSignal(k, f)
	case protocol.CmdError:
		return receiveError(k, f)
	case protocol.CmdKick:
		return kickOf(f)
	case protocol.CmdGoAway:
		return receiveGoAway(k, f)
	}
	k.settle(f, nil)
	return nil
}

func (c *Client) receivePush(k *conn, f protocol.Frame) error {
	var push protocol.Push
	if err := k.decode(f.Body, &push); err != nil {
		return err
	}
	for i := range push.Messages {
		push.Messages[i].Content = bytes.Clone(push.Messages[i].Content)
	}
	c.inbox.push(push.Messages, &pushed{k: k, id: f.RequestID, left: len(push.Messages)}, k.gen)
	return nil
}

func (c *Client) receiveEvents(k *conn, f protocol.Frame) error {
	var list protocol.Events
	if err := k.decode(f.Body, &list); err != nil {
		return err
	}
	for i := range list.Events {
		c.event(&list.Events[i])
	}
	return nil
}

func (c *Client) receiveSignal(k *conn, f protocol.Frame) error {
	var s protocol.Signal
	if err := k.decode(f.Body, &s); err != nil {
		return err
	}
	c.signal(&s)
	return nil
}

// receiveError gives an ERROR to the request that it answers. Some codes end the connection as well.
func receiveError(k *conn, f protocol.Frame) error {
	e := &protocol.Error{}
	if err := k.decode(f.Body, e); err != nil {
		return err
	}
	k.settle(f, e)
	if e.Code.Closes() {
		return e
	}
	return nil
}

func receiveGoAway(k *conn, f protocol.Frame) error {
	var g protocol.GoAway
	if err := k.decode(f.Body, &g); err != nil {
		return err
	}
	select {
	case k.goaway <- millis(g.ReconnectWithinMS):
	default: // it is on its way
	}
	return nil
}
