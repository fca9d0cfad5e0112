//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/parley-im/parley/protocol"
)

// ConnectOptions say how to open and hold connections.
type ConnectOptions struct {
	Addr     string
	Tokens   *Tokens
	PID      int    // of the server, for its memory and processor time; 0: not known
	HTTP     string // where the server's /metrics are, for its heap; "": not known
	Conns    int
	Rate     float64       // connections a second; 0: as fast as the server takes them
	Hold     time.Duration // how long they are kept once all are open
	Loops    int           // event loops; 0: DefaultLoops
	Progress io.Writer     // a line each second; nil: none
}

func (o *ConnectOptions) check() error {
	switch {
	case o.Conns < 1 || o.Conns > MaxConns:
		return fmt.Errorf("conns is %d; give 1 to %d", o.Conns, MaxConns)
	case o.Rate < 0:
		return fmt.Errorf("rate is %g; give connections a second, or 0", o.Rate)
	case o.Hold < 0:
		return fmt.Errorf("hold is %s; give 0s or more", o.Hold)
	case o.Tokens == nil:
		return errors.New("no tokens to sign in with")
	}
	return o.Tokens.enough(o.Conns)
}

// Connect opens connections, signs them in and holds them, with a PING twice a heartbeat each.
func Connect(ctx context.Context, o ConnectOptions) (*ConnectResult, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var holds []*hold
	f, err := newFleet(fleetOptions{
		addr: o.Addr, conns: o.Conns, loops: loopsOr(o.Loops), hello: o.Tokens.hello, rate: o.Rate,
		scene: func(l *loop, _ float64) scene {
			h := &hold{l: l}
			holds = append(holds, h)
			return h
		},
	})
	if err != nil {
		return nil, err
	}
	r := &ConnectResult{Config: ConnectConfig{
		Addr: o.Addr, Conns: o.Conns, Rate: o.Rate, Hold: o.Hold.Seconds(), Loops: len(f.loops),
	}}
	before, err := takeMemory(ctx, o.PID, o.HTTP)
	if err != nil {
		f.abandon()
		return nil, fmt.Errorf("the server's memory: %w", err)
	}
	f.launch(ctx)
	err = r.hold(ctx, f, &o, before)
	if err := errors.Join(err, f.stop()); err != nil {
		return nil, err
	}
	r.SignIn, r.Errors = f.signIn().latency(), f.faults()
	for _, h := range holds {
		r.Pongs += h.pongs
	}
	return r, nil
}

// hold waits while the connections open and stand.
func (r *ConnectResult) hold(ctx context.Context, f *fleet, o *ConnectOptions, before memory) error {
	lines := newLiner(o.Progress)
	began, start := sample(o.PID), time.Now()
	if err := f.opened(lines.opening); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	p, ended := f.progress(), sample(o.PID)
	r.Rate = float64(p.open) / r.Seconds
	if began.server != nil && ended.server != nil {
		cost := ended.server.since(*began.server, p.open, r.Seconds)
		r.CPU = &cost
	}
	if err := f.linger(o.Hold, lines.opening); err != nil {
		return err
	}
	p = f.progress()
	r.Open, r.Failed, r.Lost = p.open, p.failed, p.lost
	after, err := takeMemory(ctx, o.PID, o.HTTP)
	if err != nil {
		return fmt.Errorf("the server's memory: %w", err)
	}
	if o.PID != 0 && p.open > 0 {
		r.Memory = memoryDelta(before, after, float64(p.open))
	}
	return nil
}

func memoryDelta(before, after memory, conns float64) *ServerMemory {
	m := &ServerMemory{RSSBefore: before.rss, RSSOpen: after.rss, RSSPerConn: float64(after.rss-before.rss) / conns}
	if before.known && after.known {
		m.Heap = &ServerHeapMemory{
			LiveBefore: before.live, LiveOpen: after.live, LivePerConn: (after.live - before.live) / conns,
			StackBefore: before.stack, StackOpen: after.stack, GoroutinesNow: after.goroutines,
		}
	}
	return m
}

// hold is the scene of connect: the connections only answer for themselves.
type hold struct {
	l     *loop
	pongs uint64
}

func (h *hold) ready(*conn, *protocol.Welcome) {}
func (h *hold) lost(*conn)                     {}
func (h *hold) enter(phase)                    {}
func (h *hold) step() time.Duration            { return idleWait }
func (h *hold) quiet() bool                    { return true }

func (h *hold) input(_ *conn, b []byte) (used int, err error) {
	for {
		f, n, err := protocol.Split(b[used:], maxFrame-protocol.HeaderSize)
		if err != nil || n == 0 {
			return used, err
		}
		used += n
		switch f.Command {
		case protocol.CmdPong:
			h.pongs++
		case protocol.CmdGoAway:
			h.l.faults.add("GOAWAY")
		case protocol.CmdKick:
			var k protocol.Kick
			if err := protocol.Unmarshal(f.Body, &k); err != nil {
				return used, err
			}
			return used, fmt.Errorf("KICK %d %s", k.Reason, k.Message)
		case protocol.CmdError:
			e := &protocol.Error{}
			if err := protocol.Unmarshal(f.Body, e); err != nil {
				return used, err
			}
			return used, e
		}
	}
}
