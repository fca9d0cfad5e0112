package client

import (
	"context"
	"errors"
	"math/rand/v2"
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
			c.forgetWake()
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

// forgetWake drops a Wake that came while there was a connection: it is not for the wait that follows that one's end.
func (c *Client) forgetWake() {
	select {
	case <-c.wake:
	default:
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
