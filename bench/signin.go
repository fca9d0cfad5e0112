//go:build linux

package bench

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/parley-im/parley/protocol"
)

// pingRequest is the request id of every PING: its low bits are no slot's.
const pingRequest = 1<<32 - 1

// dialing is how far a loop is with opening its connections.
type dialing struct {
	next     int // the next connection to dial
	inFlight int
	startNS  int64
}

// dialMore starts as many connections as the bounds allow, and returns when to come back.
func (l *loop) dialMore() time.Duration {
	d := &l.dial
	if d.startNS == 0 {
		d.startNS = max(l.nowNS, 1)
	}
	allowed := len(l.conns)
	if l.cfg.rate > 0 {
		allowed = min(allowed, 1+int(float64(l.nowNS-d.startNS)/1e9*l.cfg.rate))
	}
	for d.next < allowed && d.inFlight < l.cfg.dialing {
		c := &l.conns[d.next]
		d.next++
		l.open(c)
	}
	if l.cfg.rate > 0 && d.next == allowed && d.next < len(l.conns) {
		return time.Duration(max(1e9/l.cfg.rate, 1e6))
	}
	return idleWait
}

func (l *loop) open(c *conn) {
	var from netip.Addr
	if n := len(l.cfg.from); n > 0 {
		from = l.cfg.from[int(c.id)%n]
	}
	l.dial.inFlight++
	c.state = stateConnecting
	c.startedNS = l.clock()
	fd, err := dial(l.cfg.to, from)
	if err == nil {
		c.fd, c.wantWrite = fd, true
		err = l.poll.add(fd, c.index, true)
	}
	if err != nil {
		l.drop(c, err)
	}
}

// connected is called when the socket of a new connection becomes writable.
func (l *loop) connected(c *conn) {
	if err := dialed(c.fd); err != nil {
		l.drop(c, err)
		return
	}
	c.state = stateGreeting
	l.watch(c, false)
	if l.cfg.hello == nil {
		l.signedIn(c, nil)
	} else {
		l.out = append(l.out[:0], l.cfg.hello(c.id)...)
	}
	l.flush(c)
}

// greeted looks for the answer to HELLO.
func (l *loop) greeted(c *conn, b []byte) (used int, err error) {
	f, n, err := protocol.Split(b, maxFrame)
	if err != nil || n == 0 {
		return 0, err
	}
	switch f.Command {
	case protocol.CmdWelcome:
		var w protocol.Welcome
		if err := protocol.Unmarshal(f.Body, &w); err != nil {
			return 0, err
		}
		l.signedIn(c, &w)
		return n, nil
	case protocol.CmdError:
		e := &protocol.Error{}
		if err := protocol.Unmarshal(f.Body, e); err != nil {
			return 0, err
		}
		return 0, e
	case protocol.CmdKick:
		var k protocol.Kick
		if err := protocol.Unmarshal(f.Body, &k); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("KICK %d %s", k.Reason, k.Message)
	}
	return 0, fmt.Errorf("%s before WELCOME", f.Command)
}

func (l *loop) signedIn(c *conn, w *protocol.Welcome) {
	c.state = stateReady
	l.dial.inFlight--
	l.signIn.record((l.clock() - c.startedNS) / 1000)
	if w != nil && w.HeartbeatS > 0 {
		l.pingS = max(1, int(w.HeartbeatS)/2)
	}
	l.scene.ready(c, w)
	l.tally.open.Add(1)
}
