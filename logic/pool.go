package logic

import (
	"sync"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// job is a request that waits for a worker. The body is its own.
type job struct {
	command   protocol.Command
	requestID uint32
	body      []byte

	// Of jobKnown.
	record *storage.Record
	seq    uint64
	repeat bool // the sequencer found it: it is a repeat, or two ids share their first half
}

// bytes is the memory that a job holds, roughly.
func (j *job) bytes() int {
	if j.record != nil {
		return j.record.Held
	}
	return len(j.body)
}

const (
	// jobClosed is the last job of a session: it is gone.
	jobClosed protocol.Command = 0
	// jobKnown is a SEND that is a repeat of the message at seq, most likely.
	jobKnown protocol.Command = protocol.CmdSend
	// maxMailbox bounds the jobs of one session, and maxMailboxBytes their bodies. The gateway's bound on requests in flight comes first,
	// unless it is set higher.
	maxMailbox      = 1024
	maxMailboxBytes = 512 << 10
)

// pool answers requests that read the store. Each session's are answered one at a time, in order, and sessions take turns: one that asks for
// much waits for itself.
type pool struct {
	workers int
	serve   func(*session, job)
	wait    sync.WaitGroup

	mu     sync.Mutex
	wake   sync.Cond
	queue  []*session // sessions with a job; at most one entry each
	closed bool
}

func newPool(workers int, serve func(*session, job)) *pool {
	p := &pool{workers: workers, serve: serve}
	p.wake.L = &p.mu
	return p
}

func (p *pool) start() {
	for range p.workers {
		p.wait.Add(1)
		go func() {
			defer p.wait.Done()
			for s := p.next(); s != nil; s = p.next() {
				p.work(s)
			}
		}()
	}
}

// submit puts a job into the session's mailbox, or returns false when that is full.
func (p *pool) submit(s *session, j job) bool {
	s.mu.Lock()
	if j.command != jobClosed && (len(s.mailbox) >= maxMailbox || len(s.mailbox) > 0 && s.mailBytes+j.bytes() > maxMailboxBytes) {
		s.mu.Unlock()
		return false
	}
	s.mailbox = append(s.mailbox, j)
	s.mailBytes += j.bytes()
	first := !s.queued
	s.queued = true
	s.mu.Unlock()
	if first {
		p.push(s)
	}
	return true
}

func (p *pool) push(s *session) {
	p.mu.Lock()
	p.queue = append(p.queue, s)
	p.mu.Unlock()
	p.wake.Signal()
}

// next waits for a session that has a job: nil when the pool is closed and nothing is left to do.
func (p *pool) next() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 {
		if p.closed {
			return nil
		}
		p.wake.Wait()
	}
	s := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	return s
}

// work does the session's oldest job, and puts the session at the end of the queue if it has more.
func (p *pool) work(s *session) {
	s.mu.Lock()
	j := s.mailbox[0]
	s.mailbox[0] = job{}
	s.mailbox = s.mailbox[1:]
	s.mailBytes -= j.bytes()
	s.mu.Unlock()

	p.serve(s, j)

	s.mu.Lock()
	more := len(s.mailbox) > 0
	if !more {
		s.mailbox, s.queued = nil, false // an idle session keeps no memory for it
	}
	s.mu.Unlock()
	if more {
		p.push(s)
	}
}

// close lets the workers finish what is queued, and waits for them.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.wake.Broadcast()
	p.wait.Wait()
}
