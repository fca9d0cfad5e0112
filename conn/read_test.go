package conn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

// header is a frame's header as a hostile client may write it.
func header(length uint32, version, flags byte, cmd protocol.Command, id uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, length)
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(cmd))
	return binary.BigEndian.AppendUint32(b, id)
}

func TestFramesCutAtEveryByte(t *testing.T) {
	g, l := start(t, testOptions(t))
	stream := protocol.AppendRawFrame(nil, protocol.CmdSend, 1, []byte("first"))
	stream = protocol.AppendRawFrame(stream, protocol.CmdPing, 2, nil)
	stream = protocol.AppendRawFrame(stream, protocol.CmdPushAck, 0, nil)
	stream = protocol.AppendRawFrame(stream, protocol.CmdSync, 3, bytes.Repeat([]byte("x"), 40))
	for cut := 0; cut <= len(stream); cut++ {
		p, _ := signInAs(t, g, "ann")
		id := l.sessions()[0]
		p.write(stream[:cut])
		if cut > 0 {
			eventually(t, "the first part is read", func() bool { return buffered(g, id) == cut-wholeFrames(stream[:cut]) })
		}
		p.write(stream[cut:])
		if f := p.expect(protocol.CmdPong); f.RequestID != 2 {
			t.Fatalf("cut at %d: PONG for %d", cut, f.RequestID)
		}
		eventually(t, fmt.Sprint("all frames arrive, cut at ", cut), func() bool { return len(l.of(id).ids) == 3 })
		if a := l.of(id); !slices.Equal(a.ids, []uint32{1, 0, 3}) || string(a.bodies[0]) != "first" || len(a.bodies[2]) != 40 {
			t.Fatalf("cut at %d: got %+v", cut, a)
		}
		p.c.Close()
		eventually(t, "it is gone", func() bool { return len(l.sessions()) == 0 })
	}
}

// wholeFrames is how many bytes of b are whole frames.
func wholeFrames(b []byte) (n int) {
	for {
		_, used, err := protocol.Split(b[n:], 1<<20)
		if err != nil || used == 0 {
			return n
		}
		n += used
	}
}

// buffered asks the loop how many bytes wait in front of the session's parser; -1 when it is gone.
func buffered(g *Gateway, id protocol.SessionID) int {
	n := -1
	onLoop(g, id, func(s *session) { n = s.c.InboundBuffered() })
	return n
}

func TestHelloCutAtEveryByte(t *testing.T) {
	g, _ := start(t, testOptions(t))
	hello := helloFrame(tokenOf(t, "ann"), "d")
	for cut := 1; cut < len(hello); cut += 7 {
		p := dial(t, g)
		p.write(hello[:cut])
		var s *session
		eventually(t, "it is there", func() bool {
			all := g.table.all()
			if len(all) == 1 {
				s = all[0]
			}
			return len(all) == 1 && buffered(g, s.ID) == cut
		})
		p.write(hello[cut:])
		p.welcome()
		p.c.Close()
		eventually(t, "it is gone", func() bool { return len(g.table.all()) == 0 })
	}
}

func TestTrickledByteByByte(t *testing.T) {
	g, l := start(t, testOptions(t))
	l.handle = l.echo
	p := dial(t, g)
	stream := helloFrame(tokenOf(t, "ann"), "d")
	stream = protocol.AppendRawFrame(stream, protocol.CmdSend, 9, []byte("slowly"))
	for _, b := range stream {
		p.write([]byte{b})
	}
	p.welcome()
	if f := p.expect(protocol.CmdSendAck); f.RequestID != 9 || string(f.Body) != "slowly" {
		t.Errorf("got %+v", f)
	}
}

// A large frame that comes in small pieces must not be looked at, or copied, anew for each.
func TestPartialFrameIsNotLookedAtAgain(t *testing.T) {
	g, l := start(t, testOptions(t))
	p, _ := signInAs(t, g, "ann")
	id := l.sessions()[0]
	p.write(header(8+60000, 1, 0, protocol.CmdSend, 1))
	eventually(t, "the header is read", func() bool { return buffered(g, id) == protocol.HeaderSize })
	onLoop(g, id, func(s *session) {
		if s.need != protocol.HeaderSize+60000 {
			t.Errorf("need is %d", s.need)
		}
	})
	p.write(make([]byte, 60000))
	eventually(t, "it arrives", func() bool { return len(l.of(id).ids) == 1 })
}

