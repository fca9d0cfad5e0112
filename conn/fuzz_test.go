package conn

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/panjf2000/gnet/v2"

	"github.com/parley-im/parley/protocol"
)

// pipe is a gnet.Conn without a socket: bytes that are fed wait in front of the parser as in gnet's, and what is written is kept. Only what
// the gateway uses is there.
type pipe struct {
	gnet.Conn
	context any
	engine  *pipeLoop
	in, out []byte
	closed  bool
	fail    error // of every Write, which then closes
}

func (c *pipe) Context() any              { return c.context }
func (c *pipe) SetContext(v any)          { c.context = v }
func (c *pipe) EventLoop() gnet.EventLoop { return c.engine }
func (c *pipe) InboundBuffered() int      { return len(c.in) }
func (c *pipe) OutboundBuffered() int     { return 0 }
func (c *pipe) Fd() int                   { return -1 } // its shutdown fails, as that of a socket whose peer is gone

func (c *pipe) Peek(n int) ([]byte, error) {
	if n > 0 {
		return c.in[:n], nil
	}
	return c.in, nil
}

// Discard scribbles over what it drops: nobody may look at it any more.
func (c *pipe) Discard(n int) (int, error) {
	if n <= 0 || n > len(c.in) {
		n = len(c.in)
	}
	rest := bytes.Clone(c.in[n:])
	for i := range c.in {
		c.in[i] = 0xEE
	}
	c.in = rest
	return n, nil
}

func (c *pipe) Write(b []byte) (int, error) {
	if c.closed {
		panic("a write after close")
	}
	if c.fail != nil {
		_ = c.engine.Close(c)
		return 0, c.fail
	}
	c.out = append(c.out, b...)
	return len(b), nil
}

// pipeLoop is an event loop that does its work when it is told to.
type pipeLoop struct {
	gnet.EventLoop
	g *Gateway

	mu    sync.Mutex
	tasks []gnet.Runnable
}

func (l *pipeLoop) Execute(_ context.Context, r gnet.Runnable) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks = append(l.tasks, r)
	return nil
}

func (l *pipeLoop) scheduled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tasks)
}

// take is nil when there is nothing to do.
func (l *pipeLoop) take() gnet.Runnable {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tasks) == 0 {
		return nil
	}
	r := l.tasks[0]
	l.tasks = l.tasks[1:]
	return r
}

func (l *pipeLoop) Close(c gnet.Conn) error {
	if p := c.(*pipe); !p.closed {
		p.closed = true
		(events{l.g}).OnClose(c, nil)
	}
	return nil
}

func (l *pipeLoop) work(tb testing.TB) {
	for r := l.take(); r != nil; r = l.take() {
		if err := r.Run(context.Background()); err != nil {
			tb.Fatal(err)
		}
	}
}

