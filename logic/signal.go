package logic

import (
	"golang.org/x/time/rate"

	"github.com/parley-im/parley/protocol"
)

// A session may send this many SIGNALs a second, and so many at once. What goes beyond is dropped and counted: a signal has no reply.
const (
	signalsPerSecond = 20
	signalBurst      = 40
)

// signal hands a SIGNAL to the target's devices that are online now. It is never stored. A faulty one is dropped and counted.
func (l *Logic) signal(s *session, j job) {
	var m protocol.Signal
	if protocol.UnmarshalAlias(j.body, &m) != nil || m.Kind != protocol.KindDirect || !protocol.ValidID(m.Target) || !s.maySignal() {
		l.m.dropped.WithLabelValues(j.command.String()).Inc()
		return
	}
	m.Sender = s.User
	l.broadcast(m.Target, protocol.AppendFrame(nil, protocol.CmdSignal, 0, &m), s.ID)
}

// maySignal takes from the session's allowance. Only the worker that serves the session calls it.
func (s *session) maySignal() bool {
	if s.signals == nil {
		s.signals = rate.NewLimiter(signalsPerSecond, signalBurst)
	}
	return s.signals.Allow()
}
