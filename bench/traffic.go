//go:build linux

package bench

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Bytes in and out of a loop's connections, and their end.

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
