package conn

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

// echoLogic answers each request with a reply of the same body, from the loop, with nothing else: what is measured is the gateway.
type echoLogic struct {
	g   *Gateway
	ids chan protocol.SessionID
	out []byte
}

func (l *echoLogic) Open(s *protocol.Session) {
	l.g.Welcome(s.ID, protocol.Welcome{})
	if l.ids != nil {
		l.ids <- s.ID
	}
}

func (l *echoLogic) Handle(id protocol.SessionID, frames []protocol.Frame) {
	l.out = l.out[:0]
	for i := range frames {
		l.out = protocol.AppendRawFrame(l.out, frames[i].Command.Reply(), frames[i].RequestID, frames[i].Body)
	}
	l.g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: l.out, Replies: len(frames)}})
}

func (l *echoLogic) Closed(protocol.SessionID) {}

func benchGateway(b *testing.B, l *echoLogic) *Gateway {
	o := testOptions(b)
	o.Loops = 1
	g, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	l.g = g
	if err := g.Start(l); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.Close() })
	return g
}

// BenchmarkEcho is requests a second through real sockets, client and server in one process: 50 connections, each
// with one, or 32, requests of 120 bytes under way.
func BenchmarkEcho(b *testing.B) {
	for _, depth := range []int{1, 32} {
		b.Run(fmt.Sprint("depth=", depth), func(b *testing.B) {
			const conns = 50
			g := benchGateway(b, &echoLogic{})
			peers := make([]*peer, conns)
			for i := range peers {
				peers[i], _ = signInAs(b, g, fmt.Sprint("u", i))
			}
			var batch []byte
			for i := range uint32(depth) {
				batch = protocol.AppendRawFrame(batch, protocol.CmdSend, i+1, make([]byte, 120))
			}
			before := value(g.metrics.writes)
			b.ResetTimer()
			var all sync.WaitGroup
			for _, p := range peers {
				all.Go(func() {
					in := make([]byte, len(batch))
					for range b.N/conns/depth + 1 {
						if _, err := p.c.Write(batch); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(p.r, in); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			n := float64((b.N/conns/depth + 1) * conns * depth)
			b.ReportMetric(n/b.Elapsed().Seconds(), "requests/s")
			b.ReportMetric((value(g.metrics.writes)-before)/n, "writes/request")
		})
	}
}

// BenchmarkFanOut is deliveries a second of one frame to 1,000 sessions, alone or eight at a time.
func BenchmarkFanOut(b *testing.B) {
	for _, batch := range []int{1, 8} {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
			const conns = 1000
			l := &echoLogic{ids: make(chan protocol.SessionID, conns)}
			g := benchGateway(b, l)
			frame := pushFrame(1, 120)
			rounds := b.N/conns/batch + 1
			var ids []protocol.SessionID
			var all sync.WaitGroup
			turn := make(chan struct{}, conns)
			for i := range conns {
				p, _ := signInAs(b, g, fmt.Sprint("u", i))
				ids = append(ids, <-l.ids)
				all.Go(func() {
					in := make([]byte, batch*len(frame))
					for range rounds {
						if _, err := io.ReadFull(p.r, in); err != nil {
							b.Error(err)
							return
						}
						turn <- struct{}{}
					}
				})
			}
			ds := make([]protocol.Delivery, batch)
			for i := range ds {
				ds[i] = protocol.Delivery{To: ids, Frames: frame}
			}
			before := value(g.metrics.writes)
			b.ResetTimer()
			for range rounds {
				g.Deliver(ds)
				for range conns {
					<-turn
				}
			}
			all.Wait()
			n := float64(rounds * conns * batch)
			b.ReportMetric(n/b.Elapsed().Seconds(), "deliveries/s")
			b.ReportMetric((value(g.metrics.writes)-before)/n, "writes/delivery")
		})
	}
}

// BenchmarkDeliver is the cost of a delivery to the one who delivers, without sockets.
func BenchmarkDeliver(b *testing.B) {
	g, err := New(testOptions(b))
	if err != nil {
		b.Fatal(err)
	}
	l := &loop{g: g, scheduled: true} // nobody is woken
	var ids []protocol.SessionID
	for range 1000 {
		s := &session{l: l, state: stateOpen}
		g.table.put(s)
		ids = append(ids, s.ID)
	}
	ds := []protocol.Delivery{{To: ids, Frames: pushFrame(1, 120)}}
	for i := 0; b.Loop(); i++ {
		g.Deliver(ds)
		if i%8 == 7 { // what a pass would do
			for _, s := range l.dirty {
				s.pending.release()
				s.pending, s.dirty = nil, false
			}
			l.dirty = l.dirty[:0]
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/session")
}

// TestMemoryOfIdleSessions prints what a signed-in connection takes while nothing moves, gnet's part included, and holds it
// to a bound. The clients are in another process, so that their memory does not count.
func TestMemoryOfIdleSessions(t *testing.T) {
	if addr := os.Getenv("PARLEY_TEST_IDLE"); addr != "" {
		holdIdle(addr)
		return
	}
	n := 2000
	if raceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	if s := os.Getenv("PARLEY_TEST_IDLE_CONNS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	o := testOptions(t)
	o.MaxHandshakes = n
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l := &echoLogic{g: g}
	if err := g.Start(l); err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	first, _ := signInAs(t, g, "first") // what is made once
	before := heap()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOfIdleSessions$", "-test.count=1")
	cmd.Env = append(os.Environ(), "PARLEY_TEST_IDLE="+g.Addr().String(), "PARLEY_TEST_IDLE_CONNS="+strconv.Itoa(n))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	eventually(t, "all are signed in", func() bool { return value(g.metrics.sessions) == float64(n+1) })
	each := (heap() - before) / int64(n)
	t.Logf("%d bytes for each of %d idle connections", each, n)
	if each > 750 {
		t.Errorf("%d bytes for each of %d idle connections", each, n)
	}
	first.c.Close()
}

// holdIdle signs in many clients and holds them until its input ends.
func holdIdle(addr string) {
	n, _ := strconv.Atoi(os.Getenv("PARLEY_TEST_IDLE_CONNS"))
	var conns []net.Conn
	for i := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		user := fmt.Sprintf("user-%06d", i)
		tok, err := Mint(testSecret, user, "", "", time.Hour)
		if err != nil {
			panic(err)
		}
		_, _ = c.Write(helloFrame(tok, "device-of-"+user))
		head := make([]byte, 4)
		if _, err := io.ReadFull(c, head); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = io.ReadFull(c, make([]byte, binary.BigEndian.Uint32(head)))
		conns = append(conns, c)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(conns)
}
