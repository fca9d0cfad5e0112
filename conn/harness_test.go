package conn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/parley-im/parley/protocol"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet starts a pool of its own when it is loaded
}

var testSecret = bytes.Repeat([]byte("k"), MinSecret)

// got is what a fakeLogic was handed of one session, copied.
type got struct {
	commands []protocol.Command
	ids      []uint32
	bodies   [][]byte
}

// fakeLogic welcomes everybody unless told otherwise, and remembers what it was handed. Any of the functions may be nil; a test sets
// them before it dials.
type fakeLogic struct {
	g      *Gateway
	onOpen func(*protocol.Session)
	handle func(protocol.SessionID, []protocol.Frame)
	closed func(protocol.SessionID)

	mu     sync.Mutex
	open   map[protocol.SessionID]*protocol.Session
	seen   map[protocol.SessionID]*got
	opens  int
	closes int
	faults []string
}

func (l *fakeLogic) fault(s string) { l.faults = append(l.faults, s) }

func (l *fakeLogic) Open(s *protocol.Session) {
	l.mu.Lock()
	l.opens++
	if l.open[s.ID] != nil {
		l.fault("Open twice")
	}
	l.open[s.ID] = s
	onOpen := l.onOpen
	l.mu.Unlock()
	if onOpen != nil {
		onOpen(s)
		return
	}
	l.g.Welcome(s.ID, protocol.Welcome{Epoch: "e1", ResendS: 300})
}

func (l *fakeLogic) Handle(id protocol.SessionID, frames []protocol.Frame) {
	l.mu.Lock()
	if l.open[id] == nil {
		l.fault("Handle of a session that is not open")
	}
	g := l.seen[id]
	if g == nil {
		g = &got{}
		l.seen[id] = g
	}
	for _, f := range frames {
		g.commands = append(g.commands, f.Command)
		g.ids = append(g.ids, f.RequestID)
		g.bodies = append(g.bodies, bytes.Clone(f.Body))
	}
	handle := l.handle
	l.mu.Unlock()
	if handle != nil {
		handle(id, frames)
	}
}

func (l *fakeLogic) Closed(id protocol.SessionID) {
	l.mu.Lock()
	l.closes++
	if l.open[id] == nil {
		l.fault("Closed of a session that is not open")
	}
	delete(l.open, id)
	closed := l.closed
	l.mu.Unlock()
	if closed != nil {
		closed(id)
	}
}

func (l *fakeLogic) of(id protocol.SessionID) got {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.seen[id]; g != nil {
		return got{append([]protocol.Command(nil), g.commands...), append([]uint32(nil), g.ids...), append([][]byte(nil), g.bodies...)}
	}
	return got{}
}

func (l *fakeLogic) sessions() (ids []protocol.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.open {
		ids = append(ids, id)
	}
	return ids
}

// echo answers each request with a reply that has the request's body.
func (l *fakeLogic) echo(id protocol.SessionID, frames []protocol.Frame) {
	var out []byte
	for _, f := range frames {
		out = protocol.AppendRawFrame(out, f.Command.Reply(), f.RequestID, f.Body)
	}
	l.g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: out, Replies: len(frames)}})
}

func testOptions(tb testing.TB) Options {
	tb.Helper()
	v, err := NewVerifier(VerifierOptions{Secret: testSecret})
	if err != nil {
		tb.Fatal(err)
	}
	o := Options{Listen: "127.0.0.1:0", Verifier: v, CloseTimeout: 500 * time.Millisecond}
	if testing.Verbose() && os.Getenv("PARLEY_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return o
}

// start runs a gateway until the test's end, at which everything that was opened must have been closed once.
func start(tb testing.TB, o Options) (*Gateway, *fakeLogic) {
	tb.Helper()
	g, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	l := &fakeLogic{g: g, open: make(map[protocol.SessionID]*protocol.Session), seen: make(map[protocol.SessionID]*got)}
	if err := g.Start(l); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := g.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.opens != l.closes || len(l.open) != 0 {
			tb.Errorf("%d opens, %d closes, %d left", l.opens, l.closes, len(l.open))
		}
		for _, f := range l.faults {
			tb.Error(f)
		}
		if n := g.conns.Load(); n != 0 {
			tb.Errorf("%d connections left", n)
		}
	})
	return g, l
}

