package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

func ready(t *testing.T, c *Client) {
	t.Helper()
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cut closes the newest connection, without a word.
func (f *fake) cut() {
	p := f.last()
	f.locked(p.cut)
}

func TestHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f, func(o *Options) { o.SignedIn = true })
		defer stop(t, f, c)
		ready(t, c)
		f.cut()
		rest(time.Minute)
		if f.connections() != 2 {
			t.Fatalf("%d connections, want 2", f.connections())
		}
		for i, flags := range []uint32{protocol.HelloSignedIn, 0} {
			h := f.peers[i].hello
			if h.Token != "token" || h.DeviceID != device || h.Platform != protocol.PlatformLinux || h.SDK != sdkName || h.Flags != flags {
				t.Errorf("HELLO %d: %+v", i, h)
			}
		}
		want := []ConnState{StateConnecting, StateOnline, StateWaiting, StateConnecting, StateOnline}
		if !slices.Equal(r.states, want) {
			t.Errorf("states %v, want %v", r.states, want)
		}
	})
}

// The flag stays until a WELCOME came: an attempt that failed before was no sign-in.
func TestSignedInUntilWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onHello = func(p *peer, _ protocol.Hello) bool {
			if p.n == 0 {
				p.fail(helloID, protocol.CodeUnavailable, 5000)
			}
			return p.n == 0
		}
		c, _ := connect(t, f, func(o *Options) { o.SignedIn = true })
		defer stop(t, f, c)
		start := time.Now()
		ready(t, c)
		if d := time.Since(start); d < 5*time.Second {
			t.Errorf("connected again after %v, the server asked for 5 s", d)
		}
		if h := f.peers[1].hello; h.Flags != protocol.HelloSignedIn {
			t.Errorf("flags of the second HELLO: %d", h.Flags)
		}
	})
}

func TestBackoffGrowsAndWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials []time.Time
		c, err := New(Options{
			Addr: "x:1", Plaintext: true, DeviceID: device, MinBackoff: time.Second, MaxBackoff: 16 * time.Second,
			Token: func(context.Context) (string, error) { return "t", nil },
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				dials = append(dials, time.Now())
				return nil, errors.New("unreachable")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Start()
		defer c.Close()
		rest(2 * time.Hour)
		synctest.Wait()
		n := len(dials)
		if n < 450 || n > 2*3600/8*2 { // a mean of 8 s once the bound is reached
			t.Errorf("%d attempts in two hours", n)
		}
		for i := 1; i < n; i++ {
			if d := dials[i].Sub(dials[i-1]); d > 16*time.Second+time.Millisecond {
				t.Errorf("delay %d is %v, over the bound", i, d)
			}
		}
		c.Wake()
		synctest.Wait()
		if len(dials) != n+1 {
			t.Error("Wake did not connect")
		}
	})
}

func TestKick(t *testing.T) {
	for _, k := range []struct {
		protocol.Kick
		back bool
	}{
		{protocol.Kick{Reason: protocol.KickDisplaced, DeviceID: "other"}, false},
		{protocol.Kick{Reason: protocol.KickTokenRevoked}, false},
		{protocol.Kick{Reason: protocol.KickRemoved}, false},
		{protocol.Kick{Reason: protocol.KickSlow}, true},
		{protocol.Kick{Reason: protocol.KickServerFull, RetryAfterMS: 20_000}, true},
		{protocol.Kick{Reason: protocol.KickTokenExpired}, true},
		{protocol.Kick{Reason: protocol.KickSignedOut}, false},
		{protocol.Kick{Reason: protocol.KickAbuse}, false},
		{protocol.Kick{Reason: 50}, false},
		{protocol.Kick{Reason: 0}, false},
		{protocol.Kick{Reason: 100}, true},
	} {
		for _, before := range []bool{false, true} { // WELCOME
			t.Run(fmt.Sprintf("%d before WELCOME %v", k.Reason, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testKick(t, k.Kick, k.back, before) })
			})
		}
	}
}

