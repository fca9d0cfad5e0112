package client

import (
	"context"
	"errors"
)

// Run connects, and serves until ctx ends, Close is called or the client must not go on by itself. It returns nil after
// Close, ctx's error, or why it stopped: a *KickError, a *RefusedError, ErrWrongUser, or what a handler or a store
// returned. When it returns, all goroutines have ended. A client runs once.
func (c *Client) Run(ctx context.Context) error {
	if !c.begin() {
		return errors.New("client: was started or closed before")
	}
	defer context.AfterFunc(ctx, func() { c.stop(context.Cause(ctx)) })()
	c.run()
	return c.Err()
}

// Start is Run in the background. Done and Err tell how it ended. It does nothing when the client was started or closed before.
func (c *Client) Start() {
	if c.begin() {
		go c.run()
	}
}

func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return false
	}
	c.running = true
	return true
}

// Close stops the client and waits until all its goroutines, and so all handlers, have ended. What is in the outbox stays
// there. It returns the error that had ended the client before, if one had. It may be called again.
func (c *Client) Close() error {
	c.stop(ErrClosed)
	if c.begin() {
		close(c.stopped) // it never ran
	}
	<-c.stopped
	return c.Err()
}

// Done is closed when the client has begun to stop.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// Err is why the client stopped; nil while it runs and after Close.
func (c *Client) Err() error {
	if err := context.Cause(c.ctx); err != nil && !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

func (c *Client) run() {
	defer close(c.stopped)
	c.stop(c.work())
	c.closeLanes()
	c.wg.Wait()
	c.report(StateStopped, context.Cause(c.ctx))
}

// work starts what runs as long as the client, and connects until it must stop.
func (c *Client) work() error {
	if err := c.load(); err != nil {
		return &storeError{err}
	}
	close(c.loaded)
	context.AfterFunc(c.ctx, c.inbox.close)
	for range fetchers {
		c.wg.Go(c.fetch)
	}
	c.wg.Go(c.deliver)
	c.wg.Go(c.syncLoop)
	return c.supervise()
}

func (c *Client) load() error {
	saved, err := c.opts.State.Load(c.ctx)
	if err != nil {
		return err
	}
	c.session = saved.Session
	c.inbox.load(saved)
	return c.loadOutbox()
}
