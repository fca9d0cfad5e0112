//go:build linux

package bench

import (
	"errors"
	"fmt"
	"io"
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

func (l *loop) readable(c *conn) {
	have := copy(l.in, c.rest)
	n, errno := read(c.fd, l.in[have:])
	l.reads++
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case errno != 0:
		l.drop(c, errno)
		return
	case n == 0:
		l.drop(c, io.EOF)
		return
	}
	l.nowNS = l.clock()
	b := l.in[:have+n]
	used, err := l.take(c, b)
	if err != nil {
		l.out = l.out[:0]
		l.drop(c, err)
		return
	}
	c.keep(b[used:])
	l.flush(c)
}

// take hands b to whoever the connection's state says.
func (l *loop) take(c *conn, b []byte) (used int, err error) {
	if c.state == stateGreeting {
		if used, err = l.greeted(c, b); err != nil || used == 0 {
			return used, err
		}
	}
	n, err := l.scene.input(c, b[used:])
	return used + n, err
}

// flush writes l.out to c, all frames of a round at once. What the socket does not take waits in c.pending.
func (l *loop) flush(c *conn) {
	out := l.out
	l.out = out[:0]
	if len(out) == 0 || c.state == stateClosed {
		return
	}
	if len(c.pending) > 0 {
		c.pending = append(c.pending, out...)
		return
	}
	n, errno := write(c.fd, out)
	l.writes++
	if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		l.drop(c, errno)
		return
	}
	if n = max(n, 0); n < len(out) {
		c.pending = append(c.pending, out[n:]...)
		l.watch(c, true)
	}
}

func (l *loop) writable(c *conn) {
	if c.state == stateConnecting {
		l.connected(c)
		return
	}
	n, errno := write(c.fd, c.pending)
	l.writes++
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
	case errno != 0:
		l.drop(c, errno)
	case n == len(c.pending):
		c.pending = nil
		l.watch(c, false)
	default:
		c.pending = c.pending[:copy(c.pending, c.pending[n:])]
	}
}

// watch sets whether the poller reports that c can be written to.
func (l *loop) watch(c *conn, write bool) {
	if c.wantWrite == write {
		return
	}
	c.wantWrite = write
	if err := l.poll.change(c.fd, c.index, write); err != nil {
		l.drop(c, fmt.Errorf("epoll: %w", err))
	}
}

// drop ends a connection and notes why.
func (l *loop) drop(c *conn, why error) {
	was := c.state
	if was == stateClosed {
		return
	}
	if c.fd >= 0 {
		_ = unix.Close(int(c.fd)) // nothing that was written can be waited for
	}
	c.state, c.fd, c.pending, c.rest = stateClosed, -1, nil, nil
	if was == stateReady {
		l.tally.open.Add(^uint64(0))
		l.tally.lost.Add(1)
		l.faults.add("connection lost: " + reason(why))
		l.scene.lost(c)
		return
	}
	l.dial.inFlight--
	l.tally.failed.Add(1)
	l.faults.add("sign-in failed: " + reason(why))
}

func reason(err error) string {
	if errors.Is(err, io.EOF) {
		return "closed by the server"
	}
	return err.Error()
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
