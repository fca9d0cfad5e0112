package logic

import (
	"golang.org/x/time/rate"

	"github.com/parley-im/parley/protocol"
)

// A session may send this many SIGNALs a second, and so many at once. What goes beyond is dropped and counted: a signal has no reply.
const (
	signalsPerSecond = 20
	signalBurst      = 40

	// maxSignalData bounds what a SIGNAL carries: it goes to anybody who is online, asked for or not.
	maxSignalData = 1024
	maxSignalBody = maxSignalData + 256
)

// signal hands a SIGNAL to the target's devices that are online now. It is never stored. A faulty one is dropped and counted.
func (l *Logic) signal(s *session, j job) {
	var m protocol.Signal
	if protocol.UnmarshalAlias(j.body, &m) != nil || m.Kind != protocol.KindDirect || !protocol.ValidID(m.Target) || len(m.Data) > maxSignalData {
		l.m.dropped.WithLabelValues(j.command.String()).Inc()
		return
	}
	m.Sender = s.User
	l.broadcast(m.Target, protocol.Delivery{Frames: protocol.AppendFrame(nil, protocol.CmdSignal, 0, &m), Ephemeral: true}, s.ID)
}

// maySignal takes from the session's allowance. It is called on the session's event loop.
func (s *session) maySignal() bool {
	if s.signals == nil {
		s.signals = rate.NewLimiter(signalsPerSecond, signalBurst)
	}
	return s.signals.Allow()
}
