package embedded

import (
	"errors"
	"hash/maphash"
	"sync"
	"unsafe"

	"github.com/parley-im/parley/storage"
)

// Log implements storage.Log in line with its store: records wait in memory, and are durable when the store has the messages that
// the consumer makes of them. So an accepted record is lost in a crash, and its sender, who was not acked, sends it again.
type Log struct {
	s     *Store
	seed  maphash.Seed
	parts []*partition

	mu       sync.Mutex
	consumed bool
	done     chan struct{} // closed when Consume returns
}

// partition is a queue. Records gather in it while its consumer is at the batch before.
type partition struct {
	mu     sync.Mutex
	queue  []*storage.Record
	bytes  int64 // of queue
	closed bool
	wake   chan struct{} // capacity 1: there is something in queue, or closed was set

	spare  []*storage.Record // the queue's memory while queue is the other; the consumer's
	lastMS int64             // LogTimeMS of the last batch; the consumer's
}

// NewLog makes the log of the store; there should be one. It is to be closed before the store.
func (s *Store) NewLog() *Log {
	l := &Log{s: s, seed: maphash.MakeSeed(), done: make(chan struct{})}
	for range s.o.Partitions {
		l.parts = append(l.parts, &partition{wake: make(chan struct{}, 1)})
	}
	return l
}

const (
	recordSize = int64(unsafe.Sizeof(storage.Record{}))
	stringSize = int64(unsafe.Sizeof(""))

	maxKeptQueue = 1 << 16 // records; the memory of a longer queue is let go
)

// weight is what a record takes in memory.
func weight(rec *storage.Record) int64 {
	m := &rec.Message
	n := recordSize + int64(len(m.ConversationID)+len(m.ServerMsgID)+len(m.ClientMsgID)+len(m.Sender)+len(m.Content))
	for _, s := range m.Mentions {
		n += stringSize + int64(len(s))
	}
	return n
}

// Append implements storage.Log.
func (l *Log) Append(rec *storage.Record) error {
	if l.s.space.full.Load() {
		l.s.m.refused.WithLabelValues("disk_full").Inc()
		return storage.ErrFull
	}
	n := weight(rec)
	p := l.parts[0]
	if len(l.parts) > 1 {
		p = l.parts[maphash.String(l.seed, rec.Message.ConversationID)%uint64(len(l.parts))]
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return storage.ErrClosed
	}
	if p.bytes+n > l.bound() {
		p.mu.Unlock()
		l.s.m.refused.WithLabelValues("queue_full").Inc()
		return storage.ErrFull
	}
	p.queue = append(p.queue, rec)
	p.bytes += n
	first := len(p.queue) == 1
	p.mu.Unlock()
	if first {
		p.signal()
	}
	return nil
}

// bound is a partition's, so that a busy conversation leaves room for those of other partitions.
func (l *Log) bound() int64 { return l.s.o.QueueBytes / int64(len(l.parts)) }

func (p *partition) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Consume implements storage.Log. It can be called once.
func (l *Log) Consume(c storage.Consumer) error {
	l.mu.Lock()
	if l.consumed {
		l.mu.Unlock()
		return errors.New("embedded: the log has a consumer already")
	}
	l.consumed = true
	l.mu.Unlock()
	defer close(l.done)
	var all sync.WaitGroup
	for i, p := range l.parts {
		all.Go(func() {
			for recs := l.drain(p); recs != nil; recs = l.drain(p) {
				c.Process(i, recs)
			}
		})
	}
	all.Wait()
	return nil
}

// drain waits for records and returns all that have gathered, nil after Close. The slice is good until the next call.
func (l *Log) drain(p *partition) []*storage.Record {
	clear(p.spare)
	for {
		p.mu.Lock()
		recs, bytes, closed := p.queue, p.bytes, p.closed
		if len(recs) > 0 {
			p.queue, p.bytes = p.spare[:0], 0
		}
		p.mu.Unlock()
		switch {
		case len(recs) > 0:
			p.spare = recs
			if cap(recs) > maxKeptQueue {
				p.spare = nil
			}
			l.s.m.queued.Set(float64(bytes))
			p.lastMS = max(p.lastMS, l.s.o.Now().UnixMilli())
			for _, rec := range recs {
				rec.LogTimeMS = p.lastMS
			}
			return recs
		case closed:
			return nil
		}
		<-p.wake
	}
}

// Ready implements storage.Log.
func (l *Log) Ready() error {
	if err := l.s.Writable(); err != nil {
		return err
	}
	for _, p := range l.parts {
		p.mu.Lock()
		closed, full := p.closed, p.bytes+recordSize > l.bound()
		p.mu.Unlock()
		switch {
		case closed:
			return storage.ErrClosed
		case full:
			return storage.ErrFull
		}
	}
	return nil
}

// Close implements storage.Log.
func (l *Log) Close() error {
	for _, p := range l.parts {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.signal()
	}
	l.mu.Lock()
	consumed := l.consumed
	l.mu.Unlock()
	if consumed {
		<-l.done
	}
	return nil
}
