package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-im/parley/storage"
)

// LogOptions for OpenLog. All have useful zeros.
type LogOptions struct {
	// Partitions; 0: 1. Each is one goroutine's work.
	Partitions int
	// QueueBytes bounds the records that wait; 0: 64 MiB.
	QueueBytes int64
	// Writable is nil while the store that the messages go to takes writes; nil: always. It is asked for each record, so it must be quick, and
	// from any goroutine.
	Writable func() error
	// Now is the clock of log times; nil: time.Now.
	Now func() time.Time
	// Registerer of the metrics; nil: none.
	Registerer prometheus.Registerer
}

// Log implements storage.Log in line with its store: records wait in memory, and are durable when the store has the messages that
// the consumer makes of them. So an accepted record is lost in a crash, and its sender, who was not acked, sends it again.
type Log struct {
	o     LogOptions
	ready func() error // of the store, for Ready
	m     *logMetrics
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
	l := newLog(LogOptions{Partitions: s.o.Partitions, QueueBytes: s.o.QueueBytes, Now: s.o.Now, Writable: s.hasSpace}, s.m.log)
	l.ready = s.Writable
	return l
}

// hasSpace is Writable without the lock.
func (s *Store) hasSpace() error {
	if s.space.full.Load() {
		return storage.ErrFull
	}
	return nil
}

// OpenLog makes a log in line with a store of another kind. It is to be closed before the store.
func OpenLog(o LogOptions) (*Log, error) {
	o.Partitions = cmp.Or(o.Partitions, 1)
	o.QueueBytes = cmp.Or(o.QueueBytes, 64<<20)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Writable == nil {
		o.Writable = func() error { return nil }
	}
	l := newLog(o, newLogMetrics())
	if err := registerAll(o.Registerer, l.m.all()); err != nil {
		return nil, fmt.Errorf("embedded: metrics of the log: %w", err)
	}
	return l, nil
}

func newLog(o LogOptions, m *logMetrics) *Log {
	l := &Log{o: o, ready: o.Writable, m: m, seed: maphash.MakeSeed(), done: make(chan struct{})}
	for range o.Partitions {
		l.parts = append(l.parts, &partition{wake: make(chan struct{}, 1)})
	}
	return l
}

const (
	recordSize = int64(unsafe.Sizeof(storage.Record{}))
	stringSize = int64(unsafe.Sizeof(""))

	maxKeptQueue = 1 << 16 // records; the memory of a longer queue is let go
)

// weight is what a record takes in memory: what it says of itself, or the whole request that it shares memory with.
func weight(rec *storage.Record) int64 {
	m := &rec.Message
	own := len(m.ClientMsgID) + len(m.Content)
	for _, s := range m.Mentions {
		own += len(s)
	}
	if rec.Intent != nil {
		own += len(rec.Intent.Content) + len(rec.Intent.Reaction)
	}
	fixed := len(m.ConversationID) + len(m.ServerMsgID) + len(m.Sender) + len(rec.Origin.Reply)
	return recordSize + int64(fixed+max(own, rec.Held)) + stringSize*int64(len(m.Mentions))
}

// Append implements storage.Log.
func (l *Log) Append(rec *storage.Record) error {
	if err := l.o.Writable(); err != nil {
		l.m.refused.WithLabelValues(refusal(err)).Inc()
		return err
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
		l.m.refused.WithLabelValues("queue_full").Inc()
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

// refusal names why a store takes no writes, for the metrics.
func refusal(err error) string {
	if errors.Is(err, storage.ErrFull) {
		return "disk_full"
	}
	return "store_away"
}

// bound is a partition's, so that a busy conversation leaves room for those of other partitions.
func (l *Log) bound() int64 { return l.o.QueueBytes / int64(len(l.parts)) }

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
			l.m.queued.Set(float64(bytes))
			p.lastMS = max(p.lastMS, l.o.Now().UnixMilli())
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
	if err := l.ready(); err != nil {
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
	unregisterAll(l.o.Registerer, l.m.all())
	return nil
}
