package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-im/parley/protocol"
)

func TestOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		names  string
	}{
		{func(o *Options) { o.Listen = "" }, "Listen"},
		{func(o *Options) { o.Verifier = nil }, "Verifier"},
		{func(o *Options) { o.Loops = 65 }, "Loops"},
		{func(o *Options) { o.MaxConns = descriptorLimit() }, "MaxConns"},
		{func(o *Options) { o.MaxInflight = 1 << 16 }, "MaxInflight"},
		{func(o *Options) { o.HardBound = 1000 }, "HardBound"},
		{func(o *Options) { o.SoftBound = 5 << 20 }, "SoftBound"},
		{func(o *Options) { o.Heartbeat = -1 }, "Heartbeat"},
		{func(o *Options) { o.DrainWindow = 100 * time.Hour }, "DrainWindow"},
	} {
		o := testOptions(t)
		c.change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("wanted an error about %s, got %v", c.names, err)
		}
	}
}

func TestDefaultCapIsBelowTheLimit(t *testing.T) {
	for _, limit := range []int{256, 1024, 20000, 1 << 20, 1 << 30} {
		n := defaultMaxConns(limit)
		if n < limit/2 && n < maxConns || n+slack(n)+32 > limit {
			t.Errorf("limit %d: cap %d", limit, n)
		}
		if n > limit-reserved(limit)/2 {
			t.Errorf("limit %d: the default of %d would be refused", limit, n)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	g, _ := start(t, testOptions(t))
	o := testOptions(t)
	o.Listen = g.Addr().String()
	other, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	err = other.Start(&fakeLogic{})
	if err == nil || !strings.HasPrefix(err.Error(), "address already in use: 127.0.0.1:") || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	o.Listen = "no address"
	if other, err = New(o); err != nil {
		t.Fatal(err)
	}
	if err := other.Start(&fakeLogic{}); err == nil {
		t.Error("it started")
	}
}

// An address without a host is every address of the machine.
func TestListenEverywhere(t *testing.T) {
	o := testOptions(t)
	o.Listen = ":0"
	o.Loops = 2
	g, _ := start(t, o)
	_, port, err := net.SplitHostPort(g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1"}
	if g.Addr().(*net.TCPAddr).IP.To4() == nil { // the machine has IPv6
		hosts = append(hosts, "::1")
	}
	for i := range 20 { // each of the loops listens
		c, err := net.Dial("tcp", net.JoinHostPort(hosts[i%len(hosts)], port))
		if err != nil {
			t.Fatal(err)
		}
		p := newPeer(t, c)
		p.write(helloFrame(tokenOf(t, "ann"), "d"))
		p.welcome()
	}
}

func TestCloseAndListenAgain(t *testing.T) {
	o := testOptions(t)
	for range 5 {
		g, _ := start(t, o)
		o.Listen = g.Addr().String() // the same port from now on
		p, _ := signInAs(t, g, "ann")
		if err := errors.Join(g.Close(), g.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.next(); err == nil {
			t.Error("a frame after Close")
		}
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil { // never started
		t.Error(err)
	}
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	o := testOptions(t)
	r := prometheus.NewRegistry()
	o.Registerer = r
	g, _ := start(t, o)
	p, _ := signInAs(t, g, "ann")
	p.request(protocol.CmdPing, 1, "") // by the PONG, the write of WELCOME is counted
	p.expect(protocol.CmdPong)
	if _, err := New(o); err == nil {
		t.Error("registered twice")
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "parley_conn_connections", "parley_conn_sessions", "parley_conn_accepted_total", "parley_conn_writes_total":
			if v := f.GetMetric()[0]; v.GetGauge().GetValue()+v.GetCounter().GetValue() < 1 {
				t.Errorf("%s is %v", f.GetName(), v)
			}
		}
	}
}

// Closing while everything is going on at once: nothing hangs, nothing is left, and logic hears of every session's end.
func TestCloseInTheMiddle(t *testing.T) {
	for round := range 8 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			o := testOptions(t)
			o.Loops = 2
			g, l := start(t, o)
			l.handle = l.echo
			publish(g)
			stop := make(chan struct{})
			var busy sync.WaitGroup
			for i := range 8 {
				busy.Go(func() { churn(g, tokenOf(t, fmt.Sprint("u", i)), stop) })
			}
			busy.Go(func() {
				for n := uint32(0); ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					ids := l.sessions()
					g.Deliver([]protocol.Delivery{{To: ids, Frames: pushFrame(n, 100)}})
					if len(ids) > 0 {
						g.Kick(ids[int(n)%len(ids)], protocol.Kick{Reason: protocol.KickRemoved})
					}
				}
			})
			eventually(t, "it is busy", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.closes > 20 })
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			close(stop)
			busy.Wait()
		})
	}
}

