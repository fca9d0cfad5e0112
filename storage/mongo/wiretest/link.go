package wiretest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// link is one connection of a driver, and one to the server that is its alone. A goroutine of its own (run) carries out one command after
// the other, as a server does; a second one (listen) reads ahead by one message, and so notices when the driver is gone.
//
// What is on its way when the driver goes is carried out nevertheless, as by a server: a write that was held reaches the server when it
// is let go, long after its sender gave up. Only the wait for the next state of the server (hello) ends at once.
type link struct {
	p        *Proxy
	number   int64
	driver   net.Conn
	requests chan message
	gone     chan struct{} // closed: the driver closed its side, or hangUp closed it
	over     chan struct{} // closed: run has ended

	mu     sync.Mutex
	server net.Conn // nil before run dialed, set once
	idle   bool     // what the server is asked for is only its next state
	closed bool
}

// run serves the connection until either side ends it.
func (l *link) run() {
	defer l.p.forget(l)
	defer close(l.over)
	defer l.close()
	if !l.connect() {
		return
	}
	l.p.wg.Go(l.listen)
	for {
		select {
		case m := <-l.requests:
			if !l.carryOut(m) {
				return
			}
		case <-l.gone:
			return
		}
	}
}

// connect dials the server. A server that is not there is for the driver one that hangs up.
func (l *link) connect() bool {
	server, err := l.p.dial()
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
	if l.closed {
		server.Close()
	}
	return !l.closed
}

func (l *link) listen() {
	defer l.depart()
	for {
		m, err := readMessage(l.driver)
		if err != nil {
			if !ended(err) {
				l.p.fault(fmt.Errorf("from the driver: %w", err))
			}
			return
		}
		select {
		case l.requests <- m:
		case <-l.over:
			return
		}
	}
}

// ended tells whether an error of a connection is one of its ends: closed on this side or that, in a message or between two.
func ended(err error) bool {
	var network net.Error
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE},
		func(end error) bool { return errors.Is(err, end) }) || errors.As(err, &network)
}

// depart notes that the driver is gone.
func (l *link) depart() {
	close(l.gone)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle {
		l.server.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // it fails on a closed connection, which is as good
	}
}

// waitIdly notes whether what the server is asked for is only its next state. false: there is nobody left who wants to know.
func (l *link) waitIdly(idle bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = idle
	select {
	case <-l.gone:
		return !idle
	default:
		return true
	}
}

// hangUp closes the driver's side; what is on its way is carried out.
func (l *link) hangUp() { l.driver.Close() }

// close closes both sides.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.driver.Close()
	if l.server != nil {
		l.server.Close()
	}
}

// carryOut does one command. false: the connection is to end.
func (l *link) carryOut(request message) bool {
	c, err := parseCommand(request)
	if err != nil {
		l.p.fault(fmt.Errorf("from the driver: %w", err))
		return false
	}
	c.Connection = l.number
	l.p.countCommand(c, len(request))
	if !l.waitIdly(slices.Contains(handshakes, c.Name)) {
		return false
	}
	e := &Exchange{Command: c, link: l, request: request}
	l.p.apply(e)
	if !e.forwarded && e.reply == nil && !e.cut {
		e.Forward()
	}
	if e.cut {
		return false
	}
	return request.moreToCome() || l.deliver(c, e.reply)
}

// deliver sends the driver a reply, and those that the server sends after it unasked.
func (l *link) deliver(c *Command, reply message) bool {
	for {
		l.p.countReply(c, len(reply))
		if slices.Contains(handshakes, c.Name) {
			l.p.learn(reply)
		}
		if _, err := l.driver.Write(reply); err != nil {
			return false
		}
		if !reply.moreToCome() {
			return true
		}
		var err error
		if reply, err = readMessage(l.server); err != nil {
			return false
		}
	}
}
