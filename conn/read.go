package conn

import (
	"encoding/binary"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/parley-im/parley/protocol"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

// traffic handles what has been read of s: bytes to frames, frames to logic. The bytes belong to gnet; they are looked at once,
// in place, and given back once, when logic is done with them.
func (l *loop) traffic(s *session) {
	s.seen = l.clock
	n := s.c.InboundBuffered()
	if n == 0 {
		return
	}
	l.out, l.last = l.out[:0], nil
	st, budget := s.startRead(l.g.o.MaxInflight)
	switch {
	case st == stateClosing:
		_, _ = s.c.Discard(n)
	case st == stateSigning && n > earlyBound:
		l.fail(s, 0, &protocol.Error{Code: protocol.CodeBadFrame, Message: "too much before WELCOME"}, reasonProtocol)
	case st == stateHello && n >= int(s.need):
		l.discard(s, l.hello(s, l.peek(s)))
	case st == stateOpen && n >= int(s.need):
		l.discard(s, l.requests(s, l.peek(s), budget))
	}
	l.endRead(s)
}

func (l *loop) peek(s *session) []byte {
	buf, _ := s.c.Peek(-1) // an error only when more is asked for than there is
	return buf
}

// discard gives bytes back. 0 would mean everything to gnet.
func (l *loop) discard(s *session, used int) {
	if used > 0 {
		l.g.metrics.bytesIn.Add(float64(used))
		_, _ = s.c.Discard(used)
	}
}

// startRead tells the state, and how many requests more may be in flight. From here to endRead deliveries do not put an open session into
// the dirty list: it is flushed at the end.
func (s *session) startRead(maxInflight int) (st state, budget int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onLoop = s.state == stateOpen
	return s.state, max(0, maxInflight-int(s.inflight))
}

// endRead queues the replies that the read gave rise to, and writes what is pending, with what others queued meanwhile.
func (l *loop) endRead(s *session) {
	s.mu.Lock()
	s.onLoop = false
	if s.state == stateOpen && len(l.out) > 0 {
		if s.waiting()+len(l.out) > l.g.o.HardBound {
			s.tooSlow()
		} else {
			s.queue(l.out)
		}
	}
	if s.state == stateOpen && l.last != nil {
		s.end(reasonProtocol, l.last)
	}
	write := s.pending != nil || s.state == stateClosing
	s.mu.Unlock()
	if write {
		l.flush(s)
	}
}

// fail ends a session that is not open yet with an ERROR; endRead, or a pass, writes it.
func (l *loop) fail(s *session, requestID uint32, err error, why reason) {
	e := asError(err)
	l.g.metrics.handshakes.WithLabelValues(e.Code.String()).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state < stateOpen {
		s.end(why, errorFrame(requestID, e))
	}
}

func asError(err error) *protocol.Error {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e
	}
	return &protocol.Error{Code: protocol.CodeInternal, Message: "internal error"}
}

// requests splits buf and hands the frames to logic. It returns how many bytes it is done with.
func (l *loop) requests(s *session, buf []byte, budget int) (used int) {
	frames := l.frames[:0]
	counted := 0
	for l.last == nil {
		f, n, err := protocol.Split(buf[used:], l.g.o.MaxBody)
		if err != nil {
			l.refuseFrame(f.RequestID, err)
			break
		}
		if n == 0 {
			break
		}
		used += n
		switch {
		case f.Command == protocol.CmdPing:
			l.out = protocol.AppendFrame(l.out, protocol.CmdPong, f.RequestID, &protocol.Pong{ServerTimeMS: time.Now().UnixMilli()})
		case f.Command == protocol.CmdHello:
			l.refuseFrame(f.RequestID, &protocol.Error{Code: protocol.CodeBadFrame, Message: "a second HELLO"})
		case !f.Command.CountsInFlight():
			frames = append(frames, f)
		case f.RequestID == 0:
			l.refuseFrame(0, &protocol.Error{Code: protocol.CodeBadFrame, Message: "request id is 0"})
		case counted == budget:
			l.g.metrics.limited.Inc()
			l.out = append(l.out, errorFrame(f.RequestID, &protocol.Error{
				Code: protocol.CodeRateLimited, Message: "too many requests in flight", RetryAfterMS: inflightRetryMS})...)
		default:
			counted++
			frames = append(frames, f)
		}
	}
	l.remainder(s, buf[used:], used > 0)
	if l.last != nil {
		used = len(buf) // nothing of it is wanted any more
	}
	l.hand(s, frames, counted)
	l.frames = frames
	return used
}

// inflightRetryMS is after how long a request over max_inflight may be repeated; a reply in between is the better sign.
const inflightRetryMS = 50

func (l *loop) hand(s *session, frames []protocol.Frame, counted int) {
	if len(frames) == 0 {
		return
	}
	l.g.metrics.framesIn.Add(float64(len(frames)))
	s.mu.Lock()
	s.inflight += uint16(counted)
	s.mu.Unlock()
	l.g.logic.Handle(s.ID, frames)
}

// remainder notes how much is missing of a frame of which rest is the beginning: so that bytes that trickle in one by one cost one comparison
// each, and so that a frame that never ends is noticed.
func (l *loop) remainder(s *session, rest []byte, progress bool) {
	s.need = missing(rest)
	if len(rest) == 0 || l.last != nil {
		s.partial = 0
		return
	}
	if progress || s.partial == 0 {
		s.partial = l.clock
		if due := s.partial + l.g.ticks.frame; s.at > due {
			l.arm(s)
		}
	}
}

// missing is how many bytes must be there before there is more to say of the frame that rest begins.
func missing(rest []byte) uint32 {
	if len(rest) < protocol.HeaderSize {
		return uint32(len(rest)) + 1
	}
	return 4 + binary.BigEndian.Uint32(rest) // Split has held it against the limit
}

// refuseFrame makes the ERROR that ends the session.
func (l *loop) refuseFrame(requestID uint32, err error) {
	l.last = errorFrame(requestID, asError(err))
}
