package conn

import (
	"context"
	"time"

	"github.com/parley-im/parley/protocol"
)

const (
	drainWaves = 20
	drainLook  = 20 * time.Millisecond // how often it is looked whether all are gone
)

// Drain lets the clients go. New connections are refused, GOAWAY goes out in waves over half of DrainWindow, and then it waits until the
// clients have left. Those that are still there when ctx is done get what is queued for them, within CloseTimeout, and are closed;
// that is no error. When it returns there are no sessions and Logic.Handle is not called any more; Close is still to be called. The engine's own
// stop would drop what is queued and close everybody at once.
func (g *Gateway) Drain(ctx context.Context) error {
	g.draining.Store(true)
	if g.goAwayInWaves(ctx) && g.waitEmpty(ctx) {
		return nil
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*g.o.CloseTimeout+time.Second)
	defer cancel()
	for _, s := range g.table.all() {
		s.farewell(reasonDrained, nil)
	}
	g.waitEmpty(late)
	return nil
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

// waitEmpty waits until no connection is left that was let in: others may come and be refused for ever. It returns false when ctx is done before.
func (g *Gateway) waitEmpty(ctx context.Context) bool {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for g.held.Load() > 0 {
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