func testKick(t *testing.T, k protocol.Kick, back, before bool) {
	f := newFake(t)
	f.onHello = func(p *peer, _ protocol.Hello) bool {
		if p.n == 0 && before {
			p.kick(k)
			return true
		}
		return false
	}
	tokens := 0
	c, r := connect(t, f, func(o *Options) {
		o.Token = func(context.Context) (string, error) { tokens++; return fmt.Sprint("token ", tokens), nil }
	})
	defer f.close()
	defer c.Close()
	start := time.Now()
	synctest.Wait()
	if !before {
		f.locked(func() { f.peers[0].kick(k) })
	}
	if !back {
		<-c.Done()
		c.Close()
		var e *KickError
		if !errors.As(c.Err(), &e) || e.Kick != k {
			t.Errorf("Err is %v", c.Err())
		}
		if last := r.states[len(r.states)-1]; last != StateStopped {
			t.Errorf("the last state is %v", last)
		}
		rest(time.Hour)
		if f.connections() != 1 {
			t.Error("it connected again")
		}
		return
	}
	ready(t, c)
	for f.connections() == 1 {
		rest(time.Millisecond)
	}
	if d := time.Since(start); d < millis(k.RetryAfterMS) {
		t.Errorf("back after %v", d)
	}
	if want := 1 + b2i(k.Reason == protocol.KickTokenExpired); tokens != want {
		t.Errorf("%d tokens fetched, want %d", tokens, want)
	}
	want := uint16(100)
	if k.Reason == protocol.KickSlow {
		want = 50
	}
	if got := c.pages.get(); got != want {
		t.Errorf("page size %d, want %d", got, want)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestTokens(t *testing.T) {
	refuse := func(codes ...protocol.ErrorCode) func(p *peer, h protocol.Hello) bool {
		return func(p *peer, _ protocol.Hello) bool {
			if p.n >= len(codes) || codes[p.n] == 0 {
				return false
			}
			p.fail(helloID, codes[p.n], 0)
			return true
		}
	}
	const u, x = protocol.CodeUnauthenticated, protocol.CodeTokenExpired
	for _, tc := range []struct {
		name   string
		codes  []protocol.ErrorCode
		stops  bool
		tokens int
	}{
		{"expired once", []protocol.ErrorCode{x}, false, 2},
		{"unauthenticated once", []protocol.ErrorCode{u}, false, 2},
		{"twice in a row", []protocol.ErrorCode{u, u}, true, 2},
		{"expired and unauthenticated", []protocol.ErrorCode{x, u}, true, 2},
		{"forbidden", []protocol.ErrorCode{protocol.CodeForbidden}, true, 1},
		{"another version", []protocol.ErrorCode{protocol.CodeUnsupportedVersion}, true, 1},
		{"unknown without a delay", []protocol.ErrorCode{999}, true, 1},
		{"unavailable", []protocol.ErrorCode{protocol.CodeUnavailable, protocol.CodeInternal, protocol.CodeRateLimited}, false, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.onHello = refuse(tc.codes...)
				tokens := 0
				c, _ := connect(t, f, func(o *Options) {
					o.Token = func(context.Context) (string, error) { tokens++; return fmt.Sprint("token ", tokens), nil }
				})
				defer f.close()
				defer c.Close()
				rest(10 * time.Minute)
				if stopped := c.ctx.Err() != nil; stopped != tc.stops {
					t.Errorf("stopped: %v, %v", stopped, c.Err())
				}
				var e *RefusedError
				if tc.stops && (!errors.As(c.Err(), &e) || !errors.Is(c.Err(), &protocol.Error{Code: tc.codes[len(tc.codes)-1]})) {
					t.Errorf("Err is %v", c.Err())
				}
				if tokens != tc.tokens {
					t.Errorf("%d tokens fetched, want %d", tokens, tc.tokens)
				}
				if h := f.last().hello; h.Token != fmt.Sprint("token ", tokens) {
					t.Errorf("the last HELLO had %q", h.Token)
				}
			})
		})
	}
}

// A token that expires while the connection is open ends it; the next one has a new token, and the app is not told to sign in.
func TestTokenExpiresOnline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		tokens := 0
		c, _ := connect(t, f, func(o *Options) {
			o.Token = func(context.Context) (string, error) {
				if tokens++; tokens == 2 {
					return "", errors.New("the app's server is away")
				}
				return fmt.Sprint("token ", tokens), nil
			}
		})
		defer stop(t, f, c)
		ready(t, c)
		f.locked(func() { f.peers[0].fail(0, protocol.CodeTokenExpired, 0) })
		rest(time.Minute)
		ready(t, c)
		if h := f.last().hello; h.Token != "token 3" {
			t.Errorf("the last HELLO had %q", h.Token)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, _ := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		rest(10*time.Minute + time.Second)
		pings := f.sent(protocol.CmdPing)
		if len(pings) != 10 || f.connections() != 1 {
			t.Fatalf("%d PINGs on %d connections in 10 minutes, want 10 on 1", len(pings), f.connections())
		}
		// It sends, but hears nothing; and it hears, but sends nothing.
		f.onFrame = func(*peer, protocol.Frame) bool { return true }
		for range 3 {
			c.Signal(t.Context(), User("bob"), 1, nil)
			rest(25 * time.Second)
		}
		if n := len(f.sent(protocol.CmdPing)); n != 11 {
			t.Errorf("%d PINGs, want one more: nothing was heard for a minute", n)
		}
		if f.connections() != 2 {
			t.Errorf("%d connections, want 2: the first gave no sign of life", f.connections())
		}
	})
}

func TestHeartbeatWhileHearing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.tune = func(w *protocol.Welcome) { w.HeartbeatS = 2 } // shorter than the time for a sign of life
		c, _ := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		for range 40 {
			rest(time.Second)
			f.locked(func() { f.peers[0].write(999, 0, nil) })
		}
		if n := len(f.sent(protocol.CmdPing)); n < 19 || n > 21 || f.connections() != 1 {
			t.Errorf("%d PINGs on %d connections in 40 s, want 20 on 1", n, f.connections())
		}
	})
}

