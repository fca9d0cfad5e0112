package client

import (
	"sync"
)

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
	running bool          // a goroutine drains it
	more    chan struct{} // capacity 1: items has grown
}

// item is a message in a lane. entry is of the goroutine that drains the lane; flying is guarded by sender.mu.
type item struct {
	Pending
	entry  Entry
	flying bool
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
		l = &lane{to: e.Target(), more: make(chan struct{}, 1)}
		c.out.lanes[l.to] = l
	}
	it := &item{Pending: Pending{c: c, id: e.Send.ClientMsgID, done: make(chan struct{})}, entry: e}
	l.items = append(l.items, it)
	signal(l.more)
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