func TestFramesThatEndTheConnection(t *testing.T) {
	second := helloFrame(tokenOf(t, "ann"), "d")
	for _, c := range []struct {
		name string
		send []byte
		code protocol.ErrorCode
		id   uint32
	}{
		{"length 7", header(7, 1, 0, protocol.CmdSend, 5), protocol.CodeBadFrame, 0},
		{"length 0", header(0, 1, 0, protocol.CmdSend, 5), protocol.CodeBadFrame, 0},
		{"length bomb", header(0xFFFFFFFF, 1, 0, protocol.CmdSend, 6), protocol.CodeTooLarge, 6},
		{"one byte over the limit", header(8+64<<10+1, 1, 0, protocol.CmdSend, 6), protocol.CodeTooLarge, 6},
		{"wrong version", header(8, 2, 0, protocol.CmdSend, 7), protocol.CodeUnsupportedVersion, 0},
		{"flags", header(8, 1, 1, protocol.CmdSend, 8), protocol.CodeBadFrame, 8},
		{"second HELLO", second, protocol.CodeBadFrame, 1},
		{"request id 0", header(8, 1, 0, protocol.CmdSend, 0), protocol.CodeBadFrame, 0},
		{"not this protocol", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), protocol.CodeUnsupportedVersion, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, l := start(t, testOptions(t))
			l.handle = l.echo
			p, _ := signInAs(t, g, "ann")
			before := protocol.AppendRawFrame(nil, protocol.CmdSend, 99, nil) // a good frame before it is still handled
			p.write(append(before, c.send...))
			p.expect(protocol.CmdSendAck)
			p.expectError(c.code, c.id)
			p.expectEnd()
		})
	}
}

func TestBodyOfExactlyTheLimit(t *testing.T) {
	g, l := start(t, testOptions(t))
	p, _ := signInAs(t, g, "ann")
	id := l.sessions()[0]
	p.write(protocol.AppendRawFrame(nil, protocol.CmdSend, 1, make([]byte, 64<<10)))
	eventually(t, "it arrives", func() bool { return len(l.of(id).ids) == 1 && len(l.of(id).bodies[0]) == 64<<10 })
}

func TestFirstFrame(t *testing.T) {
	good := tokenOf(t, "ann")
	hello := func(h protocol.Hello) []byte { return protocol.AppendFrame(nil, protocol.CmdHello, 1, &h) }
	raw := func(body []byte) []byte { return protocol.AppendRawFrame(nil, protocol.CmdHello, 1, body) }
	long := string(bytes.Repeat([]byte("d"), 129))
	for _, c := range []struct {
		name string
		send []byte
		code protocol.ErrorCode
		id   uint32
	}{
		{"SEND", protocol.AppendRawFrame(nil, protocol.CmdSend, 4, nil), protocol.CodeUnauthenticated, 4},
		{"PING", protocol.AppendRawFrame(nil, protocol.CmdPing, 4, nil), protocol.CodeUnauthenticated, 4},
		{"no token", hello(protocol.Hello{DeviceID: "d", Platform: 1}), protocol.CodeUnauthenticated, 1},
		{"bad token", hello(protocol.Hello{Token: "a.b.c", DeviceID: "d", Platform: 1}), protocol.CodeUnauthenticated, 1},
		{"no device", hello(protocol.Hello{Token: good, Platform: 1}), protocol.CodeInvalidArgument, 1},
		{"long device", hello(protocol.Hello{Token: good, DeviceID: long, Platform: 1}), protocol.CodeInvalidArgument, 1},
		{"platform 0", hello(protocol.Hello{Token: good, DeviceID: "d"}), protocol.CodeInvalidArgument, 1},
		{"platform 9", hello(protocol.Hello{Token: good, DeviceID: "d", Platform: 9}), protocol.CodeInvalidArgument, 1},
		{"request id 0", protocol.AppendFrame(nil, protocol.CmdHello, 0, &protocol.Hello{Token: good, DeviceID: "d", Platform: 1}), protocol.CodeBadFrame, 0},
		{"over 8 KiB", header(8+8<<10+1, 1, 0, protocol.CmdHello, 1), protocol.CodeTooLarge, 1},
		{"length bomb", header(0xFFFFFFFF, 1, 0, protocol.CmdHello, 1), protocol.CodeTooLarge, 1},
		{"wrong version", header(8, 3, 0, protocol.CmdHello, 1), protocol.CodeUnsupportedVersion, 0},
		{"array of 4 billion", raw([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}), protocol.CodeBadFrame, 1},
		{"string of 4 billion", raw([]byte{0x91, 0xdb, 0xff, 0xff, 0xff, 0xff}), protocol.CodeBadFrame, 1},
		{"nested arrays", raw(append([]byte{0x97, 0xa0, 0xa0, 0, 0xa0, 0, 0}, bytes.Repeat([]byte{0x91}, 8000)...)), protocol.CodeBadFrame, 1},
		{"no array", raw([]byte{0xc3}), protocol.CodeBadFrame, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, l := start(t, testOptions(t))
			p := dial(t, g)
			p.write(append(c.send, "and more, which nobody reads"...))
			p.expectError(c.code, c.id)
			p.expectEnd()
			if l.opens != 0 {
				t.Error("logic was asked")
			}
		})
	}
}