func tokenOf(tb testing.TB, user string) string {
	tb.Helper()
	t, err := Mint(testSecret, user, "", "", time.Hour)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// peer is a client made of a socket.
type peer struct {
	tb testing.TB
	c  net.Conn
	r  *bufio.Reader
}

func newPeer(tb testing.TB, c net.Conn) *peer {
	tb.Cleanup(func() { c.Close() })
	return &peer{tb: tb, c: c, r: bufio.NewReader(c)}
}

func dial(tb testing.TB, g *Gateway) *peer {
	tb.Helper()
	publish(g)
	c, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	return newPeer(tb, c)
}

// publish makes what the test has set in its logic visible to the loops: a socket is no order of memory.
func publish(g *Gateway) {
	if l, ok := g.logic.(*fakeLogic); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
}

func helloFrame(token, device string) []byte {
	return protocol.AppendFrame(nil, protocol.CmdHello, 1, &protocol.Hello{Token: token, DeviceID: device, Platform: protocol.PlatformLinux, SDK: "test"})
}

// signIn dials and waits for WELCOME.
func signInAs(tb testing.TB, g *Gateway, user string) (*peer, protocol.Welcome) {
	tb.Helper()
	p := dial(tb, g)
	p.write(helloFrame(tokenOf(tb, user), "d-"+user))
	return p, p.welcome()
}

func (p *peer) write(b []byte) {
	p.tb.Helper()
	if _, err := p.c.Write(b); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *peer) request(cmd protocol.Command, id uint32, body string) {
	p.tb.Helper()
	p.write(protocol.AppendRawFrame(nil, cmd, id, []byte(body)))
}

const patience = 20 * time.Second

// next reads a frame; io.EOF when the server closed.
func (p *peer) next() (f protocol.Frame, err error) {
	p.tb.Helper()
	_ = p.c.SetReadDeadline(time.Now().Add(patience))
	frame := make([]byte, protocol.HeaderSize, 256)
	if _, err = io.ReadFull(p.r, frame); err == nil {
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame)+4-protocol.HeaderSize)...)
		_, err = io.ReadFull(p.r, frame[protocol.HeaderSize:])
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.tb.Fatal("nothing came")
	case err != nil:
		return f, err
	}
	f, _, err = protocol.Split(frame, 16<<20)
	if err != nil {
		p.tb.Fatalf("the server sent no frame: %v", err)
	}
	return f, nil
}

func (p *peer) expect(cmd protocol.Command) protocol.Frame {
	p.tb.Helper()
	f, err := p.next()
	if err != nil {
		p.tb.Fatalf("wanted %v: %v", cmd, err)
	}
	if f.Command != cmd {
		p.tb.Fatalf("wanted %v, got %v: %x", cmd, f.Command, f.Body)
	}
	return f
}

// expectAny wants a frame, whichever.
func (p *peer) expectAny() protocol.Frame {
	p.tb.Helper()
	f, err := p.next()
	if err != nil {
		p.tb.Fatalf("wanted a frame: %v", err)
	}
	return f
}

func (p *peer) welcome() (w protocol.Welcome) {
	p.tb.Helper()
	decode(p.tb, p.expect(protocol.CmdWelcome), &w)
	return w
}

// expectError wants an ERROR of the code for the request id.
func (p *peer) expectError(code protocol.ErrorCode, id uint32) {
	p.tb.Helper()
	f := p.expect(protocol.CmdError)
	var e protocol.Error
	decode(p.tb, f, &e)
	if e.Code != code || f.RequestID != id {
		p.tb.Fatalf("wanted %v for %d, got %v for %d", code, id, &e, f.RequestID)
	}
}

func (p *peer) expectKick(reason protocol.KickReason) (k protocol.Kick) {
	p.tb.Helper()
	decode(p.tb, p.expect(protocol.CmdKick), &k)
	if k.Reason != reason {
		p.tb.Fatalf("wanted KICK %d, got %+v", reason, k)
	}
	return k
}

// expectEnd wants the connection to be closed in good order, with nothing before.
func (p *peer) expectEnd() {
	p.tb.Helper()
	if f, err := p.next(); !errors.Is(err, io.EOF) {
		p.tb.Fatalf("wanted the end, got %v %x, %v", f.Command, f.Body, err)
	}
	p.c.Close()
}

func decode(tb testing.TB, f protocol.Frame, m protocol.Body) {
	tb.Helper()
	if err := protocol.Unmarshal(f.Body, m); err != nil {
		tb.Fatal(err)
	}
}

// eventually waits for a condition.
func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !f(); {
		if time.Now().After(end) {
			tb.Fatalf("never came true: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// post runs f on the loop.
func (l *loop) post(f func()) {
	l.g.execute(l.engine, func(context.Context) error { f(); return nil })
}

// value is what a counter or gauge shows.
func value(m prometheus.Metric) float64 {
	var v dto.Metric
	if err := m.Write(&v); err != nil {
		panic(err)
	}
	return v.GetCounter().GetValue() + v.GetGauge().GetValue()
}