// FuzzStream feeds bytes cut at any places, after a good HELLO or without. Whatever they are, nothing panics, no more
// is held than a frame, each frame that is good arrives as it was sent, and the connection ends with an ERROR or not at all.
func FuzzStream(f *testing.F) {
	good := protocol.AppendRawFrame(nil, protocol.CmdSend, 1, []byte("a body"))
	good = protocol.AppendRawFrame(good, protocol.CmdPing, 2, nil)
	good = protocol.AppendRawFrame(good, protocol.CmdPushAck, 0, nil)
	f.Add(good, []byte{1, 2, 3}, true)
	f.Add(header(0xFFFFFFFF, 1, 0, protocol.CmdSend, 1), []byte{3}, true)
	f.Add(header(7, 1, 0, protocol.CmdSend, 1), []byte{}, true)
	f.Add(header(8, 1, 0, protocol.CmdSend, 0), []byte{1}, true)
	f.Add(header(8+4000, 1, 0, protocol.CmdHello, 1), []byte{1}, false)
	f.Add(protocol.AppendRawFrame(nil, protocol.CmdHello, 1, []byte{0xdd, 0xff, 0xff, 0xff, 0xff}), []byte{9}, false)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte{200}, false)
	o := testOptions(f)
	g, err := New(o)
	if err != nil {
		f.Fatal(err)
	}
	l := &fakeLogic{g: g, open: make(map[protocol.SessionID]*protocol.Session), seen: make(map[protocol.SessionID]*got)}
	g.logic = l
	hello := helloFrame(tokenOf(f, "ann"), "d")
	f.Fuzz(func(t *testing.T, stream, cuts []byte, signedIn bool) {
		engine := &pipeLoop{g: g}
		c := &pipe{engine: engine}
		if _, action := (events{g}).OnOpen(c); action != gnet.None {
			t.Fatal(action)
		}
		s := c.context.(*session)
		panics := value(g.metrics.panics)
		if signedIn {
			feed(t, g, c, hello)
			g.signIn(<-g.signIns)
			engine.work(t)
			c.out = wantFrames(t, c.out, protocol.CmdWelcome)
		}
		for rest, i := stream, 0; len(rest) > 0 && !c.closed; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, 1+int(cuts[i%len(cuts)]))
			}
			feed(t, g, c, rest[:n])
			rest = rest[n:]
			engine.work(t)
			if len(c.in) > protocol.HeaderSize+o.maxBody(signedIn) {
				t.Fatalf("%d bytes are held", len(c.in))
			}
		}
		check(t, l, s.ID, stream, c.out, signedIn, c.closed)
		select {
		case <-g.signIns: // the stream had a HELLO of its own
		default:
		}
		_ = engine.Close(c)
		engine.work(t)
		l.mu.Lock()
		delete(l.seen, s.ID)
		faults := l.faults
		l.mu.Unlock()
		if n := value(g.metrics.panics); n != panics || len(faults) > 0 {
			t.Fatalf("%v panics, %v", n-panics, faults)
		}
		g.loops.Store(new([]*loop))
	})
}

func (o *Options) maxBody(signedIn bool) int {
	if !signedIn {
		return earlyBound
	}
	return protocol.DefaultMaxBody
}

func feed(t *testing.T, g *Gateway, c *pipe, b []byte) {
	c.in = append(bytes.Clone(c.in), b...)
	if (events{g}).OnTraffic(c) == gnet.Close {
		t.Fatal("it was closed without a word")
	}
}

// wantFrames takes frames of these commands off b.
func wantFrames(t *testing.T, b []byte, commands ...protocol.Command) []byte {
	t.Helper()
	for _, cmd := range commands {
		f, n, err := protocol.Split(b, 1<<20)
		if err != nil || n == 0 || f.Command != cmd {
			t.Fatalf("wanted %v, got %v, %v", cmd, f.Command, err)
		}
		b = b[n:]
	}
	return b
}

// check cuts the stream by the book and compares: requests must have arrived at logic in order, up to the first fault, and
// the last thing that is written to a connection that ends is an ERROR that closes.
func check(t *testing.T, l *fakeLogic, id protocol.SessionID, stream, out []byte, signedIn, closed bool) {
	if !signedIn {
		wantEnd(t, out, closed)
		return
	}
	a := l.of(id)
	inflight, next := 0, 0
	for {
		f, n, err := protocol.Split(stream, protocol.DefaultMaxBody)
		if err != nil || n > 0 && (f.Command == protocol.CmdHello || f.Command.CountsInFlight() && f.RequestID == 0) {
			if !closed {
				t.Fatal("a bad frame does not end the connection")
			}
			break
		}
		if n == 0 {
			if closed {
				t.Fatal("it ended without a bad frame")
			}
			break
		}
		stream = stream[n:]
		switch {
		case f.Command == protocol.CmdPing:
		case f.Command.CountsInFlight() && inflight == 32:
		default:
			if f.Command.CountsInFlight() {
				inflight++
			}
			if next >= len(a.ids) || a.ids[next] != f.RequestID || a.commands[next] != f.Command || !bytes.Equal(a.bodies[next], f.Body) {
				t.Fatalf("frame %d is not what was sent", next)
			}
			next++
		}
	}
	if next != len(a.ids) {
		t.Fatalf("%d frames arrived, %d were good", len(a.ids), next)
	}
	wantEnd(t, out, closed)
}

