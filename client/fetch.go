package client

import (
	"errors"
	"sync/atomic"

	"github.com/parley-im/parley/protocol"
)

// fetchers is how many conversations are fetched at a time.
const fetchers = 4

// pageSize is how many entries are asked for at a time. It is halved when the server says that this client is too slow.
type pageSize struct {
	limit atomic.Int32
}

func (p *pageSize) halve() { p.limit.Store(max(p.limit.Load()/2, 1)) }

func (p *pageSize) get() uint16 { return uint16(p.limit.Load()) }

// job is one page to fetch: messages from from to to, or changes since since.
type job struct {
	cv       *conversation
	id       string
	stamp    uint64 // the conversation's
	from, to uint64 // to is 0 for whatever there is
	open     bool   // to is 0, or changes of which nobody said how far they go
	changes  bool
	since    uint64
	target   uint64 // how far changes were known to go
}

// fetch gets what conversations miss, a page at a time, until the client stops.
func (c *Client) fetch() {
	for {
		j, ok := c.inbox.nextFetch()
		if !ok {
			return
		}
		k, err := c.online(c.ctx)
		if err != nil {
			return
		}
		if j.changes {
			err = c.fetchChanges(k, j)
		} else {
			err = c.fetchMessages(k, j)
		}
		if err != nil {
			c.fetchFailed(j, err)
		}
	}
}

func (c *Client) fetchMessages(k *conn, j job) error {
	var reply protocol.PullReply
	pull := protocol.Pull{ConversationID: j.id, FromSeq: j.from, ToSeq: j.to, Limit: c.pages.get()}
	if err := k.call(c.ctx, protocol.CmdPull, &pull, &reply); err != nil {
		return err
	}
	c.inbox.fetched(j, &reply)
	return nil
}

func (c *Client) fetchChanges(k *conn, j job) error {
	var reply protocol.ChangesReply
	ask := protocol.Changes{ConversationID: j.id, Since: j.since, Limit: min(c.pages.get(), protocol.MaxArray)}
	if err := k.call(c.ctx, protocol.CmdChanges, &ask, &reply); err != nil {
		return err
	}
	c.inbox.fetchedChanges(j, &reply)
	return nil
}

// fetchFailed decides when a page is asked for again, if at all.
func (c *Client) fetchFailed(j job, err error) {
	after, again := retryable(err)
	switch {
	case isLost(err):
		c.inbox.again(j, 0)
	case again:
		c.inbox.retryFetch(j, after)
	case j.changes && errors.Is(err, &protocol.Error{Code: protocol.CodeUnknownCommand}):
		c.inbox.withoutChanges(j)
	case c.ctx.Err() == nil:
		c.opts.Logger.Warn("client: cannot fetch", "conversation", j.id, "err", err)
		c.inbox.giveUp(j)
	}
}

// nextFetch waits for a conversation that misses something, and for room; false when the client stops.
func (b *inbox) nextFetch() (j job, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		if len(b.toFetch) == 0 || b.fetchedBytes >= b.maxBytes {
			b.fetch.Wait()
			continue
		}
		cv := b.toFetch[0]
		b.toFetch = b.toFetch[1:]
		cv.waiting = false
		if j, ok := b.jobFor(cv); ok {
			cv.fetching = true
			return j, true
		}
	}
	return j, false
}

// jobFor is what a conversation misses now; pushes may have brought it meanwhile.
func (b *inbox) jobFor(cv *conversation) (j job, ok bool) {
	j = job{cv: cv, id: cv.id, stamp: cv.stamp}
	switch {
	case cv.gone:
		return j, false
	case cv.missing():
		j.from, j.to = cv.cursor+1, cv.gapEnd()
	case cv.ask:
		j.open, cv.ask = true, false
		j.from = cv.target + 1
	case b.changed(cv):
		j.open, cv.askChanges = cv.askChanges, false
		j.changes, j.since, j.target = true, cv.changeSeq, cv.changeTarget
	default:
		return j, false
	}
	return j, true
}

// ended notes that a page came, or did not. What it was to find out is still not known, unless it came.
func (b *inbox) ended(j job, came bool) {
	j.cv.fetching = false
	if j.open && !came {
		j.cv.ask = j.cv.ask || !j.changes
		j.cv.askChanges = j.cv.askChanges || j.changes
	}
}

// gapEnd is the last seq that is missing after the cursor.
func (cv *conversation) gapEnd() uint64 {
	end := cv.target
	for at := range cv.held {
		if at > cv.cursor {
			end = min(end, at-1)
		}
	}
	return end
}
