package main

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

// wire is a connection that speaks frames and nothing more: no outbox, no repair, so that what the server does is seen as it is.
type wire struct {
	net.Conn
	in      []byte
	welcome protocol.Welcome
}

const wireTimeout = 30 * time.Second

// dialWire connects and signs in.
func dialWire(addr, token, device string) (*wire, error) {
	c, err := net.DialTimeout("tcp", addr, wireTimeout)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: c}
	if err := w.signIn(token, device); err != nil {
		c.Close()
		return nil, err
	}
	return w, nil
}

func (w *wire) signIn(token, device string) error {
	if err := w.send(protocol.CmdHello, 1, &protocol.Hello{Token: token, DeviceID: device, Platform: protocol.PlatformOther}); err != nil {
		return err
	}
	f, err := w.next()
	if err != nil {
		return err
	}
	return expect(f, protocol.CmdWelcome, &w.welcome)
}

func (w *wire) send(cmd protocol.Command, id uint32, body protocol.Body) error {
	_, err := w.Write(protocol.AppendFrame(nil, cmd, id, body))
	return err
}

// next waits for one frame. Its body is its own.
func (w *wire) next() (protocol.Frame, error) {
	chunk := make([]byte, 64<<10)
	for {
		f, n, err := protocol.Split(w.in, protocol.DefaultMaxDown)
		if err != nil || n > 0 {
			w.in = w.in[n:]
			return f, err
		}
		w.SetReadDeadline(time.Now().Add(wireTimeout))
		read, err := w.Read(chunk)
		if err != nil {
			return f, err
		}
		w.in = append(w.in[:len(w.in):len(w.in)], chunk[:read]...)
	}
}

// ask sends a request and waits for its reply, past whatever else comes.
func (w *wire) ask(cmd protocol.Command, body, reply protocol.Body) error {
	const id = 77
	if err := w.send(cmd, id, body); err != nil {
		return err
	}
	for {
		f, err := w.next()
		if err != nil {
			return err
		}
		if f.RequestID == id && f.Command != protocol.CmdPush {
			return expect(f, cmd.Reply(), reply)
		}
	}
}

func expect(f protocol.Frame, cmd protocol.Command, body protocol.Body) error {
	if f.Command == protocol.CmdError {
		var e protocol.Error
		if err := protocol.Unmarshal(f.Body, &e); err != nil {
			return err
		}
		return &e
	}
	if f.Command != cmd {
		return fmt.Errorf("got %v, want %v", f.Command, cmd)
	}
	return protocol.Unmarshal(f.Body, body)
}

func mustDial(t *testing.T, addr, token, device string) *wire {
	t.Helper()
	w, err := dialWire(addr, token, device)
	if err != nil {
		t.Fatalf("signing in as %s: %v", device, err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}