// goneServer takes a connection and never answers.
func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onHello = func(p *peer, _ protocol.Hello) bool { return p.n < 2 }
		c, _ := connect(t, f)
		defer stop(t, f, c)
		start := time.Now()
		ready(t, c)
		if d := time.Since(start); d < 20*time.Second || d > 25*time.Second {
			t.Errorf("signed in after %v, want two timeouts of 10 s and short delays", d)
		}
	})
}

func TestReplyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		var ignored atomic.Int32
		f.onFrame = func(p *peer, fr protocol.Frame) bool {
			return fr.Command == protocol.CmdUnread && ignored.Add(1) <= 2
		}
		c, _ := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		start := time.Now()
		if _, err := c.Unread(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 20*time.Second {
			t.Errorf("answered after %v", d)
		}
		if f.connections() != 2 {
			t.Errorf("%d connections: two replies in a row did not come, and that ends one", f.connections())
		}
	})
}

func TestGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		var held []protocol.Frame // SENDs on the first connection, not answered yet
		f.onFrame = func(p *peer, fr protocol.Frame) bool {
			if fr.Command == protocol.CmdSend && p.n == 0 {
				held = append(held, fr)
				return true
			}
			return false
		}
		c, r := connect(t, f, func(o *Options) { o.SignedIn = true })
		defer stop(t, f, c)
		ready(t, c)
		var pending []*Pending
		for _, text := range []string{"one", "two", "three"} {
			p, err := c.Queue(t.Context(), Text(User("bob"), text))
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
		}
		synctest.Wait()
		start := time.Now()
		f.locked(func() { f.peers[0].write(protocol.CmdGoAway, 0, &protocol.GoAway{ReconnectWithinMS: 5000}) })
		for f.connections() == 1 {
			rest(time.Millisecond)
		}
		if d := time.Since(start); d > 5*time.Second+10*time.Millisecond {
			t.Errorf("dialled after %v", d)
		}
		synctest.Wait()
		if len(held) != 1 {
			t.Fatalf("%d SENDs on the first connection, want one in flight", len(held))
		}
		for _, p := range pending {
			if _, err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 3)
		if h := f.peers[1].hello; h.Flags != 0 {
			t.Error("the second HELLO says that the person has just signed in")
		}
		rest(time.Minute)
		if f.connections() != 2 || c.ctx.Err() != nil {
			t.Errorf("%d connections, err %v: the KICK of the old connection was obeyed", f.connections(), c.Err())
		}
		if slices.Contains(r.states, StateWaiting) {
			t.Errorf("states %v: it was never without a connection", r.states)
		}
	})
}

// The old connection lives on until the requests in flight have their replies.
func TestGoAwayKeepsOldConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onHello = func(p *peer, _ protocol.Hello) bool {
			p.hello.DeviceID = fmt.Sprint(p.n) // so that the server does not kick the old one
			return false
		}
		var first *protocol.Frame
		f.onFrame = func(p *peer, fr protocol.Frame) bool {
			if fr.Command == protocol.CmdSend && p.n == 0 {
				first = &fr
				return true
			}
			return false
		}
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		p, _ := c.Queue(t.Context(), Text(User("bob"), "one"))
		synctest.Wait()
		f.locked(func() { f.peers[0].write(protocol.CmdGoAway, 0, &protocol.GoAway{}) })
		rest(3 * time.Second)
		if f.connections() != 2 {
			t.Fatal("no second connection")
		}
		if _, err := c.Unread(t.Context()); err != nil {
			t.Fatal(err)
		}
		if u := f.sent(protocol.CmdUnread); u[0].peer.n != 1 {
			t.Error("a new request went out on the old connection")
		}
		f.locked(func() { f.peers[0].answerSend(*first, f.store(*first)) })
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(f.sent(protocol.CmdSend)); n != 1 {
			t.Errorf("%d SENDs, want 1", n)
		}
		f.locked(func() {
			if f.peers[0].welcomed {
				t.Error("the old connection is still open")
			}
		})
		r.wantSeqs(t, bob, 1, 1)
	})
}

// While the new connection signs in the old one is kicked by it, and then the new one fails: that KICK was our own.
func TestGoAwayFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onHello = func(p *peer, _ protocol.Hello) bool {
			if p.n == 1 {
				f.peers[0].kick(protocol.Kick{Reason: protocol.KickDisplaced, DeviceID: device})
				p.nc.Close()
			}
			return p.n == 1
		}
		c, _ := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		f.locked(func() { f.peers[0].write(protocol.CmdGoAway, 0, &protocol.GoAway{ReconnectWithinMS: 100}) })
		rest(time.Minute)
		ready(t, c)
		if f.connections() != 3 {
			t.Errorf("%d connections, want 3", f.connections())
		}
	})
}