// churn dials, signs in, sends and goes away, over and over.
func churn(g *Gateway, token string, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		c, err := net.Dial("tcp", g.Addr().String())
		if err != nil {
			continue
		}
		b := helloFrame(token, "d")
		for id := range uint32(10) {
			b = protocol.AppendRawFrame(b, protocol.CmdSend, id+1, []byte("hello"))
		}
		_, _ = c.Write(b[:len(b)-i%20])
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = c.Read(make([]byte, 1000))
		c.Close()
	}
}

// Open takes its time, the client does not wait: Closed comes after Open returned.
func TestClosedComesAfterOpen(t *testing.T) {
	g, l := start(t, testOptions(t))
	let := make(chan struct{})
	var returned atomic.Bool
	l.onOpen = func(s *protocol.Session) {
		g.Welcome(s.ID, protocol.Welcome{})
		<-let
		returned.Store(true)
	}
	l.closed = func(protocol.SessionID) {
		if !returned.Load() {
			t.Error("Closed before Open returned")
		}
	}
	p := dial(t, g)
	p.write(helloFrame(tokenOf(t, "ann"), "d"))
	p.welcome()
	p.request(protocol.CmdSend, 1, "")
	id := l.sessions()[0]
	eventually(t, "it is handled while Open runs", func() bool { return len(l.of(id).ids) == 1 })
	p.c.Close()
	eventually(t, "it is closed", func() bool { return g.conns.Load() == 0 })
	close(let)
	eventually(t, "logic is told", func() bool { return len(l.sessions()) == 0 })
}

func TestKickBeforeWelcome(t *testing.T) {
	g, l := start(t, testOptions(t))
	l.onOpen = func(s *protocol.Session) {
		g.Kick(s.ID, protocol.Kick{Reason: protocol.KickDisplaced, Message: "m", DeviceID: "other", Platform: protocol.PlatformIOS, TimeMS: 5})
		g.Kick(s.ID, protocol.Kick{Reason: protocol.KickRemoved})
		g.Welcome(s.ID, protocol.Welcome{})
	}
	p := dial(t, g)
	p.write(helloFrame(tokenOf(t, "ann"), "d"))
	if k := p.expectKick(protocol.KickDisplaced); k.DeviceID != "other" || k.Platform != protocol.PlatformIOS || k.TimeMS != 5 || k.Message != "m" {
		t.Errorf("got %+v", k)
	}
	p.expectEnd()
}

func TestKickAfterWelcome(t *testing.T) {
	g, l := start(t, testOptions(t))
	p, _ := signInAs(t, g, "ann")
	id := l.sessions()[0]
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: pushFrame(1, 300<<10)}})
	g.Kick(id, protocol.Kick{Reason: protocol.KickSignedOut})
	p.expect(protocol.CmdPush) // what was delivered before comes before
	p.expectKick(protocol.KickSignedOut)
	p.request(protocol.CmdSend, 1, "too late")
	p.expectEnd()
	eventually(t, "logic is told", func() bool { return len(l.sessions()) == 0 })
	if len(l.of(id).ids) != 0 {
		t.Error("a frame after KICK was handled")
	}
}

// A client that does not close after KICK is closed, and one that does not even take it.
func TestKickedClientThatStays(t *testing.T) {
	t.Parallel()
	g, l := start(t, testOptions(t))
	signInAs(t, g, "ann")
	slowPeer(t, g, "bob")
	for _, id := range l.sessions() {
		g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: pushFrame(1, 3<<20), Replies: 1}})
		g.Kick(id, protocol.Kick{Reason: protocol.KickAbuse})
	}
	eventually(t, "both are closed", func() bool { return g.conns.Load() == 0 })
}

func TestConnectionCap(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.MaxConns = 3
	o.CloseTimeout = 10 * time.Second
	g, _ := start(t, o)
	var in []*peer
	for i := range 3 {
		p, _ := signInAs(t, g, fmt.Sprint("u", i))
		in = append(in, p)
	}
	var refused []*peer
	for range slack(o.MaxConns) { // each is told
		p := dial(t, g)
		p.write(helloFrame(tokenOf(t, "ann"), "d"))
		if k := p.expectKick(protocol.KickServerFull); k.RetryAfterMS == 0 {
			t.Errorf("got %+v", k)
		}
		refused = append(refused, p)
	}
	p := dial(t, g) // one too many even to be told
	if _, err := p.next(); err == nil {
		t.Error("a frame came")
	}
	if n := value(g.metrics.refused.WithLabelValues("full")); n != float64(len(refused)+1) {
		t.Errorf("%v refused", n)
	}
	for _, p := range refused {
		p.expectEnd()
	}
	in[0].c.Close()
	eventually(t, "there is room", func() bool { return g.conns.Load() == 2 })
	signInAs(t, g, "ann")
}

