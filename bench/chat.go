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

// ChatOptions say how to run a chat. Connection 2i talks with 2i + 1.
type ChatOptions struct {
	Addr     string
	Tokens   *Tokens
	PID      int     // of the server, for its processor time and memory; 0: not known
	Conns    int     // even
	Window   int     // SENDs that each connection keeps open
	Rate     float64 // messages a second of all connections, on a fixed timetable; 0: as fast as the window allows
	Size     int     // bytes of content
	Warmup   time.Duration
	Duration time.Duration
	Drain    time.Duration // how long to wait at the end for what is on its way; 0: 10 s
	Loops    int           // event loops; 0: DefaultLoops
	PushAck  bool          // answer each PUSH with a PUSH_ACK
	Progress io.Writer     // a line each second; nil: none
}

const defaultDrain = 10 * time.Second

func (o *ChatOptions) check() error {
	switch {
	case o.Conns < 2 || o.Conns%2 != 0 || o.Conns > MaxConns:
		return fmt.Errorf("conns is %d; give an even number from 2 to %d: they talk in pairs", o.Conns, MaxConns)
	case o.Window < 1 || o.Window > MaxWindow:
		return fmt.Errorf("window is %d; give 1 to %d", o.Window, MaxWindow)
	case o.Rate < 0:
		return fmt.Errorf("rate is %g; give messages a second, or 0", o.Rate)
	case o.Size < 0 || o.Size > protocol.DefaultMaxDown:
		return fmt.Errorf("size is %d; give 0 to %d", o.Size, protocol.DefaultMaxDown)
	case o.Duration <= 0 || o.Warmup < 0:
		return errors.New("the duration must be above 0, and the warm-up not below")
	case o.Tokens == nil:
		return errors.New("no tokens to sign in with")
	}
	return o.Tokens.enough(o.Conns)
}

// Chat runs the scenario. An error means that it could not be run; what it found wrong with the server is in the result's Checks.
func Chat(ctx context.Context, o ChatOptions) (*ChatResult, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var talks []*talk
	f, err := newFleet(fleetOptions{
		addr: o.Addr, conns: o.Conns, loops: loopsOr(o.Loops), hello: o.Tokens.hello,
		scene: func(l *loop, share float64) scene {
			t := newTalk(l, o.Window, o.Size)
			t.rate, t.pushAck, t.fresh = o.Rate*share, o.PushAck, o.Tokens.fresh
			talks = append(talks, t)
			return t
		},
	})
	if err != nil {
		return nil, err
	}
	f.launch(ctx)
	if o.Drain == 0 {
		o.Drain = defaultDrain
	}
	m, err := measure(f, load{
		warmup: o.Warmup, duration: o.Duration, drain: o.Drain, pid: o.PID, show: o.Progress,
		ready: func() error { return refusalOf(talks) },
	})
	lost := f.progress().lost
	if err := errors.Join(err, f.stop()); err != nil {
		return nil, err
	}
	r := &ChatResult{Measured: m, ConnsLost: lost, SignIn: f.signIn().latency(), Errors: f.faults()}
	r.Config = ChatConfig{
		Addr: o.Addr, Conns: o.Conns, Window: o.Window, Rate: o.Rate, Size: o.Size, Warmup: o.Warmup.Seconds(),
		Duration: o.Duration.Seconds(), Loops: len(f.loops), PushAck: o.PushAck,
	}
	r.add(talks)
	return r, nil
}

// refusalOf tells why the server's limits do not allow the run.
func refusalOf(talks []*talk) error {
	for _, t := range talks {
		if err := t.refusal.Load(); err != nil {
			return *err
		}
	}
	return nil
}

func (r *ChatResult) add(talks []*talk) {
	r.Ack, r.Deliver = talksAck(talks).latency(), talksDeliver(talks).latency()
	for _, t := range talks {
		ck := t.finish()
		r.Checks.add(&ck)
		r.SentTotal += t.sent
		r.AckedTotal += t.acked
		r.DeliveredTotal += t.delivered
		r.OwnPushes += t.ownPushes
		r.Resyncs += t.resyncs
		r.Fetched += t.fetches
		r.Behind += t.behind()
	}
}
