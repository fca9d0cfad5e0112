package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/parley-im/parley/protocol"
)

// connect dials and signs in.
func (c *Client) connect() (*conn, error) {
	if err := c.fetchToken(); err != nil {
		return nil, fmt.Errorf("client: token: %w", err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.DialTimeout)
	defer cancel()
	nc, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("client: dial: %w", err)
	}
	k := newConn(nc, c.opts.ReplyTimeout, &c.count)
	release := context.AfterFunc(ctx, func() { nc.Close() })
	err = c.hello(k)
	if !release() && ctx.Err() != nil {
		err = fmt.Errorf("client: sign in: %w", ctx.Err())
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.fresh, c.refused, c.signedIn = false, 0, false
	return k, nil
}

func (c *Client) fetchToken() (err error) {
	if c.token != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, tokenTimeout)
	defer cancel()
	c.token, err = c.opts.Token(ctx)
	if err == nil && c.token == "" {
		err = errors.New("it is empty")
	}
	c.fresh = true
	return err
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	nc, err := c.opts.DialContext(ctx, "tcp", c.opts.Addr)
	if err != nil || c.opts.Plaintext {
		return nc, err
	}
	secure := tls.Client(nc, c.opts.tlsConfig())
	if err := secure.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return secure, nil
}

// hello sends HELLO and waits for WELCOME.
func (c *Client) hello(k *conn) error {
	hello := protocol.Hello{Token: c.token, DeviceID: c.opts.DeviceID, Platform: c.opts.Platform, SDK: c.opts.SDK}
	if c.signedIn {
		hello.Flags |= protocol.HelloSignedIn
	}
	if _, err := k.nc.Write(protocol.AppendFrame(nil, protocol.CmdHello, helloID, &hello)); err != nil {
		return fmt.Errorf("client: sign in: %w", err)
	}
	for {
		f, err := k.in.next()
		if err != nil {
			return fmt.Errorf("client: sign in: %w", err)
		}
		if done, err := k.greeting(f); done || err != nil {
			return err
		}
	}
}

// greeting takes one frame of those before WELCOME. Unknown ones are ignored.
func (k *conn) greeting(f protocol.Frame) (done bool, err error) {
	switch f.Command {
	case protocol.CmdWelcome:
		if err := protocol.Unmarshal(f.Body, &k.welcome); err != nil {
			return false, &lostError{err}
		}
		return true, k.believe()
	case protocol.CmdError:
		refusal := &protocol.Error{}
		if err := protocol.Unmarshal(f.Body, refusal); err != nil {
			return false, &lostError{err}
		}
		return false, &RefusedError{refusal}
	case protocol.CmdKick:
		return false, kickOf(f)
	}
	return false, nil
}

// believe takes the limits of WELCOME, with defaults for those that are missing.
func (k *conn) believe() error {
	w := &k.welcome
	if !protocol.ValidID(w.UserID) {
		return &lostError{errors.New("WELCOME without a user id")}
	}
	fill(&w.HeartbeatS, uint16(defaultHeartbeat/time.Second))
	fill(&w.MaxBody, protocol.DefaultMaxBody)
	fill(&w.MaxInflight, defaultInflight)
	fill(&w.MaxDown, protocol.DefaultMaxDown)
	fill(&w.ResendS, uint32(defaultResend/time.Second))
	w.MaxDown = min(w.MaxDown, maxDownBound)
	k.in.limit = int(max(w.MaxDown, maxGreeting))
	k.slots = make(chan struct{}, w.MaxInflight)
	return nil
}

func kickOf(f protocol.Frame) error {
	var kick KickError
	if err := protocol.Unmarshal(f.Body, &kick.Kick); err != nil {
		return &lostError{err}
	}
	return &kick
}
