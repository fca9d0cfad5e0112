package conn

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/parley-im/parley/protocol"
)

// loop is an event loop of the engine, and what the gateway keeps for it. There is one way to a socket: frames are appended to the
// session's pending buffer, from any goroutine; the session is put into the loop's dirty list; and a pass over the
// list, run by the loop, writes each session's buffer with one Write. However many deliveries come while a pass waits
// or runs, there is at most one pass scheduled, and a session is written once in it. That is where the speed comes from:
// a write costs as much as everything else that is done for thirty messages.
//
// The engine runs what Execute was given before it looks at sockets again, and goes on as long as there is more. So
// a pass that leaves work behind does not schedule the next one itself: deliveries without end would then starve the reads. The
// next read does it (OnTraffic), or, when nothing is read, another goroutine.
type loop struct {
	g      *Gateway
	index  uint
	engine gnet.EventLoop

	// On the loop only.
	clock   uint32 // ticks done; from 1
	wheel   wheel
	backlog map[*session]*stall
	frames  []protocol.Frame // of the read that is being handled
	out     []byte           // replies that the read gave rise to
	last    []byte           // the ERROR that ends the session, if the read gave rise to one

	mu        sync.Mutex
	dirty     []*session
	spare     []*session
	scheduled bool // a pass is, or will be

	yielded atomic.Bool // a pass left work behind, and somebody must schedule the next one
	ticking atomic.Bool // a tick is scheduled and has not run
}

const passSize = 1024 // sessions that are written before reads get their turn

// mark puts s into the dirty list: once for each touch that returned true. It tells whether the caller must run.
func (l *loop) mark(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirty = append(l.dirty, s)
	if l.scheduled {
		return false
	}
	l.scheduled = true
	return true
}

// add is mark, and run if that is needed.
func (l *loop) add(s *session) {
	if l.mark(s) {
		l.run()
	}
}

// run has the loop do a pass. When the engine is gone there is nothing left to write to.
func (l *loop) run() { l.g.execute(l.engine, l.pass) }

func (l *loop) pass(context.Context) error {
	l.mu.Lock()
	list := l.dirty
	l.dirty = l.spare[:0]
	if len(list) > passSize {
		l.dirty = append(l.dirty, list[passSize:]...)
	}
	l.mu.Unlock()

	for _, s := range list[:min(len(list), passSize)] {
		l.guard(s, l.flushListed)
	}
	clear(list) // so that it keeps no session alive

	l.mu.Lock()
	l.spare = list[:0]
	more := len(l.dirty) > 0
	l.scheduled = more
	l.mu.Unlock()
	if more {
		l.yielded.Store(true)
		go l.takeUp()
	}
	return nil
}

// takeUp schedules the pass that the last one left to be done, if nobody has yet.
func (l *loop) takeUp() {
	if l.yielded.Load() && l.yielded.CompareAndSwap(true, false) {
		l.run()
	}
}

// guard runs f for s, and closes the connection if it panics: the others go on.
func (l *loop) guard(s *session, f func(*session)) {
	defer func() {
		if v := recover(); v != nil {
			l.g.panicked(v, s)
			l.close(s, reasonPanic)
		}
	}()
	f(s)
}

func (l *loop) flushListed(s *session) {
	s.mu.Lock()
	s.dirty = false
	resume := s.resume
	s.resume = false
	s.mu.Unlock()
	l.flush(s)
	if resume {
		l.arm(s)
		l.traffic(s)
	}
}

// flush writes what is pending, with one Write. It is the only place that writes.
func (l *loop) flush(s *session) {
	s.mu.Lock()
	closed := s.state == stateClosed
	b := s.pending
	s.pending = nil
	if b != nil && !closed {
		s.outbound += int32(len(b.b))
	}
	s.mu.Unlock()
	if closed {
		b.release()
		return
	}
	if b != nil {
		n := len(b.b)
		_, err := s.c.Write(b.b)
		b.release()
		if err != nil {
			return // the engine has closed the connection and called OnClose
		}
		l.g.metrics.writes.Inc()
		l.g.metrics.bytesOut.Add(float64(n))
		if s.backlog {
			l.backlog[s].written += int64(n)
		}
	}
	l.settle(s)
}

// settle looks at what the kernel did not take, and does what waits for that to be nothing.
func (l *loop) settle(s *session) {
	left := s.c.OutboundBuffered()
	s.mu.Lock()
	s.outbound = int32(left)
	idle := left == 0 && s.pending == nil
	resync := idle && s.skipped && s.state == stateOpen
	if resync {
		s.skipped = false
		s.queue(l.g.resync)
	}
	closing := s.state == stateClosing
	s.mu.Unlock()
	switch {
	case resync:
		l.flush(s)
	case closing:
		l.finish(s, idle)
	}
	if left > 0 && !s.backlog {
		s.backlog = true
		l.backlog[s] = &stall{written: int64(left), since: l.clock}
	}
}

// finish closes a session whose last frames are out, in steps: FIN, and then the client has CloseTimeout to close its side. A close
// with unread bytes in the kernel would be a reset, and the client would lose the very frame that tells it why.
func (l *loop) finish(s *session, flushed bool) {
	if s.halfClose {
		return
	}
	if flushed {
		s.halfClose = true
		if err := unix.Shutdown(s.c.Fd(), unix.SHUT_WR); err != nil {
			l.close(s, reasonError) // the client is gone already
			return
		}
		l.setDeadline(s, l.g.ticks.close)
		return
	}
	if !s.ending {
		s.ending = true
		l.setDeadline(s, l.g.ticks.close)
	}
}

// close ends the connection now. The first reason stays.
func (l *loop) close(s *session, why reason) {
	s.mu.Lock()
	closed := s.state == stateClosed
	if s.why == reasonNone {
		s.why = why
	}
	s.mu.Unlock()
	if !closed {
		_ = l.engine.Close(s.c) // what closing a socket reports is of no use to anybody
	}
}
