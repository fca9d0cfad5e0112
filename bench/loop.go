//go:build linux

package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/parley-im/parley/protocol"
)

// phase is where a run stands. It only goes up.
type phase int32

const (
	phaseOpen    phase = iota // connections are opened and signed in
	phaseWarm                 // load, not measured
	phaseMeasure              // load, measured
	phaseDrain                // no new load; what is on its way may arrive
	phaseDone                 // close everything
)

const (
	maxFrame = protocol.HeaderSize + 4*protocol.DefaultMaxDown // larger ones from a server are taken for nonsense
	inSize   = maxFrame + 64<<10
	idleWait = 10 * time.Millisecond // the longest sleep of a loop, after which it looks at the phase
)

// scene is what a scenario does with the connections of one loop. Everything is called by the loop's goroutine. Frames to send
// are appended to the loop's out; it writes them when the call returns.
type scene interface {
	// ready is called once for a connection that is signed in. w is nil where there is no sign-in.
	ready(c *conn, w *protocol.Welcome)
	// input takes whole frames off b and returns the number of bytes it used. An error ends the connection.
	input(c *conn, b []byte) (used int, err error)
	// lost is called once for a connection that was ready and is no longer, unless the run is over.
	lost(c *conn)
	// enter is called when the phase changes, in order, each phase once. Past phaseOpen every connection has been ready.
	enter(p phase)
	// step is called after each round of events. The loop sleeps at most for what it returns.
	step() time.Duration
	// quiet tells, while draining, whether nothing more is expected.
	quiet() bool
}

// loopConfig is what the loops of a run share.
type loopConfig struct {
	to      netip.AddrPort
	from    []netip.Addr
	start   time.Time              // zero of the run's clock
	hello   func(id uint32) []byte // the HELLO frame of a connection; nil: no sign-in
	dialing int                    // connections that may be on their way to READY at a time
	rate    float64                // connections opened a second; 0: no limit
	timeout time.Duration          // from dial to WELCOME
	phase   *atomic.Int32          // set by the run
}

// tally is what a loop tells the run while it works. The counters only grow.
type tally struct {
	open, failed, lost     atomic.Uint64
	sent, acked, delivered atomic.Uint64
	quiet                  atomic.Bool
}

// loop is an event loop with its connections.
type loop struct {
	cfg    *loopConfig
	poll   *poller
	scene  scene
	conns  []conn
	phase  phase
	nowNS  int64 // the run's clock when bytes last came in
	in     []byte
	out    []byte // frames for the connection that is being served
	dial   dialing
	signIn *recorder
	faults faults
	tally  tally

	secondNS int64 // when the once-a-second work is due
	seconds  int
	pingS    int // each connection sends a PING once in so many seconds; 0: never
	reads    uint64
	writes   uint64
}

func newLoop(cfg *loopConfig, ids []uint32) (*loop, error) {
	p, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	l := &loop{cfg: cfg, poll: p, in: make([]byte, inSize), signIn: newRecorder(), faults: faults{}}
	l.conns = make([]conn, len(ids))
	for i := range l.conns {
		l.conns[i] = conn{fd: -1, index: int32(i), id: ids[i]}
	}
	return l, nil
}

// run works until the phase is phaseDone, then closes everything.
func (l *loop) run() error {
	defer l.close()
	for {
		l.nowNS = l.clock()
		p := phase(l.cfg.phase.Load())
		if p == phaseDone {
			return nil
		}
		for l.phase < p {
			l.phase++
			l.scene.enter(l.phase)
		}
		wait := min(l.scene.step(), l.housekeep())
		events, err := l.poll.wait(wait)
		if err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		for i := range events {
			l.event(&l.conns[events[i].Fd], events[i].Events)
		}
		if l.phase == phaseDrain {
			l.tally.quiet.Store(l.scene.quiet())
		}
	}
}

func (l *loop) clock() int64 { return int64(time.Since(l.cfg.start)) }

func (l *loop) event(c *conn, what uint32) {
	if c.state == stateClosed {
		return // by an earlier event of this round
	}
	if what&unix.EPOLLOUT != 0 || c.state == stateConnecting {
		l.writable(c)
	}
	if what&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 && (c.state == stateReady || c.state == stateGreeting) {
		l.readable(c)
	}
}

// housekeep does what is due: dialing, and once a second timeouts and PINGs. It returns how long the loop may sleep.
func (l *loop) housekeep() time.Duration {
	wait := idleWait
	if l.phase == phaseOpen {
		wait = min(wait, l.dialMore())
	}
	if l.nowNS >= l.secondNS {
		l.secondNS = l.nowNS + int64(time.Second)
		l.seconds++
		l.everySecond()
	}
	return wait
}

func (l *loop) everySecond() {
	for i := range l.conns {
		c := &l.conns[i]
		switch {
		case c.state == stateReady && l.pingS > 0 && (i+l.seconds)%l.pingS == 0:
			l.out = protocol.AppendFrame(l.out[:0], protocol.CmdPing, pingRequest, nil)
			l.flush(c)
		case (c.state == stateConnecting || c.state == stateGreeting) && l.nowNS-c.startedNS > int64(l.cfg.timeout):
			l.drop(c, errors.New("no answer in time"))
		}
	}
}

func (l *loop) close() {
	for i := range l.conns {
		if c := &l.conns[i]; c.fd >= 0 {
			_ = unix.Close(int(c.fd)) // the run is over
			c.fd, c.state = -1, stateClosed
		}
	}
	l.poll.close()
}