// wantEnd checks that all that was written are whole frames, and the last of a connection that ends says why.
func wantEnd(t *testing.T, out []byte, closed bool) {
	var last protocol.Frame
	for len(out) > 0 {
		f, n, err := protocol.Split(out, 1<<20)
		if err != nil || n == 0 {
			t.Fatalf("a broken frame was written: %v", err)
		}
		last, out = f, out[n:]
	}
	if !closed {
		return
	}
	var e protocol.Error
	if err := protocol.Unmarshal(last.Body, &e); last.Command != protocol.CmdError || err != nil {
		t.Fatalf("it ended with %v, %v", last.Command, err)
	}
}

// The whole of a loop's life on pipes, where the order of things can be chosen.
func TestWelcomeAndReadInEitherOrder(t *testing.T) {
	for _, readFirst := range []bool{false, true} {
		t.Run(fmt.Sprint("read first: ", readFirst), func(t *testing.T) {
			g, l, c := onPipe(t)
			feed(t, g, c, append(helloFrame(tokenOf(t, "ann"), "d"), protocol.AppendRawFrame(nil, protocol.CmdSend, 1, nil)...))
			g.signIn(<-g.signIns) // WELCOME is pending
			more := protocol.AppendRawFrame(nil, protocol.CmdSend, 2, nil)
			if readFirst {
				feed(t, g, c, more)
				c.engine.work(t)
			} else {
				c.engine.work(t)
				feed(t, g, c, more)
			}
			if rest := wantFrames(t, c.out, protocol.CmdWelcome); len(rest) != 0 {
				t.Errorf("%x follows WELCOME", rest)
			}
			if a := l.of(c.context.(*session).ID); len(a.ids) != 2 || a.ids[0] != 1 || a.ids[1] != 2 {
				t.Errorf("got %v", a.ids)
			}
		})
	}
}

// onPipe is a gateway with one connection, whose loop works when the test says so.
func onPipe(t *testing.T) (*Gateway, *fakeLogic, *pipe) {
	t.Helper()
	g, err := New(testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	l := &fakeLogic{g: g, open: make(map[protocol.SessionID]*protocol.Session), seen: make(map[protocol.SessionID]*got)}
	g.logic = l
	c := &pipe{engine: &pipeLoop{g: g}}
	(events{g}).OnOpen(c)
	return g, l, c
}

// A pass that leaves work behind, and one that others add to, does not run the next one itself: reads come first.
func TestPassYieldsToReads(t *testing.T) {
	g, _, c := onPipe(t)
	feed(t, g, c, helloFrame(tokenOf(t, "ann"), "d"))
	g.signIn(<-g.signIns)
	c.engine.work(t)
	s := c.context.(*session)
	l := s.l
	for range passSize + 1 {
		l.mark(s)
	}
	l.run()
	if n := c.engine.scheduled(); n != 1 {
		t.Fatalf("%d passes are scheduled", n)
	}
	r := c.engine.take()
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is read, so a goroutine takes it up", func() bool { return c.engine.scheduled() == 1 })
	if len(l.dirty) != 1 || !l.scheduled || l.yielded.Load() {
		t.Fatalf("%d are left, scheduled: %v", len(l.dirty), l.scheduled)
	}
	c.engine.take() // as if it had not
	l.yielded.Store(true)
	feed(t, g, c, protocol.AppendRawFrame(nil, protocol.CmdPing, 1, nil))
	feed(t, g, c, protocol.AppendRawFrame(nil, protocol.CmdPing, 2, nil))
	if n := c.engine.scheduled(); n != 1 {
		t.Errorf("the reads scheduled %d passes", n)
	}
	c.engine.work(t)
	if len(l.dirty) != 0 || l.scheduled {
		t.Error("work is left")
	}
}