// An ERROR is worth nothing if the reset that follows unread bytes takes it away from the client: it must arrive though
// the client goes on sending.
func TestErrorArrivesThoughMoreIsSent(t *testing.T) {
	g, _ := start(t, testOptions(t))
	for range 20 {
		p, _ := signInAs(t, g, "ann")
		p.write(header(8+1<<20, 1, 0, protocol.CmdSend, 1))
		for range 16 {
			if _, err := p.c.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}
		p.expectError(protocol.CodeTooLarge, 1)
		p.c.Close()
	}
}

func TestEmptyPingDoesNotEatWhatFollows(t *testing.T) {
	g, l := start(t, testOptions(t))
	p, _ := signInAs(t, g, "ann")
	id := l.sessions()[0]
	var b []byte
	for i := uint32(1); i <= 10; i++ {
		b = protocol.AppendRawFrame(b, protocol.CmdPing, i, nil)
		b = protocol.AppendRawFrame(b, protocol.CmdPushAck, i, nil)
	}
	p.write(protocol.AppendRawFrame(b, protocol.CmdPing, 11, []byte("a body is fine too")))
	for i := uint32(1); i <= 11; i++ {
		if f := p.expect(protocol.CmdPong); f.RequestID != i {
			t.Fatalf("PONG for %d, wanted %d", f.RequestID, i)
		}
	}
	if a := l.of(id); !slices.Equal(a.ids, []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
		t.Errorf("got %v", a.ids)
	}
}

func TestPipelinedFramesArriveInOrder(t *testing.T) {
	const n = 2000
	o := testOptions(t)
	o.MaxInflight = n
	g, l := start(t, o)
	p, _ := signInAs(t, g, "ann")
	id := l.sessions()[0]
	var b []byte
	for i := uint32(1); i <= n; i++ {
		b = protocol.AppendRawFrame(b, protocol.CmdSend, i, make([]byte, i%300))
	}
	for len(b) > 0 { // in pieces of odd sizes
		k := min(len(b), 1+len(b)%7919)
		p.write(b[:k])
		b = b[k:]
	}
	eventually(t, "all arrive", func() bool { return len(l.of(id).ids) == n })
	for i, got := range l.of(id).ids {
		if got != uint32(i+1) || len(l.of(id).bodies[i]) != (i+1)%300 {
			t.Fatalf("frame %d is %d", i+1, got)
		}
	}
}

