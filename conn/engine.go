package conn

import (
	"math/rand/v2"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/parley-im/parley/protocol"
)

// events is what the engine calls. A panic in any of them would end the process, so each recovers, and the connection that it was about is
// closed.
type events struct{ g *Gateway }

// OnBoot implements gnet.EventHandler.
func (h events) OnBoot(e gnet.Engine) gnet.Action {
	h.g.engine = e
	return gnet.None
}

// OnShutdown implements gnet.EventHandler. It comes before the loops end.
func (h events) OnShutdown(gnet.Engine) {
	h.g.lifeMu.Lock()
	h.g.stopped = true
	h.g.lifeMu.Unlock()
}

// OnTick implements gnet.EventHandler. It runs on a goroutine of its own, so each loop is asked to do its tick.
func (h events) OnTick() (time.Duration, gnet.Action) {
	g := h.g
	defer func() {
		if v := recover(); v != nil {
			g.panicked(v, nil)
		}
	}()
	g.first.Do(func() { close(g.accepting) })
	for _, l := range *g.loops.Load() {
		if l.ticking.CompareAndSwap(false, true) {
			g.execute(l.engine, l.tick)
		}
	}
	return g.ticks.length, gnet.None
}

// loopOf finds what belongs to an engine's loop. It is called once a connection.
func (g *Gateway) loopOf(engine gnet.EventLoop) *loop {
	for _, l := range *g.loops.Load() {
		if l.engine == engine {
			return l
		}
	}
	g.loopsMu.Lock()
	defer g.loopsMu.Unlock()
	old := *g.loops.Load()
	l := &loop{g: g, index: uint(len(old)), engine: engine, clock: 1, backlog: make(map[*session]*stall)}
	list := append(append(make([]*loop, 0, len(old)+1), old...), l) // only its own loop looks for l, so it is not there yet
	g.loops.Store(&list)
	return l
}

// OnOpen implements gnet.EventHandler. Over the cap, or draining, a connection is told so; far over, it is closed without any ado, for the engine
// must never be out of descriptors.
func (h events) OnOpen(c gnet.Conn) (out []byte, action gnet.Action) {
	g := h.g
	var s *session
	defer func() {
		if v := recover(); v != nil {
			g.panicked(v, s)
			action = gnet.Close
		}
	}()
	g.metrics.accepted.Inc()
	if g.conns.Add(1) > int64(g.o.MaxConns+slack(g.o.MaxConns)) {
		g.metrics.refused.WithLabelValues(reasonNames[reasonFull]).Inc()
		return nil, gnet.Close
	}
	l := g.loopOf(c.EventLoop())
	s = &session{c: c, l: l, seen: l.clock}
	g.table.put(s)
	c.SetContext(s)
	l.setDeadline(s, g.ticks.handshake)
	switch {
	case g.draining.Load():
		l.refuse(s, reasonDraining, "server is stopping")
	case !g.hold():
		l.refuse(s, reasonFull, "server is full")
	default:
		s.held = true
	}
	return nil, gnet.None
}

// hold counts a connection that is let in, if there is room.
func (g *Gateway) hold() bool {
	if g.held.Add(1) <= int64(g.o.MaxConns) {
		return true
	}
	g.held.Add(-1)
	return false
}

// slack is how many connections more than the cap may be there, to be told that the server is full.
func slack(maxConns int) int { return min(max(16, maxConns/64), 128) }

func (l *loop) refuse(s *session, why reason, message string) {
	l.g.metrics.refused.WithLabelValues(reasonNames[why]).Inc()
	l.g.metrics.kick(protocol.KickServerFull)
	k := protocol.Kick{Reason: protocol.KickServerFull, Message: message, RetryAfterMS: retryAfterMS + rand.Uint32N(4*retryAfterMS)}
	s.mu.Lock()
	s.end(why, kickFrame(k))
	s.mu.Unlock()
	l.flush(s)
}

// OnTraffic implements gnet.EventHandler.
func (h events) OnTraffic(c gnet.Conn) (action gnet.Action) {
	g := h.g
	s, _ := c.Context().(*session)
	if s == nil {
		return gnet.Close
	}
	defer func() {
		if v := recover(); v != nil {
			g.panicked(v, s)
			action = gnet.Close
		}
	}()
	s.l.takeUp()
	s.l.traffic(s)
	return gnet.None
}

// OnClose implements gnet.EventHandler. It may run in the middle of OnTraffic, when a write fails.
func (h events) OnClose(c gnet.Conn, err error) (action gnet.Action) {
	g := h.g
	defer g.conns.Add(-1) // after logic was told
	s, _ := c.Context().(*session)
	if s == nil {
		return gnet.None
	}
	defer func() {
		if v := recover(); v != nil {
			g.panicked(v, s)
		}
	}()
	s.l.wheel.remove(s)
	delete(s.l.backlog, s)
	g.table.remove(s)
	g.metrics.closed[g.closed(s, err)].Inc()
	if s.held {
		defer g.held.Add(-1)
	}
	s.mu.Lock()
	tell := s.opened && !s.opening
	if tell {
		s.opened = false
	}
	s.mu.Unlock()
	if tell {
		g.logic.Closed(s.ID)
	}
	return gnet.None
}

// closed makes the session closed and says why it is.
func (g *Gateway) closed(s *session, err error) reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.welcomed {
		g.metrics.sessions.Dec()
	}
	s.state = stateClosed
	s.pending.release()
	s.pending = nil
	switch {
	case s.why != reasonNone:
	case g.closing.Load():
		s.why = reasonShutdown
	case isEOF(err):
		s.why = reasonClient
	default:
		s.why = reasonError
	}
	return s.why
}
