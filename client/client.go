package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/parley-im/parley/protocol"
)

// ConnState is what a client is doing about its connection.
type ConnState uint8

// The states of a connection.
const (
	// StateConnecting: dialling and signing in.
	StateConnecting ConnState = iota + 1
	// StateOnline: signed in. Also reported when a new connection takes over from one that is still open.
	StateOnline
	// StateWaiting: there is no connection; the error says why. The next attempt follows by itself.
	StateWaiting
	// StateStopped: the client has ended and will not connect again.
	StateStopped
)

// String is the state's name.
func (s ConnState) String() string {
	return [...]string{"new", "connecting", "online", "waiting", "stopped"}[min(s, StateStopped)]
}

// Client is one device of one user. Its methods may be called by any goroutine.
type Client struct {
	opts  Options
	inbox *inbox
	count counters

	ctx     context.Context // ends with the client; its cause says why
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup
	loaded  chan struct{} // closed when state and outbox were read
	stopped chan struct{} // closed when all goroutines have ended
	wake    chan struct{} // capacity 1: connect now

	mu      sync.Mutex
	running bool
	cur     *conn         // the connection that requests go out on; nil: none
	synced  *conn         // the last connection on which SYNC was complete
	changed chan struct{} // closed and replaced when cur or synced changes

	// Of the connecting goroutine alone.
	token    string
	fresh    bool // token was fetched for the attempt that is going on
	refused  int  // fresh tokens refused in a row
	signedIn bool // the next HELLO says that the person has just signed in
	backoff  *backoff.ExponentialBackOff

	stateMu sync.Mutex // held while State's methods are called; guards session
	session Session

	handlers chan struct{} // capacity 1: full while one of the app's handlers runs
	sync     syncClock
	pages    pageSize
	out      sender
}

// New checks the options and makes a client that does nothing until Run or Start.
func New(o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.fill()
	c := &Client{
		opts: o, loaded: make(chan struct{}), stopped: make(chan struct{}), wake: make(chan struct{}, 1),
		changed: make(chan struct{}), handlers: make(chan struct{}, 1), signedIn: o.SignedIn,
	}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	c.backoff = c.opts.newBackoff()
	c.inbox = newInbox(&o, &c.count)
	c.sync.changed = make(chan struct{}, 1)
	c.pages.limit.Store(int32(o.PageSize))
	c.out.lanes = map[Target]*lane{}
	return c, nil
}

// Wake makes a client that waits before it connects again do so now: the app calls it when the network is back.
func (c *Client) Wake() { signal(c.wake) }

// UserID is the user of the token, as the server says; "" before the first connection (unless the State knows).
func (c *Client) UserID() string {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.session.User
}

// Ready waits until the client is signed in and the list of conversations is complete; messages may still be on their
// way to OnMessage.
func (c *Client) Ready(ctx context.Context) error {
	return c.await(ctx, func() bool { return c.cur != nil && c.cur == c.synced })
}

// Online waits until the client is signed in.
func (c *Client) Online(ctx context.Context) error {
	_, err := c.online(ctx)
	return err
}

// online waits for a connection.
func (c *Client) online(ctx context.Context) (k *conn, err error) {
	err = c.await(ctx, func() bool {
		k = c.cur
		return k != nil && k.alive()
	})
	return k, err
}

// await waits until cond holds; it is asked with mu held, after each change of cur or synced.
func (c *Client) await(ctx context.Context, cond func() bool) error {
	for {
		c.mu.Lock()
		ok, changed := cond(), c.changed
		c.mu.Unlock()
		if c.ctx.Err() != nil {
			return c.closedErr()
		}
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ctx.Done():
		}
	}
}

// closedErr is what a call gets after the client stopped: ErrClosed, and why.
func (c *Client) closedErr() error {
	if err := c.Err(); err != nil {
		return errors.Join(ErrClosed, err)
	}
	return ErrClosed
}

// change changes cur or synced and wakes those who wait for it.
func (c *Client) change(f func()) {
	c.mu.Lock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
}

func (c *Client) report(s ConnState, err error) {
	if err != nil && s == StateWaiting {
		c.opts.Logger.Info("client: no connection", "err", err)
	}
	if c.opts.OnConnState != nil {
		c.opts.OnConnState(s, err)
	}
}

// pause waits for d. It is false when the client, or until, ended before.
func (c *Client) pause(d time.Duration, until <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-until:
	case <-c.ctx.Done():
	}
	return false
}

// Call sends a request and decodes its reply into reply (nil: the reply has no fields). It waits for a connection, and repeats the
// request after a lost connection, a timeout or an error that says so, until ctx ends; so it is for requests that are safe to
// repeat, which all but SEND are. The error is a *protocol.Error when the server refused for good.
func (c *Client) Call(ctx context.Context, cmd protocol.Command, body, reply protocol.Body) error {
	retry := c.opts.newBackoff()
	for {
		k, err := c.online(ctx)
		if err != nil {
			return err
		}
		err = k.call(ctx, cmd, body, reply)
		after, again := retryable(err)
		if !again {
			return err
		}
		if isLost(err) {
			continue // connecting again has its own delay
		}
		if err := c.sleep(ctx, after+retry.NextBackOff(), err); err != nil {
			return err
		}
	}
}

// sleep waits for d; if ctx ends before, the error says also why there was need to wait.
func (c *Client) sleep(ctx context.Context, d time.Duration, why error) error {
	if c.pause(d, ctx.Done()) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, why)
	}
	return c.closedErr()
}