func TestFramesBeforeWelcomeWait(t *testing.T) {
	g, l := start(t, testOptions(t))
	let := make(chan struct{})
	l.onOpen = func(s *protocol.Session) {
		<-let
		g.Welcome(s.ID, protocol.Welcome{})
	}
	p := dial(t, g)
	b := helloFrame(tokenOf(t, "ann"), "d")
	for i := uint32(1); i <= 20; i++ {
		b = protocol.AppendRawFrame(b, protocol.CmdSend, i, []byte("early"))
	}
	p.write(b)
	eventually(t, "Open is called", func() bool { return len(l.sessions()) == 1 })
	id := l.sessions()[0]
	p.write(protocol.AppendRawFrame(nil, protocol.CmdSend, 21, nil))
	eventually(t, "all is buffered", func() bool { return buffered(g, id) == 20*17+12 })
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: protocol.AppendRawFrame(nil, protocol.CmdPush, 0, nil)}}) // is skipped
	if len(l.of(id).ids) != 0 {
		t.Error("frames were handled before WELCOME")
	}
	close(let)
	p.welcome()
	eventually(t, "the frames are handled", func() bool { return len(l.of(id).ids) == 21 })
	p.request(protocol.CmdPing, 1, "")
	p.expect(protocol.CmdPong) // and no PUSH before
}

func TestTooMuchBeforeWelcome(t *testing.T) {
	g, l := start(t, testOptions(t))
	let := make(chan struct{})
	l.onOpen = func(s *protocol.Session) { <-let }
	p := dial(t, g)
	p.write(helloFrame(tokenOf(t, "ann"), "d"))
	eventually(t, "Open is called", func() bool { return len(l.sessions()) == 1 })
	go func() {
		for { // until the server closes
			if _, err := p.c.Write(protocol.AppendRawFrame(nil, protocol.CmdSend, 1, make([]byte, 4000))); err != nil {
				return
			}
		}
	}()
	p.expectError(protocol.CodeBadFrame, 0)
	p.c.Close()
	eventually(t, "it is closed", func() bool { return g.conns.Load() == 0 })
	if l.closes != 0 {
		t.Error("Closed came before Open returned")
	}
	close(let)
	eventually(t, "Closed is called", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.closes == 1 })
}

func TestInFlight(t *testing.T) {
	o := testOptions(t)
	o.MaxInflight = 3
	g, l := start(t, o)
	p, _ := signInAs(t, g, "ann")
	id := l.sessions()[0]
	for i := uint32(1); i <= 5; i++ {
		p.request(protocol.CmdSend, i, "")
		p.request(protocol.CmdPushAck, 0, "")
	}
	p.expectError(protocol.CodeRateLimited, 4)
	p.expectError(protocol.CodeRateLimited, 5)
	if a := l.of(id); len(a.ids) != 8 {
		t.Errorf("logic got %v", a.ids)
	}
	reply := protocol.AppendRawFrame(nil, protocol.CmdSendAck, 1, nil)
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: reply, Replies: 1}})
	p.expect(protocol.CmdSendAck)
	p.request(protocol.CmdSend, 6, "")
	p.request(protocol.CmdSend, 7, "")
	p.expectError(protocol.CodeRateLimited, 7)
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{id}, Frames: reply, Replies: 100}}) // more than there are: the floor is 0
	p.expect(protocol.CmdSendAck)
	for i := uint32(10); i < 13; i++ {
		p.request(protocol.CmdSend, i, "")
	}
	p.request(protocol.CmdSend, 13, "")
	p.expectError(protocol.CodeRateLimited, 13)
}

// Hostile clients may each make the gateway hold a partial frame, and no more.
func TestHostileClientsTakeNoMemory(t *testing.T) {
	g, _ := start(t, testOptions(t))
	before := heap()
	var conns []net.Conn
	for range 300 {
		p := dial(t, g)
		p.write(header(8+8000, 1, 0, protocol.CmdHello, 1)) // says 8 KB, sends none of it
		conns = append(conns, p.c)
	}
	eventually(t, "all are read", func() bool {
		n := 0
		for _, s := range g.table.all() {
			if buffered(g, s.ID) == protocol.HeaderSize {
				n++
			}
		}
		return n == len(conns)
	})
	if grown := heap() - before; grown > 300*6000 {
		t.Errorf("300 connections that claim 8 KB took %d bytes", grown)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// onLoop runs f on the session's loop and waits for it; it does nothing when the session is gone.
func onLoop(g *Gateway, id protocol.SessionID, f func(*session)) {
	s := g.table.get(id)
	if s == nil {
		return
	}
	done := make(chan struct{})
	s.l.post(func() {
		defer close(done)
		if g.table.get(id) == s {
			f(s)
		}
	})
	select {
	case <-done:
	case <-time.After(patience):
		panic("the loop stands still")
	}
}
