package logic

import (
	"container/list"
	"sync/atomic"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// conversation is what a sequencer remembers of a conversation: all of it can be read back from its newest messages.
type conversation struct {
	id       string
	users    [2]string // of a direct conversation, in byte order; the owner of a stream twice
	recent   recent    // recent.tail is the conversation's tail
	counts   storage.Counts
	activeMS int64

	part    *part        // its share of the batch that is being filled
	pending atomic.Int32 // batches with it that finish has not done; it must not be loaded anew before
	place   *list.Element
}

// startRun starts the run of the part.
func (c *conversation) startRun(logTimeMS int64) {
	run := &c.part.run
	run.Conversation, run.First, run.LogTimeMS, run.Before = c.id, c.recent.tail+1, logTimeMS, c.counts
	if run.First == 1 {
		run.Members = c.members()
	}
}

func (c *conversation) members() []string {
	if c.users[0] == c.users[1] {
		return c.users[:1]
	}
	return c.users[:]
}

// append gives a record the next seq and puts it into the run.
func (c *conversation) append(rec *storage.Record) {
	m := &rec.Message
	c.recent.add(rec.ID, rec.LogTimeMS)
	m.Seq = c.recent.tail
	if storage.CountsAsUnread(m) {
		c.counts[storage.Side(m.Sender, c.users[0])]++
	}
	if m.ContentType < protocol.ContentServer {
		c.activeMS = max(c.activeMS, m.SendTimeMS)
	}
	p := c.part
	p.recs = append(p.recs, rec)
	p.run.Messages = append(p.run.Messages, m)
	p.run.After, p.run.ActiveMS = c.counts, c.activeMS
	p.bytes += len(m.Content) + wireEstimate
}

// stateCache holds the conversations of a partition that were in use last, bounded in bytes. Those with a write on its way stay.
type stateCache struct {
	limit int64
	used  int64
	byID  map[string]*conversation
	order list.List // most recently used first
}

func (sc *stateCache) peek(id string) *conversation { return sc.byID[id] }

// get returns the conversation, loading it when it is not remembered.
func (sc *stateCache) get(id string, load func(string) (*conversation, error)) (*conversation, error) {
	if c := sc.byID[id]; c != nil {
		if c.part == nil { // once a batch
			sc.order.MoveToFront(c.place)
		}
		return c, nil
	}
	c, err := load(id)
	if err != nil {
		return nil, err
	}
	if sc.byID == nil {
		sc.byID = make(map[string]*conversation)
	}
	sc.byID[id] = c
	c.place = sc.order.PushFront(c)
	sc.used += conversationSize + c.recent.bytes()
	return c, nil
}

func (sc *stateCache) drop(id string) {
	c := sc.byID[id]
	if c == nil {
		return
	}
	delete(sc.byID, id)
	sc.order.Remove(c.place)
	sc.used -= conversationSize + c.recent.bytes()
}

// evict drops the longest unused conversations until the bound holds.
func (sc *stateCache) evict() {
	for e := sc.order.Back(); e != nil && sc.used > sc.limit; {
		c := e.Value.(*conversation)
		e = e.Prev()
		if c.pending.Load() == 0 && c.part == nil {
			sc.drop(c.id)
		}
	}
}
