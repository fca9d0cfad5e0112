//go:build linux

package bench

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/parley-im/parley/protocol"
)

var errNonsense = errors.New("bytes that are no frame of the protocol")

// talk is the scene of chat and of echo: each connection keeps messages on their way to its partner.
type talk struct {
	l        *loop
	lanes    []lane // by the connections' index; partners are neighbours
	window   int
	size     int
	rate     float64 // messages a second of this loop; 0: closed loop
	pushAck  bool
	fresh    bool // the users are new, so their conversations start at seq 1
	sending  bool
	measured bool
	pace     pacer
	ack      *recorder
	deliver  *recorder
	checks   Checks
	resting  []resting
	sees     func(*pushed)
	at       *lane  // whose input is being read
	scratch  pushed // reused by scanPush
	nowUS    uint32

	sent, acked, delivered uint64
	ownPushes              uint64
	resyncs, fetches       uint64
	refusal                atomic.Pointer[error] // why the scenario cannot be run on this server
}

// resting is a slot whose message was refused: it stays empty for a while, as the server asks.
type resting struct {
	ln     *lane
	slot   uint16
	wakeNS int64
}

func newTalk(l *loop, window, size int) *talk {
	s := &talk{l: l, window: window, size: size, fresh: true, ack: newRecorder(), deliver: newRecorder()}
	s.lanes = make([]lane, len(l.conns))
	for i := range s.lanes {
		s.lanes[i].setup(&s.lanes[i^1], window)
	}
	s.sees = s.arrived
	return s
}

func (s *talk) ready(c *conn, w *protocol.Welcome) {
	ln := &s.lanes[c.index]
	ln.c = c
	if w == nil {
		ln.user = fmt.Sprint(c.id)
		return
	}
	ln.user = w.UserID
	if s.window > int(w.MaxInflight) {
		s.refuse("window %d is over the server's max_inflight of %d", s.window, w.MaxInflight)
	}
	if w.MaxDown > maxFrame-protocol.HeaderSize {
		s.refuse("the server's max_down of %d is over the %d that this harness reads", w.MaxDown, maxFrame-protocol.HeaderSize)
	}
	if s.size > int(w.MaxBody)-envelope {
		s.refuse("size %d does not fit in the server's max_body of %d with %d for the rest", s.size, w.MaxBody, envelope)
	}
}

// envelope is room for the fields of a SEND beside its content.
const envelope = 256

func (s *talk) refuse(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	s.refusal.Store(&err)
}

func (s *talk) enter(p phase) {
	switch p {
	case phaseWarm:
		for i := range s.lanes {
			ln := &s.lanes[i]
			ln.frame = newTemplate(ln.peer.user, s.size)
			if ln.seqs.open = !s.fresh; s.fresh {
				ln.seqs.next = 1
			}
		}
		s.sending = true
		if s.rate > 0 {
			s.pace = newPacer(s.l.nowNS, s.rate, len(s.lanes))
			return
		}
		s.startAll()
	case phaseMeasure:
		s.measured = true
	case phaseDrain:
		s.sending = false
	}
}

func (s *talk) startAll() {
	s.nowUS = uint32(s.l.nowNS / 1000)
	for i := range s.lanes {
		if ln := &s.lanes[i]; !ln.dead {
			s.pump(ln)
			s.l.flush(ln.c)
		}
	}
}

// pump sends what the window, and in an open loop the timetable, allow.
func (s *talk) pump(ln *lane) {
	if !s.sending {
		return
	}
	for len(ln.free) > 0 {
		timeUS := s.nowUS
		if s.rate > 0 {
			if ln.sent == ln.due {
				return
			}
			timeUS = uint32(s.pace.dueNS(int(ln.c.index), ln.sent) / 1000)
		}
		sl := ln.take()
		s.sent++
		s.l.out = ln.frame.append(s.l.out, sl.request, msgID{sender: ln.c.id, timeUS: timeUS, index: sl.index})
	}
}

func (s *talk) input(c *conn, b []byte) (used int, err error) {
	ln := &s.lanes[c.index]
	s.at = ln
	s.nowUS = uint32(s.l.nowNS / 1000)
	for {
		cmd, request, n := nextFrame(b[used:], maxFrame)
		if n <= 0 {
			if n < 0 {
				return used, errNonsense
			}
			break
		}
		body := b[used+protocol.HeaderSize : used+n]
		used += n
		switch cmd {
		case protocol.CmdSendAck:
			err = s.acknowledged(ln, request, body)
		case protocol.CmdPush:
			err = s.push(request, body)
		case protocol.CmdSend:
			err = s.echoed(ln, request, body)
		default:
			err = s.other(ln, protocol.Frame{Header: protocol.Header{Command: cmd, RequestID: request}, Body: body})
		}
		if err != nil {
			return used, err
		}
	}
	s.pump(ln)
	return used, nil
}

// lost is called when a connection ends while the run goes on.
func (s *talk) lost(c *conn) { s.lanes[c.index].dead = true }

// step lets sleeping slots and due messages go.
func (s *talk) step() time.Duration {
	s.l.tally.sent.Store(s.sent)
	s.l.tally.acked.Store(s.acked)
	s.l.tally.delivered.Store(s.delivered)
	s.nowUS = uint32(s.l.nowNS / 1000)
	if len(s.resting) > 0 {
		s.resting = slices.DeleteFunc(s.resting, s.wake)
	}
	if s.rate == 0 || !s.sending {
		return idleWait
	}
	for n := s.pace.due(s.l.nowNS); n > 0; n-- {
		ln := &s.lanes[s.pace.issue()]
		ln.due++
		if !ln.dead && len(ln.free) > 0 {
			s.pump(ln)
			s.l.flush(ln.c)
		}
	}
	return min(idleWait, s.pace.sleep(s.l.nowNS))
}

func (s *talk) wake(r resting) bool {
	if r.wakeNS > s.l.nowNS {
		return false
	}
	r.ln.free = append(r.ln.free, r.slot)
	if !r.ln.dead {
		s.pump(r.ln)
		s.l.flush(r.ln.c)
	}
	return true
}

func (s *talk) quiet() bool {
	quiet := true
	for i := range s.lanes {
		if !s.lanes[i].settled() {
			quiet = false
			s.repair(s.lanes[i].peer)
		}
	}
	return quiet
}

// finish adds up the checks. The loop has ended.
func (s *talk) finish() Checks {
	ck := s.checks
	for i := 0; i+1 < len(s.lanes); i += 2 {
		verdictOfPair(&s.lanes[i], &s.lanes[i+1], &ck)
	}
	return ck
}

// behind is how many messages had fallen due and were never sent.
func (s *talk) behind() uint64 {
	var n uint64
	for i := range s.lanes {
		n += s.lanes[i].due - min(s.lanes[i].due, s.lanes[i].sent)
	}
	return n
}