// More connections than descriptors: the engine must not end. The limit is for a whole process, so this is another one.
func TestDescriptorLimit(t *testing.T) {
	if os.Getenv("PARLEY_TEST_CHILD") != "" {
		descriptorLimitChild()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDescriptorLimit$", "-test.count=1")
	cmd.Env = append(os.Environ(), "PARLEY_TEST_CHILD=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 600 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "it accepts again", func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		p := newPeer(t, c)
		defer c.Close()
		if _, err := c.Write(helloFrame(tokenOf(t, "ann"), "d")); err != nil {
			return false
		}
		f, err := p.next()
		return err == nil && f.Command == protocol.CmdWelcome
	})
}

// descriptorLimitChild is a gateway in a process with 256 descriptors. It ends when its input does.
func descriptorLimitChild() {
	limit := syscall.Rlimit{Cur: 256, Max: 256}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		panic(err)
	}
	v, err := NewVerifier(VerifierOptions{Secret: testSecret})
	if err != nil {
		panic(err)
	}
	g, err := New(Options{Listen: "127.0.0.1:0", Verifier: v})
	if err != nil {
		panic(err)
	}
	l := &fakeLogic{g: g, open: make(map[protocol.SessionID]*protocol.Session), seen: make(map[protocol.SessionID]*got)}
	if err := g.Start(l); err != nil {
		panic(err)
	}
	fmt.Println(g.Addr())
	_, _ = os.Stdin.Read(make([]byte, 1))
	_ = g.Close()
}

