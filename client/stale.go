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

// forget follows a reset: there were more changes than the server tells, up to next. Nothing that is held is what it was, and the app
// is to fetch anew what it has stored. Until it was told so, it does not have those changes.
func (b *inbox) forget(cv *conversation, next uint64) {
	cv.stale, cv.staleTo, cv.changeTarget = true, next, next
	b.dropHeld(cv)
	cv.pullTo = max(cv.pullTo, cv.target)
	b.stale = append(b.stale, cv.id)
	b.work.Signal()
}

// staleTaken notes that the app was told of a reset; ok is false when another one, of everything, came meanwhile.
func (b *inbox) staleTaken(id string) (p Position, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := b.convs[id]
	if cv == nil || !cv.stale {
		return p, false
	}
	b.forgetTold(cv, cv.staleTo, cv.staleTo < cv.changeSeq)
	cv.stale, cv.changeSeq = false, cv.staleTo
	b.schedule(cv)
	return cv.position(), true
}
