package conn

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

func pushFrame(n uint32, size int) []byte {
	return protocol.AppendRawFrame(nil, protocol.CmdPush, n, make([]byte, size))
}

// crowd signs in n clients; the returned ids are in the same order.
func crowd(tb testing.TB, g *Gateway, l *fakeLogic, n int) (peers []*peer, ids []protocol.SessionID) {
	tb.Helper()
	byKey := make(map[string]protocol.SessionID)
	var keys []string
	for i := range n {
		p, w := signInAs(tb, g, fmt.Sprint("u", i))
		peers, keys = append(peers, p), append(keys, w.SessionID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.open {
		byKey[s.Key] = id
	}
	for _, k := range keys {
		ids = append(ids, byKey[k])
	}
	return peers, ids
}

func TestDeliverToAThousand(t *testing.T) {
	const n, rounds = 1000, 20
	g, l := start(t, testOptions(t))
	peers, ids := crowd(t, g, l, n)
	writes := value(g.metrics.writes)
	var readers sync.WaitGroup
	for _, p := range peers {
		readers.Go(func() {
			for i := range uint32(rounds) {
				if f, err := p.next(); err != nil || f.Command != protocol.CmdPush || f.RequestID != i {
					t.Errorf("got %+v, %v, wanted push %d", f.Header, err, i)
					return
				}
			}
		})
	}
	ds := make([]protocol.Delivery, 0, rounds)
	for i := range uint32(rounds) {
		ds = append(ds, protocol.Delivery{To: ids, Frames: pushFrame(i, 100)})
	}
	g.Deliver(ds)
	for i := range ds {
		clear(ds[i].Frames) // they are ours again
	}
	readers.Wait()
	if w := value(g.metrics.writes) - writes; w > n*rounds/5 {
		t.Errorf("%v writes for %d messages", w, n*rounds)
	}
}

// Many goroutines deliver to the same sessions: each one's frames keep their order, and none is lost or cut in two.
func TestDeliverConcurrently(t *testing.T) {
	const senders, each, sessions = 8, 500, 10
	o := testOptions(t)
	o.Loops = 2
	g, l := start(t, o)
	peers, ids := crowd(t, g, l, sessions)
	var all sync.WaitGroup
	for s := range uint32(senders) {
		all.Go(func() {
			for i := range uint32(each) {
				g.Deliver([]protocol.Delivery{{To: ids, Frames: pushFrame(s<<16|i, int(i%200))}})
			}
		})
	}
	for _, p := range peers {
		all.Go(func() {
			var next [senders]uint32
			for range senders * each {
				f, err := p.next()
				if err != nil {
					t.Error(err)
					return
				}
				if s, i := f.RequestID>>16, f.RequestID&0xffff; next[s] != i || len(f.Body) != int(i%200) {
					t.Errorf("sender %d: got %d with %d bytes, wanted %d", s, i, len(f.Body), next[s])
					return
				}
				next[f.RequestID>>16]++
			}
		})
	}
	all.Wait()
}

func TestDeliverIgnoresWhatIsGone(t *testing.T) {
	g, l := start(t, testOptions(t))
	p, _ := signInAs(t, g, "ann")
	id := l.sessions()[0]
	p.c.Close()
	eventually(t, "it is gone", func() bool { return len(l.sessions()) == 0 })
	q, _ := signInAs(t, g, "bob") // takes the place in the table
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{0, id, id + 1<<placeBits*1000, ^protocol.SessionID(0)}, Frames: pushFrame(1, 1)}})
	g.Kick(id, protocol.Kick{Reason: protocol.KickRemoved})
	g.Welcome(id, protocol.Welcome{})
	q.request(protocol.CmdPing, 5, "")
	q.expect(protocol.CmdPong)
}

func TestDeliverAndClose(t *testing.T) {
	g, l := start(t, testOptions(t))
	l.handle = func(id protocol.SessionID, frames []protocol.Frame) {
		g.Deliver([]protocol.Delivery{
			{To: []protocol.SessionID{id}, Frames: errorFrame(frames[0].RequestID, &protocol.Error{Code: protocol.CodeBadFrame}), Replies: 1, Close: true},
			{To: []protocol.SessionID{id}, Frames: pushFrame(1, 1)}, // too late
		})
	}
	p, _ := signInAs(t, g, "ann")
	p.request(protocol.CmdSend, 3, "")
	p.expectError(protocol.CodeBadFrame, 3)
	p.expectEnd()
}

// slowPeer dials with a small receive buffer, so that the server's kernel is soon full, and signs in.
func slowPeer(tb testing.TB, g *Gateway, user string) *peer {
	tb.Helper()
	publish(g)
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }); e != nil {
			return e
		}
		return err
	}}
	c, err := d.Dial("tcp", g.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	p := newPeer(tb, c)
	p.write(helloFrame(tokenOf(tb, user), "d"))
	p.welcome()
	return p
}