// The engine ends by itself: whoever watches Done learns of it.
func TestEngineThatEndsIsNoticed(t *testing.T) {
	g, _ := start(t, testOptions(t))
	if g.Err() != nil {
		t.Error(g.Err())
	}
	signInAs(t, g, "ann")
	g.stopEngine()
	select {
	case <-g.Done():
	case <-time.After(patience):
		t.Fatal("Done stays open")
	}
	if g.Err() == nil {
		t.Error("there is no reason")
	}
	if err := g.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPanicsInLogic(t *testing.T) {
	g, l := start(t, testOptions(t))
	l.onOpen = func(s *protocol.Session) {
		if s.User == "open" {
			panic("in Open")
		}
		g.Welcome(s.ID, protocol.Welcome{})
	}
	l.handle = func(_ protocol.SessionID, frames []protocol.Frame) {
		if string(frames[0].Body) == "panic" {
			panic("in Handle")
		}
	}
	var once sync.Once
	l.closed = func(protocol.SessionID) { once.Do(func() { panic("in Closed") }) }
	bystander, _ := signInAs(t, g, "bystander")

	p := dial(t, g)
	p.write(helloFrame(tokenOf(t, "open"), "d"))
	p.expectError(protocol.CodeInternal, 1)
	p.expectEnd()

	p, _ = signInAs(t, g, "handle")
	p.request(protocol.CmdSend, 1, "panic")
	if _, err := p.next(); err == nil {
		t.Error("a frame came")
	}

	// In a read that a pass takes up: frames that came before WELCOME.
	p = dial(t, g)
	p.write(append(helloFrame(tokenOf(t, "early"), "d"), protocol.AppendRawFrame(nil, protocol.CmdSend, 1, []byte("panic"))...))
	p.welcome()
	if _, err := p.next(); err == nil {
		t.Error("a frame came")
	}
	eventually(t, "they are closed", func() bool { return g.conns.Load() == 1 && len(l.sessions()) == 1 })
	if n := value(g.metrics.panics); n != 4 {
		t.Errorf("%v panics", n)
	}
	bystander.request(protocol.CmdPing, 1, "")
	bystander.expect(protocol.CmdPong)
}

func TestTooManySignIns(t *testing.T) {
	o := testOptions(t)
	o.MaxHandshakes = 2
	g, l := start(t, o)
	let := make(chan struct{})
	l.onOpen = func(s *protocol.Session) {
		<-let
		g.Welcome(s.ID, protocol.Welcome{})
	}
	var peers []*peer
	for i := range signInWorkers() + o.MaxHandshakes + 1 {
		p := dial(t, g)
		p.write(helloFrame(tokenOf(t, fmt.Sprint("u", i)), "d"))
		peers = append(peers, p)
		if i < signInWorkers() {
			eventually(t, "a worker has it", func() bool { return len(l.sessions()) == i+1 })
		} else if i < signInWorkers()+o.MaxHandshakes {
			eventually(t, "it waits", func() bool { return len(g.signIns) == i+1-signInWorkers() })
		}
	}
	last := peers[len(peers)-1]
	f := last.expect(protocol.CmdError)
	var e protocol.Error
	decode(t, f, &e)
	if e.Code != protocol.CodeUnavailable || e.RetryAfterMS == 0 || f.RequestID != 1 {
		t.Errorf("got %v", &e)
	}
	last.expectEnd()
	close(let)
	for _, p := range peers[:len(peers)-1] {
		p.welcome()
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.DrainWindow = 200 * time.Millisecond
	g, l := start(t, o)
	l.handle = l.echo
	peers, _ := crowd(t, g, l, 30)
	drained := make(chan error)
	go func() { drained <- g.Drain(t.Context()) }()
	for _, p := range peers {
		var a protocol.GoAway
		decode(t, p.expect(protocol.CmdGoAway), &a)
		if a.ReconnectWithinMS != 100 {
			t.Errorf("got %+v", a)
		}
	}
	p := dial(t, g)
	p.expectKick(protocol.KickServerFull)
	p.expectEnd()
	for i, p := range peers { // requests are still answered
		p.request(protocol.CmdSend, 1, "last words")
		p.expect(protocol.CmdSendAck)
		if i < 29 {
			p.c.Close()
		}
	}
	select {
	case <-drained:
		t.Fatal("Drain returned though one is still there")
	case <-time.After(50 * time.Millisecond):
	}
	peers[29].c.Close()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if n := len(l.sessions()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// Clients that come back all the time are refused all the time, and do not keep the server up.
func TestDrainWhileClientsComeBack(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.DrainWindow = 20 * time.Millisecond
	o.CloseTimeout = time.Minute // those refused here do not close
	g, _ := start(t, o)
	p, _ := signInAs(t, g, "ann")
	drained := make(chan error)
	go func() { drained <- g.Drain(t.Context()) }()
	p.expect(protocol.CmdGoAway)
	for range 5 {
		dial(t, g).expectKick(protocol.KickServerFull)
	}
	p.c.Close()
	select {
	case err := <-drained:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

// Those that find no other gateway stay until the window is over, and are closed when they wait for nothing.
func TestDrainOfTheOnlyGateway(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.DrainWindow = 20 * time.Millisecond
	g, l := start(t, o)
	idle, _ := signInAs(t, g, "ann")
	busy, _ := signInAs(t, g, "bob")
	eventually(t, "both are there", func() bool { return len(l.sessions()) == 2 })
	ids := l.sessions()
	busy.request(protocol.CmdSend, 7, "not answered yet")
	eventually(t, "the request is there", func() bool {
		return len(l.of(ids[0]).ids)+len(l.of(ids[1]).ids) == 1
	})
	drained := make(chan error)
	go func() { drained <- g.Drain(t.Context()) }()
	idle.expect(protocol.CmdGoAway)
	idle.expectEnd()
	busy.expect(protocol.CmdGoAway)
	for _, id := range l.sessions() {
		ack := protocol.AppendFrame(nil, protocol.CmdSendAck, 7, &protocol.SendAck{Seq: 1})
		g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: ack, Replies: 1}})
	}
	busy.expect(protocol.CmdSendAck)
	busy.expectEnd()
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// Those that do not go get what is queued for them, and are closed.
func TestDrainThatEnds(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.DrainWindow = 20 * time.Millisecond
	g, l := start(t, o)
	peers, ids := crowd(t, g, l, 5)
	silent := dial(t, g)
	eventually(t, "all are there", func() bool { return g.conns.Load() == 6 })
	ctx, cancel := context.WithCancel(t.Context())
	g.Deliver([]protocol.Delivery{{To: ids, Frames: pushFrame(9, 300<<10)}})
	var told, ended sync.WaitGroup
	for _, p := range peers {
		told.Add(1)
		ended.Go(func() {
			p.expect(protocol.CmdPush)
			p.expect(protocol.CmdGoAway)
			told.Done()
			p.expect(protocol.CmdPush)
			p.expectEnd()
		})
	}
	go func() {
		told.Wait()
		g.Deliver([]protocol.Delivery{{To: ids, Frames: pushFrame(10, 300<<10)}})
		cancel()
	}()
	if err := g.Drain(ctx); err != nil {
		t.Error(err)
	}
	if n := g.conns.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	ended.Wait()
	silent.expectEnd()
}

// A half-close is a close, as the protocol says.
func TestHalfCloseIsAClose(t *testing.T) {
	g, l := start(t, testOptions(t))
	p, _ := signInAs(t, g, "ann")
	if err := p.c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	p.expectEnd()
	eventually(t, "logic is told", func() bool { return len(l.sessions()) == 0 })
	if n := value(g.metrics.closed[reasonClient]); n != 1 {
		t.Errorf("%v closed by the client", n)
	}
}
