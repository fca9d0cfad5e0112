package client

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

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
	changes  bool
	from, to uint64
	since    uint64
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

// jobFor is what a conversation misses now; pushes may have brought it meanwhile. Messages come before changes: a page of
// changes is then never older than the copies that are held.
func (b *inbox) jobFor(cv *conversation) (j job, ok bool) {
	switch {
	case cv.gone:
		return j, false
	case cv.missing():
		return job{cv: cv, id: cv.id, from: cv.cursor + 1, to: cv.gapEnd()}, true
	case b.changed(cv):
		return job{cv: cv, id: cv.id, changes: true, since: cv.changeSeq}, true
	}
	return j, false
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

// fetched takes a page of messages. A page must begin where it was asked to and have no holes; what comes after one is not
// taken, and asked for again.
func (b *inbox) fetched(j job, reply *protocol.PullReply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := j.cv
	if cv.gone {
		return
	}
	cv.fetching = false
	next := j.from
	if reply.MinSeq > next { // cleared, or before the user was a member
		next = min(reply.MinSeq, j.to+1)
		b.advance(cv, next-1)
	}
	for i := range reply.Messages {
		m := &reply.Messages[i]
		if m.ConversationID != cv.id || m.Seq > next || m.Seq == 0 {
			break
		}
		end := min(lastSeq(m), j.to)
		if end < next {
			continue
		}
		next = end + 1
		b.count.fetched.Add(1)
		b.offerFetched(cv, m, end)
	}
	b.progress(j, next > j.from)
}

func (b *inbox) offerFetched(cv *conversation, m *protocol.Message, end uint64) {
	if end <= cv.cursor {
		return
	}
	if old := cv.held[m.Seq]; old != nil {
		b.replace(old, m, nil)
		return
	}
	own := *m
	own.Content = append([]byte(nil), m.Content...) // m's is a part of the whole reply
	b.keep(cv, &held{m: own, end: end, size: sizeOf(m), pulled: true})
}

// progress ends a fetch. Replies that bring nothing though something must be there are a fault of the server's: asked again a
// few times, then given up.
func (b *inbox) progress(j job, made bool) {
	cv := j.cv
	if made {
		cv.fruitless, cv.retry = 0, nil
		b.schedule(cv)
		return
	}
	if cv.fruitless++; cv.fruitless < maxFruitless {
		b.later(cv, b.delay(cv, 0))
		return
	}
	b.drop(cv)
}

// fetchedChanges takes a page of changes.
func (b *inbox) fetchedChanges(j job, reply *protocol.ChangesReply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := j.cv
	if cv.gone {
		return
	}
	cv.fetching = false
	if reply.Reset && !slices.Contains(b.stale, cv.id) {
		b.stale = append(b.stale, cv.id)
		b.work.Signal()
	}
	for i := range reply.Messages {
		if m := &reply.Messages[i]; m.ConversationID == cv.id {
			b.takeChange(cv, m)
		}
	}
	cv.changesNext = reply.Next
	if !reply.More {
		cv.changesNext = max(reply.Next, cv.changeTarget) // all that there is
	}
	made := cv.changesNext > j.since
	if len(cv.changes) == 0 {
		cv.changeSeq = max(cv.changeSeq, cv.changesNext)
	}
	b.progress(j, made)
}

// takeChange puts a changed message where its older copy is: held, or with the app.
func (b *inbox) takeChange(cv *conversation, m *protocol.Message) {
	m.Content = append([]byte(nil), m.Content...)
	if m.Seq <= cv.cursor {
		cv.changes = append(cv.changes, *m)
		return
	}
	b.offer(cv, m, nil)
}

// again asks again at once, or rather with the next connection.
func (b *inbox) again(j job, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j.cv.fetching = false
	b.later(j.cv, after)
}

// retryFetch asks again with backoff.
func (b *inbox) retryFetch(j job, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j.cv.fetching = false
	b.later(j.cv, b.delay(j.cv, after))
}

func (b *inbox) delay(cv *conversation, after time.Duration) time.Duration {
	if cv.retry == nil {
		cv.retry = b.newRetry()
	}
	return after + cv.retry.NextBackOff()
}

// later schedules a conversation after a delay; until then it is not fetched.
func (b *inbox) later(cv *conversation, d time.Duration) {
	if d == 0 {
		b.schedule(cv)
		return
	}
	cv.timer = time.AfterFunc(d, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		cv.timer = nil
		b.schedule(cv)
	})
}

// withoutChanges notes that the server does not know CHANGES.
func (b *inbox) withoutChanges(j job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j.cv.fetching = false
	b.noChanges = true
	b.schedule(j.cv)
}

// giveUp forgets that a conversation goes further: the server does not show it to this user, or not any more.
func (b *inbox) giveUp(j job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j.cv.fetching = false
	if !j.cv.gone {
		b.drop(j.cv)
	}
}

func (b *inbox) drop(cv *conversation) {
	b.count.givenUp.Add(1)
	for at, h := range cv.held {
		b.account(h, -h.size)
		delete(cv.held, at)
	}
	cv.target, cv.changeTarget = cv.cursor, cv.changeSeq
	cv.fruitless, cv.retry = 0, nil
	b.schedule(cv) // cv.changes may still be there
}
