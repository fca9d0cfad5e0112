package conn

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

func TestSilenceCloses(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.Heartbeat = 300 * time.Millisecond
	g, l := start(t, o)
	quiet, _ := signInAs(t, g, "quiet")
	lively, _ := signInAs(t, g, "lively")
	began := time.Now()
	gone := make(chan time.Duration)
	go func() {
		_, _ = quiet.next()
		gone <- time.Since(began)
	}()
	var took time.Duration
	for took == 0 {
		lively.request(protocol.CmdPing, 1, "")
		lively.expect(protocol.CmdPong)
		select {
		case took = <-gone:
		case <-time.After(50 * time.Millisecond):
		}
	}
	if took < 3*o.Heartbeat-100*time.Millisecond {
		t.Errorf("closed after %v", took)
	}
	if n := value(g.metrics.closed[reasonSilence]); n != 1 || len(l.sessions()) != 1 {
		t.Errorf("%v closed as silent, %d left", n, len(l.sessions()))
	}
	lively.request(protocol.CmdPing, 2, "")
	lively.expect(protocol.CmdPong)
}

func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.HandshakeTimeout = 150 * time.Millisecond
	g, l := start(t, o)
	let := make(chan struct{})
	l.onOpen = func(*protocol.Session) { <-let }
	silent := dial(t, g)
	trickling := dial(t, g)
	waiting := dial(t, g) // logic does not answer in time
	waiting.write(helloFrame(tokenOf(t, "ann"), "d"))
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for _, b := range helloFrame(tokenOf(t, "bob"), "d") {
			if _, err := trickling.c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for _, p := range []*peer{silent, trickling, waiting} {
		if f, err := p.next(); err == nil {
			t.Errorf("got %v", f.Command)
		}
		p.c.Close()
	}
	<-stop
	if n := value(g.metrics.closed[reasonHandshake]); n != 3 {
		t.Errorf("%v closed", n)
	}
	close(let)
}

func TestFrameTimeout(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.FrameTimeout = 600 * time.Millisecond
	g, l := start(t, o)
	l.handle = l.echo
	p, _ := signInAs(t, g, "ann")
	for range 5 { // frames that complete are no matter, however many come in two parts
		f := protocol.AppendRawFrame(nil, protocol.CmdSend, 1, make([]byte, 100))
		p.write(f[:50])
		time.Sleep(o.FrameTimeout / 4)
		p.write(f[50:])
		p.expect(protocol.CmdSendAck)
	}
	began := time.Now()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for _, b := range protocol.AppendRawFrame(nil, protocol.CmdSend, 1, make([]byte, 10000)) {
			if _, err := p.c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if _, err := p.next(); err == nil {
		t.Error("a frame came")
	}
	if took := time.Since(began); took < o.FrameTimeout {
		t.Errorf("closed after %v", took)
	}
	p.c.Close()
	<-stop
	if n := value(g.metrics.closed[reasonFrame]); n != 1 {
		t.Errorf("%v closed", n)
	}
}

func TestTokenEndsWhileConnected(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	g, l := start(t, o)
	tok, err := Mint(testSecret, "ann", "", "", 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	p := dial(t, g)
	p.write(helloFrame(tok, "d"))
	p.welcome()
	p.expectKick(protocol.KickTokenExpired)
	p.expectEnd()
	eventually(t, "logic is told", func() bool { return len(l.sessions()) == 0 })
	if n := value(g.metrics.closed[reasonExpired]); n != 1 {
		t.Errorf("%v closed", n)
	}
}

// The wheel against a plain list: sessions are inserted, moved and removed at random, and each must be found at its tick.
func TestWheel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var w wheel
	in := make(map[*session]uint32)
	for now := uint32(1); now < 5000; now++ {
		for s := w.slots[now%wheelSlots]; s != nil; s = w.slots[now%wheelSlots] {
			if in[s] != now {
				t.Fatalf("found at %d, wanted at %d", now, in[s])
			}
			w.remove(s)
			delete(in, s)
		}
		for range 3 {
			s := &session{}
			in[s] = now + 1 + r.Uint32N(wheelSlots-1)
			w.insert(s, in[s])
		}
		for s, at := range in {
			if at == now {
				t.Fatalf("not found at %d", now)
			}
			if r.IntN(50) == 0 {
				w.remove(s)
				w.remove(s) // again does nothing
				delete(in, s)
			}
			if r.IntN(3) == 0 {
				break
			}
		}
	}
}

func TestTicksRoundUp(t *testing.T) {
	o := Options{}
	o.setDefaults()
	k := newTicks(&o)
	if k.length != 250*time.Millisecond || k.silence != 721 || k.handshake != 41 || k.frame != 121 || k.close != 9 || k.stalled != 241 {
		t.Errorf("got %+v", k)
	}
}