func TestSoftBoundSkipsAndTellsToResync(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SoftBound = 64 << 10
	g, l := start(t, o)
	p := slowPeer(t, g, "ann")
	id := l.sessions()[0]
	sent := uint32(0)
	eventually(t, "deliveries are skipped", func() bool {
		g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: pushFrame(sent, 16<<10)}})
		sent++
		onLoop(g, id, func(*session) {}) // what the kernel takes is written by now
		return value(g.metrics.skipped) > 10
	})
	onLoop(g, id, func(s *session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.waiting(); n > o.SoftBound+17<<10 {
			t.Errorf("%d bytes wait", n)
		}
	})
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: protocol.AppendRawFrame(nil, protocol.CmdSendAck, 77, nil), Replies: 1}})
	got, acked := uint32(0), false
	for { // what was queued before, the reply, and then EVENT resync
		f, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Command == protocol.CmdEvent {
			expectResync(t, f)
			break
		}
		acked = acked || f.Command == protocol.CmdSendAck
		got++
	}
	if !acked || got >= sent {
		t.Errorf("%d frames came, %d were sent; reply: %v", got, sent, acked)
	}
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: pushFrame(1<<20, 1)}}) // it gets deliveries again
	if f := p.expect(protocol.CmdPush); f.RequestID != 1<<20 {
		t.Errorf("got push %d", f.RequestID)
	}
}

// Signals are the first to be dropped for a client that is slow: they take no room of what counts, and nothing is owed for them.
func TestEphemeralMakesWay(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SoftBound, o.HardBound = 256<<10, 1<<20
	o.StallTimeout = time.Hour
	g, l := start(t, o)
	p := slowPeer(t, g, "ann")
	id := l.sessions()[0]
	signal := protocol.Delivery{To: []protocol.SessionID{id}, Frames: protocol.AppendRawFrame(nil, protocol.CmdSignal, 0, make([]byte, 1000)), Ephemeral: true}
	flood := func() {
		for range 2 * o.HardBound / len(signal.Frames) {
			g.Deliver([]protocol.Delivery{signal})
		}
		onLoop(g, id, func(*session) {}) // what the kernel takes is written by now
	}
	eventually(t, "signals are dropped", func() bool { flood(); return value(g.metrics.ephemeral) > 0 })
	onLoop(g, id, func(s *session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.waiting(); n > o.SoftBound/ephemeralShare+len(signal.Frames) {
			t.Errorf("%d bytes of signals wait", n)
		}
	})
	const pushes = 10
	for i := range uint32(pushes) {
		g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: pushFrame(i, 16<<10)}})
		flood()
	}
	if n := value(g.metrics.skipped); n != 0 {
		t.Errorf("%v pushes were skipped", n)
	}
	for next := uint32(0); next < pushes; {
		f, err := p.next()
		switch {
		case err != nil:
			t.Fatalf("after %d pushes: %v", next, err)
		case f.Command == protocol.CmdPush && f.RequestID == next:
			next++
		case f.Command != protocol.CmdSignal:
			t.Fatalf("got %v %d, wanted push %d", f.Command, f.RequestID, next)
		}
	}
	p.request(protocol.CmdPing, 1, "")
	for f := p.expectAny(); f.Command != protocol.CmdPong; f = p.expectAny() {
		if f.Command != protocol.CmdSignal {
			t.Fatalf("got %v: something is owed", f.Command)
		}
	}
}

func expectResync(t *testing.T, f protocol.Frame) {
	t.Helper()
	var e protocol.Events
	decode(t, f, &e)
	var r protocol.ResyncData
	if len(e.Events) != 1 || e.Events[0].Type != protocol.EventResync {
		t.Fatalf("got %+v", e)
	}
	if err := protocol.Unmarshal(e.Events[0].Data, &r); err != nil || r.MaxDelayMS != 3000 {
		t.Errorf("resync within %d, %v", r.MaxDelayMS, err)
	}
}

