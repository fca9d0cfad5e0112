package conn

import (
	"context"
	"time"

	"github.com/parley-im/parley/protocol"
)

// wheel has each session of a loop in the slot of the tick at which somebody must look at it. A session that shows signs of life is
// not moved: reading stores one number, and when its slot comes up the session is put where its time is then. Ticks, not the
// clock on the wall, measure time: a loop that stood still, or a machine that slept, has not seen the silence of its clients.
type wheel struct{ slots [wheelSlots]*session }

const wheelSlots = 1024 // later times are looked at early, and put off

func (w *wheel) insert(s *session, at uint32) {
	s.at = at
	slot := &w.slots[at%wheelSlots]
	s.prev, s.next = nil, *slot
	if s.next != nil {
		s.next.prev = s
	}
	*slot = s
}

func (w *wheel) remove(s *session) {
	if s.at == 0 {
		return
	}
	if s.prev == nil {
		w.slots[s.at%wheelSlots] = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next, s.at = nil, nil, 0
}

// stall follows what a client has not taken.
type stall struct {
	written int64  // bytes given to gnet since it began
	taken   int64  // of which the kernel took, when that was looked at last
	since   uint32 // the tick at which that last became more
}

// ticks are the options' times.
type ticks struct {
	length                                    time.Duration
	silence, handshake, frame, close, stalled uint32
}

func newTicks(o *Options) ticks {
	shortest := min(3*o.Heartbeat, o.HandshakeTimeout, o.FrameTimeout, o.CloseTimeout, o.StallTimeout)
	t := ticks{length: min(max(shortest/8, 5*time.Millisecond), 250*time.Millisecond)}
	t.silence = t.count(3 * o.Heartbeat)
	t.handshake = t.count(o.HandshakeTimeout)
	t.frame = t.count(o.FrameTimeout)
	t.close = t.count(o.CloseTimeout)
	t.stalled = t.count(o.StallTimeout)
	return t
}

// count rounds up, and adds the tick that has begun already.
func (t *ticks) count(d time.Duration) uint32 {
	return uint32(min((d+t.length-1)/t.length, 1<<30)) + 1
}

// tick runs on the loop once for each tick of the engine.
func (l *loop) tick(context.Context) error {
	l.ticking.Store(false)
	l.clock++
	now := unixSeconds(l.g.o.Verifier.now())
	slot := &l.wheel.slots[l.clock%wheelSlots]
	for s := *slot; s != nil; s = *slot {
		l.wheel.remove(s)
		l.guard(s, func(s *session) { l.look(s, now) })
	}
	for s := range l.backlog {
		l.guard(s, l.lookAtBacklog)
	}
	return nil
}

// look does what is due for s, or puts it where it will be.
func (l *loop) look(s *session, now uint32) {
	s.mu.Lock()
	st := s.state
	s.mu.Unlock()
	switch {
	case st == stateClosed:
	case st == stateOpen && now >= s.expires:
		l.g.Kick(s.ID, protocol.Kick{Reason: protocol.KickTokenExpired, Message: "token is expired"})
		l.arm(s)
	case st == stateOpen && l.clock-s.seen >= l.g.ticks.silence:
		l.close(s, reasonSilence)
	case st == stateOpen && s.partial != 0 && l.clock-s.partial >= l.g.ticks.frame:
		l.close(s, reasonFrame)
	case (st == stateHello || st == stateSigning) && l.clock >= s.deadline:
		l.g.metrics.handshakes.WithLabelValues("timeout").Inc()
		l.close(s, reasonHandshake)
	case st == stateClosing && s.deadline != 0 && l.clock >= s.deadline:
		l.close(s, reasonNone)
	default:
		l.arm(s)
	}
}

// arm puts s into the slot at which something can be due, going by what is known now.
func (l *loop) arm(s *session) {
	s.mu.Lock()
	st := s.state
	s.mu.Unlock()
	if st == stateClosed {
		return
	}
	at := s.deadline
	if st == stateOpen {
		at = s.seen + l.g.ticks.silence
		if s.partial != 0 {
			at = min(at, s.partial+l.g.ticks.frame)
		}
		left := int64(s.expires) - l.g.o.Verifier.now().Unix()
		at = min(at, l.clock+l.g.ticks.count(time.Duration(max(0, left))*time.Second))
	}
	l.wheel.remove(s)
	l.wheel.insert(s, min(max(at, l.clock+1), l.clock+wheelSlots-1))
}

func (l *loop) setDeadline(s *session, after uint32) {
	s.deadline = l.clock + after
	l.arm(s)
}

// lookAtBacklog learns what gnet wrote since: it tells nobody.
func (l *loop) lookAtBacklog(s *session) {
	l.settle(s)
	st := l.backlog[s]
	if st == nil {
		return // closed
	}
	s.mu.Lock()
	left := int64(s.outbound)
	moves := left == 0 || st.written-left > st.taken
	stalled := !moves && s.state == stateOpen && l.clock-st.since >= l.g.ticks.stalled
	if stalled {
		s.tooSlow()
	}
	s.mu.Unlock()
	switch {
	case left == 0:
		s.backlog = false
		delete(l.backlog, s)
	case moves:
		st.taken, st.since = st.written-left, l.clock
	case stalled:
		l.flush(s)
	}
}
