package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/parley-im/parley/protocol"
)

const (
	helloID      = 1
	tokenTimeout = time.Minute
	// longLived is how long a connection must have lived for the next delay to be short again.
	longLived = 5 * time.Second
)

// supervise keeps the client connected until it must stop, and returns why.
func (c *Client) supervise() error {
	for {
		c.report(StateConnecting, nil)
		k, err := c.connect()
		if err == nil {
			err = c.serve(k)
		}
		wait, fatal := c.judge(err)
		if fatal != nil {
			return fatal
		}
		c.report(StateWaiting, err)
		if !c.pause(wait, c.wake) && c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
	}
}

// judge decides what follows the end of a connection, or of an attempt: a delay, or the end of the client.
func (c *Client) judge(err error) (wait time.Duration, fatal error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	var kick *KickError
	var refused *RefusedError
	var closing *protocol.Error
	var store *storeError
	switch {
	case errors.As(err, &store), errors.Is(err, ErrWrongUser):
		return 0, err
	case errors.As(err, &kick):
		return c.judgeKick(kick)
	case errors.As(err, &closing):
		if badToken(closing) {
			c.token = ""
		}
		final := errors.As(err, &refused) && c.finally(closing)
		if final {
			return 0, err
		}
		wait = millis(closing.RetryAfterMS)
	}
	return wait + c.backoff.NextBackOff(), nil
}

func badToken(e *protocol.Error) bool {
	return e.Code == protocol.CodeUnauthenticated || e.Code == protocol.CodeTokenExpired
}

// finally tells whether an error in place of WELCOME ends the client.
func (c *Client) finally(e *protocol.Error) bool {
	if badToken(e) {
		if c.fresh {
			c.refused++
		}
		return c.refused >= 2
	}
	_, again := retryable(e)
	return !again
}

func (c *Client) judgeKick(kick *KickError) (wait time.Duration, fatal error) {
	if !kick.Reason.MayReconnect() {
		return 0, kick
	}
	switch kick.Reason {
	case protocol.KickSlow:
		c.pages.halve()
	case protocol.KickTokenExpired:
		c.token = ""
	}
	return millis(kick.RetryAfterMS) + c.backoff.NextBackOff(), nil
}

// serve is what follows WELCOME, until the connection and those that took over from it have ended. It returns why the last one did.
func (c *Client) serve(k *conn) error {
	for {
		if err := c.adopt(k); err != nil {
			k.fail(err)
			c.leave()
			return err
		}
		next, err := c.attend(k)
		if time.Since(k.born) >= longLived {
			c.backoff.Reset()
		}
		if next == nil {
			k.fail(err)
			c.leave()
			return err
		}
		k = next
	}
}

// attend waits for the end of a connection, or for another one that takes over from it.
func (c *Client) attend(k *conn) (next *conn, err error) {
	select {
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	case <-k.done:
		return nil, k.cause()
	case within := <-k.goaway:
		return c.handOver(k, within)
	}
}

// handOver dials a new connection while the old one still serves. Without one the error is the old one's end, or fatal.
func (c *Client) handOver(old *conn, within time.Duration) (next *conn, err error) {
	if !c.pause(rand.N(within+1), old.done) {
		return nil, c.endOf(old)
	}
	for {
		next, err := c.connect()
		if err == nil {
			return next, nil
		}
		wait, fatal := c.judge(err)
		if fatal != nil {
			return nil, fatal
		}
		if !c.pause(wait, old.done) {
			return nil, c.displacedByUs(c.endOf(old))
		}
	}
}

func (c *Client) endOf(k *conn) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return k.cause()
}

// displacedByUs turns the KICK that our own next connection caused into a plain loss: that connection had signed in and was
// lost before its WELCOME came.
func (c *Client) displacedByUs(err error) error {
	var kick *KickError
	if errors.As(err, &kick) && kick.Reason == protocol.KickDisplaced && kick.DeviceID == c.opts.DeviceID {
		return &lostError{errRetired}
	}
	return err
}

// adopt makes k the connection that requests go out on, and starts to read from it.
func (c *Client) adopt(k *conn) error {
	old := c.current()
	if err := c.enter(k, old); err != nil {
		if old != nil {
			old.fail(err)
		}
		return err
	}
	c.count.connections.Add(1)
	c.change(func() { c.cur = k })
	if old != nil {
		old.retire()
	}
	c.inbox.connected()
	c.sync.request(0)
	c.wg.Go(k.write)
	c.wg.Go(k.heartbeat)
	c.wg.Go(func() { k.fail(c.read(k)) })
	c.report(StateOnline, nil)
	return nil
}

func (c *Client) current() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cur
}

// leave says that there is no connection.
func (c *Client) leave() { c.change(func() { c.cur = nil }) }

// enter holds WELCOME against the state. In another epoch everything that is known is dropped, before anything is read from
// the connection; old is closed first, so that nothing of the old epoch comes after.
func (c *Client) enter(k, old *conn) error {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	next := Session{User: k.welcome.UserID, Epoch: k.welcome.Epoch, Token: c.session.Token}
	if c.session.User != "" && c.session.User != next.User {
		return ErrWrongUser
	}
	another := c.session.Epoch != "" && c.session.Epoch != next.Epoch
	var err error
	switch {
	case another:
		if old != nil {
			old.fail(errRetired)
		}
		next.Token = ""
		c.inbox.reset()
		err = c.opts.State.Reset(c.ctx, next)
	case c.session != next:
		err = c.opts.State.Save(c.ctx, next)
	}
	if err != nil {
		return &storeError{err}
	}
	c.session = next
	k.gen = c.inbox.generation()
	return nil
}

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
