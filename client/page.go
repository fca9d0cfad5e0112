package client

import (
	"time"

	"github.com/parley-im/parley/protocol"
)

// fetched takes a page of messages. A page must begin where it was asked to and have no holes; what comes after one is not
// taken, and asked for again.
func (b *inbox) fetched(j job, reply *protocol.PullReply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cv := j.cv
	if cv.gone {
		return
	}
	if j.stamp != cv.stamp && j.from <= cv.pullTo {
		b.ended(j, false)
		b.schedule(cv)
		return
	}
	b.ended(j, true)
	if j.open {
		j.to = max(reply.MaxSeq, j.from-1)
		cv.target = max(cv.target, j.to)
	}
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
	b.progress(j, next > j.from || next > j.to)
}

func (b *inbox) offerFetched(cv *conversation, m *protocol.Message, end uint64) {
	if end <= cv.cursor {
		return
	}
	cv.changeTarget = max(cv.changeTarget, m.ChangeSeq)
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

// again asks again at once, or rather with the next connection.
func (b *inbox) again(j job, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended(j, false)
	b.later(j.cv, after)
}

// retryFetch asks again with backoff.
func (b *inbox) retryFetch(j job, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended(j, false)
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
	b.ended(j, false)
	b.noChanges = true
	b.schedule(j.cv)
}

// giveUp forgets that a conversation goes further: the server does not show it to this user, or not any more.
func (b *inbox) giveUp(j job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended(j, true)
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
	cv.ask, cv.askChanges = false, false
	cv.fruitless, cv.retry = 0, nil
	b.schedule(cv) // cv.changes may still be there
}
