package client

import (
	"context"
)

// handStale tells the app what it must fetch anew. What it was not told of, because the app ended before, it is told of after the next
// start.
func (c *Client) handStale(w work) error {
	for _, id := range w.stale {
		if c.opts.OnStale != nil {
			if err := c.handler(nil, func(ctx context.Context) error { return c.opts.OnStale(ctx, id) }); err != nil {
				return err
			}
		}
		if err := c.saveStale(id, w.gen); err != nil {
			return err
		}
	}
	return nil
}

// saveStale saves that the app was told: of one conversation, or with "" of all.
func (c *Client) saveStale(id string, gen uint64) error {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	ctx := context.WithoutCancel(c.ctx)
	var err error
	if id == "" {
		next := c.session
		next.Stale = c.inbox.generation() != gen // another reset came meanwhile
		if next == c.session {
			return nil
		}
		if err = c.opts.State.Save(ctx, next); err == nil {
			c.session = next
		}
	} else if p, ok := c.inbox.staleTaken(id); ok {
		err = c.opts.State.SavePositions(ctx, []Position{p})
	}
	if err != nil {
		return &storeError{err}
	}
	return nil
}

func (b *inbox) generation() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gen
}
