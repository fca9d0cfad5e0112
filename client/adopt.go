package client

// adopt makes k the connection that requests go out on, and starts to read from it.
func (c *Client) adopt(k *conn) error {
	old := c.current()
	if err := c.enter(k, old); err != nil {
		if old != nil {
			old.fail(err)
		}
		return err
	}
	c.count.connections.Add(1)
	c.change(func() { c.cur = k })
	if old != nil {
		old.retire()
	}
	c.inbox.connected()
	c.sync.request(0)
	c.wg.Go(k.write)
	c.wg.Go(k.heartbeat)
	c.wg.Go(func() { k.fail(c.read(k)) })
	c.report(StateOnline, nil)
	return nil
}

func (c *Client) current() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cur
}

// leave says that there is no connection.
func (c *Client) leave() { c.change(func() { c.cur = nil }) }

// enter holds WELCOME against the state. In another epoch everything that is known is dropped, before anything is read from
// the connection; old is closed first, so that nothing of the old epoch comes after.
func (c *Client) enter(k, old *conn) error {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	next := Session{User: k.welcome.UserID, Epoch: k.welcome.Epoch, Token: c.session.Token, Stale: c.session.Stale}
	if c.session.User != "" && c.session.User != next.User {
		return ErrWrongUser
	}
	another := c.session.Epoch != "" && c.session.Epoch != next.Epoch
	var err error
	switch {
	case another:
		if old != nil {
			old.fail(errRetired)
		}
		next.Token, next.Stale = "", true
		c.inbox.reset()
		err = c.opts.State.Reset(c.ctx, next)
	case c.session != next:
		err = c.opts.State.Save(c.ctx, next)
	}
	if err != nil {
		return &storeError{err}
	}
	c.session = next
	k.gen = c.inbox.welcome(next.User)
	return nil
}