// One client stops reading and is closed at the hard bound; the others get everything, and memory stays flat.
func TestSlowReaderAmongOthers(t *testing.T) {
	others, rounds := 999, 200
	if raceEnabled {
		others = 300
	}
	o := testOptions(t)
	o.CloseTimeout = 10 * time.Second // the slow one reads again below
	o.StallTimeout = time.Hour
	g, l := start(t, o)
	peers, ids := crowd(t, g, l, others)
	slow := slowPeer(t, g, "slow")
	var slowID protocol.SessionID
	for _, id := range l.sessions() {
		if l.open[id].User == "slow" {
			slowID = id
		}
	}
	var readers sync.WaitGroup
	var received atomic.Int64
	for _, p := range peers {
		readers.Go(func() {
			for i := range uint32(rounds) {
				if f, err := p.next(); err != nil || f.RequestID != i {
					t.Errorf("got %d, %v, wanted %d", f.RequestID, err, i)
					return
				}
				received.Add(1)
			}
		})
	}
	before, most := heap(), int64(0)
	everybody := append(ids, slowID)
	slowFrame := pushFrame(0, 128<<10)
	for i := range uint32(rounds) {
		g.Deliver([]protocol.Delivery{
			{To: everybody, Frames: pushFrame(i, 200)},
			{To: []protocol.SessionID{slowID}, Frames: slowFrame, Replies: 1},
		})
		if i%50 == 49 { // when the others have it all, what is left is the slow one's
			eventually(t, "the others have it", func() bool { return received.Load() == int64(others)*int64(i+1) || t.Failed() })
			most = max(most, heap()-before)
		}
	}
	readers.Wait()
	if n := received.Load(); n != int64(others*rounds) {
		t.Errorf("%d of %d arrived", n, others*rounds)
	}
	// 25 MB were for the slow one. The bound is 4 MiB, which gnet's buffers may hold twice over; the readers have 4 KB each.
	if most > 16<<20+int64(others)*8<<10 {
		t.Errorf("the heap grew by %d bytes", most)
	}
	if n := value(g.metrics.kicks.WithLabelValues("slow")); n != 1 {
		t.Errorf("%v were kicked as slow", n)
	}
	for { // it reads again, too late: what the kernel and gnet have, and then KICK
		f, err := slow.next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Command == protocol.CmdKick {
			var k protocol.Kick
			decode(t, f, &k)
			if k.Reason != protocol.KickSlow || !k.Reason.MayReconnect() {
				t.Errorf("got %+v", k)
			}
			break
		}
	}
	slow.expectEnd()
	eventually(t, "logic is told", func() bool { return len(l.sessions()) == others })
}

// A client that takes nothing at all is closed in the end though only pushes wait for it, which stop at the soft bound.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SoftBound = 64 << 10
	o.StallTimeout = 300 * time.Millisecond
	o.CloseTimeout = 100 * time.Millisecond
	g, l := start(t, o)
	slowPeer(t, g, "ann")
	id := l.sessions()[0]
	eventually(t, "it is closed", func() bool {
		g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: pushFrame(0, 16<<10)}})
		onLoop(g, id, func(*session) {})
		return len(l.sessions()) == 0
	})
	if n := value(g.metrics.closed[reasonSlow]); n != 1 {
		t.Errorf("%v were closed as slow", n)
	}
}

// A client that reads slowly, but reads, is not stalled.
func TestSlowButMovingReaderStays(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SoftBound = 64 << 10
	o.StallTimeout = 200 * time.Millisecond
	g, l := start(t, o)
	p := slowPeer(t, g, "ann")
	id := l.sessions()[0]
	eventually(t, "deliveries are skipped", func() bool {
		g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: pushFrame(0, 16<<10)}})
		onLoop(g, id, func(*session) {})
		return value(g.metrics.skipped) > 0
	})
	for end := time.Now().Add(3 * o.StallTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f, err := p.next(); err != nil {
			t.Fatalf("got %v, %v", f.Command, err)
		}
		g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: pushFrame(0, 16<<10)}})
	}
	if len(l.sessions()) != 1 {
		t.Error("it was closed")
	}
}

// Replies that the gateway makes itself are bounded too: a client that pings and does not read.
func TestPingsWithoutReading(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.HardBound, o.SoftBound = 600<<10, 100<<10
	o.CloseTimeout = 100 * time.Millisecond
	g, l := start(t, o)
	p := slowPeer(t, g, "ann")
	var pings []byte
	for range 1000 {
		pings = protocol.AppendRawFrame(pings, protocol.CmdPing, 1, nil)
	}
	for { // until the server closes
		if _, err := p.c.Write(pings); err != nil {
			break
		}
	}
	eventually(t, "logic is told", func() bool { return len(l.sessions()) == 0 })
	if n := value(g.metrics.closed[reasonSlow]); n != 1 {
		t.Errorf("%v were closed as slow", n)
	}
}

// Deliveries without end must not keep the loop from reading.
func TestReadsGoOnUnderDeliveries(t *testing.T) {
	o := testOptions(t)
	o.Loops = 1
	g, l := start(t, o)
	peers, ids := crowd(t, g, l, 50)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					g.Deliver([]protocol.Delivery{{To: ids[1:], Frames: pushFrame(0, 50)}})
				}
			}
		})
	}
	for _, p := range peers[1:] {
		busy.Go(func() {
			b := make([]byte, 64<<10)
			for {
				if _, err := p.c.Read(b); err != nil {
					return
				}
			}
		})
	}
	for i := range uint32(50) {
		began := time.Now()
		peers[0].request(protocol.CmdPing, i, "")
		if f := peers[0].expect(protocol.CmdPong); f.RequestID != i {
			t.Fatalf("PONG for %d", f.RequestID)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("a PONG took %v", took)
		}
	}
	close(stop)
	for _, p := range peers[1:] {
		p.c.Close()
	}
	busy.Wait()
}
