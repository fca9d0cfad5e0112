package conn

import (
	"context"
	"time"

	"github.com/parley-im/parley/protocol"
)

const (
	drainWaves = 20
	drainLook  = 20 * time.Millisecond // how often it is looked whether all are gone
	drainGrace = time.Second           // after DrainWindow, before those that have nothing to do are closed
)

// Drain lets the clients go. New connections are refused, GOAWAY goes out in waves over half of DrainWindow, and then it waits until the
// clients have left. A client that found no other gateway keeps its connection; so a second after the window those that wait for nothing are closed. Those
// that are still there when ctx is done get what is queued for them, within CloseTimeout, and are closed;
// that is no error. When it returns there are no sessions and Logic.Handle is not called any more; Close is still to be called. The engine's own
// stop would drop what is queued and close everybody at once.
func (g *Gateway) Drain(ctx context.Context) error {
	g.draining.Store(true)
	if g.goAwayInWaves(ctx) {
		window, cancel := context.WithTimeout(ctx, g.o.DrainWindow/2+drainGrace)
		defer cancel()
		if g.waitEmpty(window, func() {}) || g.waitEmpty(ctx, g.dismissIdle) {
			return nil
		}
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*g.o.CloseTimeout+time.Second)
	defer cancel()
	for _, s := range g.table.all() {
		s.farewell(reasonDrained, nil)
	}
	g.waitEmpty(late, func() {})
	return nil
}

// dismissIdle closes the connections that wait for nothing.
func (g *Gateway) dismissIdle() {
	for _, s := range g.table.all() {
		s.dismiss()
	}
}

// dismiss ends the session if no request of it is open and nothing waits to be written.
func (s *session) dismiss() {
	s.mu.Lock()
	if s.state != stateOpen || s.inflight > 0 || s.waiting() > 0 {
		s.mu.Unlock()
		return
	}
	s.end(reasonDrained, nil)
	add := s.touch()
	s.mu.Unlock()
	if add {
		s.l.add(s)
	}
}

// goAway asks the client to dial anew, within the other half of the window.
func (g *Gateway) goAway() []byte {
	return protocol.AppendFrame(nil, protocol.CmdGoAway, 0, &protocol.GoAway{ReconnectWithinMS: uint32(g.o.DrainWindow.Milliseconds() / 2)})
}

// goAwayInWaves tells everybody. It returns false when ctx is done before.
func (g *Gateway) goAwayInWaves(ctx context.Context) bool {
	all := g.table.all()
	frame := g.goAway()
	pause := time.NewTicker(g.o.DrainWindow / 2 / drainWaves)
	defer pause.Stop()
	size := len(all)/drainWaves + 1
	for len(all) > 0 {
		to := make([]protocol.SessionID, 0, size)
		for _, s := range all[:min(size, len(all))] {
			to = append(to, s.ID)
		}
		g.Deliver([]protocol.Delivery{{To: to, Frames: frame}})
		if all = all[min(size, len(all)):]; len(all) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-g.done:
			return true
		case <-pause.C:
		}
	}
	return true
}

// waitEmpty waits until no connection is left that was let in, and calls meanwhile now and then: others may come and be refused for ever. It returns
// false when ctx is done before.
func (g *Gateway) waitEmpty(ctx context.Context, meanwhile func()) bool {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for g.held.Load() > 0 {
		meanwhile()
		select {
		case <-ctx.Done():
			return false
		case <-g.done:
			return true
		case <-look.C:
		}
	}
	return true
}
