//go:build linux

package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

// names are tokens of the fake: the user's own name.
func names() *Tokens {
	return &Tokens{fresh: true, of: func(id uint32) (string, error) { return fmt.Sprintf("user-%d", id), nil }}
}

func fakeOptions(s *fake) ChatOptions {
	return ChatOptions{
		Addr: s.addr(), Tokens: names(), Conns: 4, Window: 2, Size: 100, Duration: 100 * time.Millisecond, Drain: 20 * time.Second, Loops: 1,
	}
}

func chat(t *testing.T, o ChatOptions) *ChatResult {
	t.Helper()
	r, err := Chat(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// chatPast runs a chat against a server with the fault, for as long as it takes to get well past it. renew makes the fault anew.
func chatPast(t *testing.T, renew func() func(*fake, *fakeMessage) []out, incomplete bool) *ChatResult {
	t.Helper()
	return chatUntil(t, renew, incomplete, func(s *fake, _ *ChatResult) bool { return s.zero > 20 })
}

func chatUntil(t *testing.T, renew func() func(*fake, *fakeMessage) []out, incomplete bool, enough func(*fake, *ChatResult) bool) *ChatResult {
	t.Helper()
	for d := 200 * time.Millisecond; ; d *= 2 {
		s := startFake(t, renew())
		o := fakeOptions(s)
		o.Duration = d
		if incomplete {
			o.Drain = 1500 * time.Millisecond // it is waited for in vain
		}
		r := chat(t, o)
		s.mu.Lock()
		done := enough(s, r)
		s.mu.Unlock()
		if done || d > 5*time.Second {
			return r
		}
	}
}

// always is a fault without a memory.
func always(f func(*fake, *fakeMessage) []out) func() func(*fake, *fakeMessage) []out {
	return func() func(*fake, *fakeMessage) []out { return f }
}

func TestChatWithAnHonestServer(t *testing.T) {
	t.Parallel()
	s := startFake(t, nil)
	o := fakeOptions(s)
	o.Conns, o.Loops, o.Warmup = 10, 2, 50*time.Millisecond
	var lines strings.Builder
	o.Progress = &lines
	o.Duration = 1200 * time.Millisecond
	r := chat(t, o)
	if !r.Passed() || len(r.Errors) > 0 {
		t.Fatalf("checks %+v, errors %v", r.Checks, r.Errors)
	}
	s.mu.Lock()
	sends := uint64(s.sends)
	s.mu.Unlock()
	if sends == 0 || r.SentTotal != sends || r.AckedTotal != sends || r.DeliveredTotal != sends {
		t.Errorf("server saw %d sends; sent %d, acked %d, delivered %d", sends, r.SentTotal, r.AckedTotal, r.DeliveredTotal)
	}
	if r.Acked == 0 || r.Acked >= sends || r.Delivered == 0 || r.Ack.Count == 0 || r.Deliver.Count == 0 || r.SignIn.Count != 10 {
		t.Errorf("measured: %+v", r)
	}
	if !strings.Contains(lines.String(), "acked/s") {
		t.Errorf("progress: %q", lines.String())
	}
}

// Each fault of a server must show, as itself and as nothing else.
func TestChatFindsTheFault(t *testing.T) {
	tests := []struct {
		name  string
		fault func() func(*fake, *fakeMessage) []out
		want  Checks
	}{
		{"a push is dropped", always(atMessage(func(s *fake, m *fakeMessage) []out {
			s.number(m)
			return []out{m.ack()}
		})), Checks{Lost: 1, Gaps: 1}},
		{"a push comes twice", always(atMessage(func(s *fake, m *fakeMessage) []out {
			return append(s.honest(m), m.push())
		})), Checks{Duplicates: 1}},
		{"a message is stored twice", always(atMessage(func(s *fake, m *fakeMessage) []out {
			first := s.honest(m)
			s.number(m)
			return append(first, m.push())
		})), Checks{Duplicates: 1, Gaps: 1}},
		{"two pushes change places", swapped, Checks{Order: 1}},
		{"an ack comes after a later push", lateAck, Checks{Order: 1}},
		{"the content changes", always(atMessage(func(s *fake, m *fakeMessage) []out {
			m.message.Content[99] ^= 1
			return s.honest(m)
		})), Checks{Corrupt: 1}},
		{"the content is cut", always(atMessage(func(s *fake, m *fakeMessage) []out {
			m.message.Content = m.message.Content[:50]
			return s.honest(m)
		})), Checks{Corrupt: 1}},
		{"a seq is skipped", always(atMessage(func(s *fake, m *fakeMessage) []out {
			s.number(m)
			return s.honest(m)
		})), Checks{Gaps: 2}},
		{"a seq is used twice", always(atMessage(func(s *fake, m *fakeMessage) []out {
			s.seqs[m.message.ConversationID]--
			return s.honest(m)
		})), Checks{Reused: 2}},
		{"the two sides see another order", otherView, Checks{Views: 1}},
		{"a message goes to somebody else", always(atMessage(func(s *fake, m *fakeMessage) []out {
			s.number(m)
			return []out{m.ack(), m.pushTo("user-2")}
		})), Checks{Misdelivered: 1, Lost: 1, Gaps: 1}},
		{"an ack comes twice", always(atMessage(func(s *fake, m *fakeMessage) []out {
			return append(s.honest(m), m.ack())
		})), Checks{Stray: 1}},
		{"an ack is dropped", always(atMessage(func(s *fake, m *fakeMessage) []out {
			s.number(m)
			return []out{m.push()}
		})), Checks{Unanswered: 1, Gaps: 1}},
		{"a message that nobody sent", always(atMessage(func(s *fake, m *fakeMessage) []out {
			outs := s.honest(m)
			invented := *m
			id := make([]byte, idLen)
			msgID{sender: 0, index: 1 << 30}.put(id)
			invented.message.ClientMsgID = string(id)
			return append(outs, invented.push())
		})), Checks{Corrupt: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := chatPast(t, tt.fault, tt.want.Lost+tt.want.Unanswered > 0)
			if r.Checks != tt.want || r.Passed() {
				t.Errorf("checks %+v, want %+v", r.Checks, tt.want)
			}
			if len(r.Errors) > 0 || r.ConnsLost > 0 {
				t.Errorf("errors %v, %d lost", r.Errors, r.ConnsLost)
			}
		})
	}
}

// swapped holds one push back until the next of the same sender has gone.
func swapped() func(*fake, *fakeMessage) []out {
	var held *out
	return func(s *fake, m *fakeMessage) []out {
		outs := s.honest(m)
		switch {
		case m.is(0, 5):
			held = &outs[1]
			return outs[:1]
		case m.id.sender == 0 && held != nil:
			outs = append(outs, *held)
			held = nil
		}
		return outs
	}
}

// lateAck holds one ack back until the partner's next message was pushed.
func lateAck() func(*fake, *fakeMessage) []out {
	var held *out
	return func(s *fake, m *fakeMessage) []out {
		outs := s.honest(m)
		switch {
		case m.is(0, 5):
			held = &outs[0]
			return outs[1:]
		case m.id.sender == 1 && held != nil:
			outs = append(outs, *held)
			held = nil
		}
		return outs
	}
}

// otherView tells each side of a conversation that its own message came first.
func otherView() func(*fake, *fakeMessage) []out {
	var first *fakeMessage
	return func(s *fake, m *fakeMessage) []out {
		switch {
		case m.is(0, 5):
			first = m
			return nil
		case first != nil && m.id.sender == 1:
			a, b := first, m
			first = nil
			s.number(a)
			s.number(b)
			outs := []out{a.ack(), b.push()} // for 0: a, b
			a.message.Seq, b.message.Seq = b.message.Seq, a.message.Seq
			outs[0].to, outs[1].to = a.message.Sender, a.message.Sender
			return append(outs, b.ack(), a.push()) // for 1: b, a
		case first != nil && m.id.sender == 0:
			return next(s, m, &first)
		}
		return s.honest(m)
	}
}

// next is for a second message of the sender while its first one waits: both are done at once, honestly, and the next one waits.
func next(s *fake, m *fakeMessage, first **fakeMessage) []out {
	outs := s.honest(*first)
	*first = m
	return outs
}

// What the protocol allows must not be taken for a fault.
func TestChatAllows(t *testing.T) {
	tests := []struct {
		name   string
		fault  func() func(*fake, *fakeMessage) []out
		errors map[string]uint64
	}{
		{"an error, not stored", always(atMessage(func(_ *fake, m *fakeMessage) []out {
			return []out{m.refuse(&protocol.Error{Code: protocol.CodeUnavailable, RetryAfterMS: 20})}
		})), map[string]uint64{"unavailable": 1}},
		{"an error, stored all the same", always(atMessage(func(s *fake, m *fakeMessage) []out {
			s.number(m)
			return []out{m.push(), m.refuse(&protocol.Error{Code: protocol.CodeInternal})}
		})), map[string]uint64{"internal": 1}},
		{"acks without a seq, then one's own push", always(func(s *fake, m *fakeMessage) []out {
			s.number(m)
			early := *m
			early.message.Seq = 0
			return []out{early.ack(), m.push(), m.pushTo(m.message.Sender)}
		}), nil},
		{"one's own push before an ack without a seq", always(func(s *fake, m *fakeMessage) []out {
			s.number(m)
			own := m.pushTo(m.message.Sender)
			m.message.Seq = 0
			ack := m.ack()
			m.message.Seq = s.seqs[m.message.ConversationID]
			return []out{m.push(), own, ack}
		}), nil},
		{"both an ack with a seq and one's own push", always(func(s *fake, m *fakeMessage) []out {
			return append(s.honest(m), m.pushTo(m.message.Sender))
		}), nil},
		{"commands and events of later versions", always(func(s *fake, m *fakeMessage) []out {
			outs := s.honest(m)
			return append(outs, out{m.target, protocol.AppendRawFrame(nil, 999, 0, []byte{0x91, 0x01})},
				out{m.target, protocol.AppendFrame(nil, protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{{Type: 200}}})})
		}), nil},
		{"many messages in one push", merged, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := chatPast(t, tt.fault, false)
			if !r.Passed() {
				t.Errorf("checks %+v", r.Checks)
			}
			if fmt.Sprint(r.Errors) != fmt.Sprint(faults(tt.errors)) {
				t.Errorf("errors %v, want %v", r.Errors, tt.errors)
			}
			if r.AckedTotal < 20 {
				t.Errorf("only %d acked: it got stuck", r.AckedTotal)
			}
		})
	}
}

// merged puts both messages of a sender's window into one PUSH, with the acks before them.
func merged() func(*fake, *fakeMessage) []out {
	waiting := map[string]*fakeMessage{}
	return func(s *fake, m *fakeMessage) []out {
		s.number(m)
		before := waiting[m.target]
		// The seqs of a conversation must reach each connection in order, so both have to be the sender's, next to each other.
		if before == nil && m.id.index == 0 && m.id.sender%2 == 0 && s.seqs[m.message.ConversationID] == 1 {
			waiting[m.target] = m
			return nil
		}
		if before == nil {
			return []out{m.ack(), m.push()}
		}
		delete(waiting, m.target)
		push := protocol.Push{Messages: []protocol.Message{before.message, m.message}}
		return []out{before.ack(), m.ack(), {m.target, protocol.AppendFrame(nil, protocol.CmdPush, 1, &push)}}
	}
}

// Pushes that were skipped with a word of it are pulled, and are not lost.
func TestChatPullsAfterResync(t *testing.T) {
	t.Parallel()
	r := chatPast(t, always(func(s *fake, m *fakeMessage) []out {
		if m.id.sender != 0 || m.id.index < 5 || m.id.index > 14 {
			return s.honest(m)
		}
		s.number(m)
		return []out{m.ack(), resync(m.target)}
	}), false)
	if !r.Passed() || r.Fetched != 10 || r.Resyncs != 10 {
		t.Errorf("checks %+v, %d fetched after %d resyncs", r.Checks, r.Fetched, r.Resyncs)
	}
	r = chatPast(t, always(atMessage(func(s *fake, m *fakeMessage) []out {
		s.number(m)
		log := s.log[m.message.ConversationID]
		s.log[m.message.ConversationID] = log[:len(log)-1] // it is nowhere
		return []out{m.ack(), resync(m.target)}
	})), true)
	if want := (Checks{Lost: 1, Gaps: 1}); r.Checks != want || r.Fetched != 0 {
		t.Errorf("checks %+v, want %+v; %d fetched", r.Checks, want, r.Fetched)
	}
}

func TestChatCountsWhatEndsConnections(t *testing.T) {
	r := chatUntil(t, always(atMessage(func(_ *fake, m *fakeMessage) []out {
		return []out{{m.message.Sender, protocol.AppendFrame(nil, protocol.CmdKick, 0, &protocol.Kick{Reason: protocol.KickSlow, Message: "slow"})}}
	})), false, func(_ *fake, r *ChatResult) bool { return r.ConnsLost > 0 })
	if r.ConnsLost != 1 || r.Passed() || r.Errors["connection lost: KICK 4 slow"] != 1 {
		t.Errorf("%d lost, errors %v", r.ConnsLost, r.Errors)
	}
	if !r.Checks.Passed() {
		t.Errorf("checks %+v: a lost connection excuses what it did not see", r.Checks)
	}
}

func TestChatSendsPushAcks(t *testing.T) {
	var mu sync.Mutex
	got := 0
	s := startFake(t, nil)
	o := fakeOptions(s)
	o.Addr = tap(t, s.addr(), func(f protocol.Frame) {
		mu.Lock()
		defer mu.Unlock()
		if f.Command == protocol.CmdPushAck && f.RequestID == 1 {
			got++
		}
	})
	o.PushAck = true
	r := chat(t, o)
	mu.Lock()
	defer mu.Unlock()
	if uint64(got) < r.Delivered || got == 0 {
		t.Errorf("%d PUSH_ACKs for %d deliveries", got, r.Delivered)
	}
}

// tap forwards connections to addr and shows what clients send.
func tap(t *testing.T, addr string, see func(protocol.Frame)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", addr)
			if err != nil {
				c.Close()
				return
			}
			wg.Go(func() { io.Copy(c, up); c.Close() })
			wg.Go(func() {
				defer up.Close()
				r := io.TeeReader(c, up)
				for {
					f, err := readFrame(r)
					if err != nil {
						return
					}
					see(f)
				}
			})
		}
	})
	return l.Addr().String()
}

func TestChatRefusesWhatTheServerDoesNotAllow(t *testing.T) {
	s := startFake(t, nil)
	o := fakeOptions(s)
	o.Window = 33
	if _, err := Chat(context.Background(), o); err == nil || !strings.Contains(err.Error(), "window 33 is over the server's max_inflight of 32") {
		t.Errorf("window: %v", err)
	}
	o = fakeOptions(s)
	o.Size = protocol.DefaultMaxBody
	if _, err := Chat(context.Background(), o); err == nil || !strings.Contains(err.Error(), "max_body") {
		t.Errorf("size: %v", err)
	}
	wide := startFake(t, nil)
	wide.mu.Lock()
	wide.welcome.MaxDown = 16 << 20
	wide.mu.Unlock()
	if _, err := Chat(context.Background(), fakeOptions(wide)); err == nil || !strings.Contains(err.Error(), "max_down") {
		t.Errorf("max_down: %v", err)
	}
	o = fakeOptions(s)
	o.Tokens = &Tokens{of: func(id uint32) (string, error) {
		if id == 2 {
			return "bad", nil
		}
		return fmt.Sprint("user-", id), nil
	}}
	_, err := Chat(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), "3 of 4") || !strings.Contains(err.Error(), "unauthenticated") {
		t.Errorf("token: %v", err)
	}
	for _, change := range []func(*ChatOptions){
		func(o *ChatOptions) { o.Conns = 3 }, func(o *ChatOptions) { o.Conns = 0 }, func(o *ChatOptions) { o.Window = 0 },
		func(o *ChatOptions) { o.Window = MaxWindow + 1 }, func(o *ChatOptions) { o.Rate = -1 }, func(o *ChatOptions) { o.Size = -1 },
		func(o *ChatOptions) { o.Duration = 0 }, func(o *ChatOptions) { o.Tokens = nil }, func(o *ChatOptions) { o.Addr = "nowhere" },
	} {
		o := fakeOptions(s)
		change(&o)
		if _, err := Chat(context.Background(), o); err == nil {
			t.Errorf("%+v was not refused", o)
		}
	}
}

func TestChatEndsWhenInterrupted(t *testing.T) {
	s := startFake(t, nil)
	o := fakeOptions(s)
	o.Duration = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := Chat(ctx, o); err == nil {
		t.Error("no error")
	}
}

// In an open loop the server's stall is felt by all messages that fell due in it, not only by those that could be sent.
func TestOpenLoopOmitsNothing(t *testing.T) {
	t.Parallel()
	const stall = 400 * time.Millisecond
	s := startFake(t, func(s *fake, m *fakeMessage) []out {
		if m.is(0, 100) {
			time.Sleep(stall) // the server's lock is held: everybody waits
		}
		return s.honest(m)
	})
	o := fakeOptions(s)
	o.Conns, o.Window, o.Rate, o.Duration, o.Drain = 2, 1, 1000, time.Second, 5*time.Second
	r := chat(t, o)
	if !r.Passed() {
		t.Fatalf("checks %+v", r.Checks)
	}
	if due := r.SentTotal + r.Behind; due < 900 || due > 1200 {
		t.Errorf("%d messages fell due in 1 s at 1000/s", due)
	}
	for name, l := range map[string]Latency{"ack": r.Ack, "deliver": r.Deliver} {
		if l.P90 < (stall/2).Microseconds() || l.Max < (stall*9/10).Microseconds() {
			t.Errorf("%s: %+v: 400 of 1000 messages fell due in the stall", name, l)
		}
	}
}

// What could not be sent in time is told.
func TestOpenLoopTellsThatItIsBehind(t *testing.T) {
	t.Parallel()
	s := startFake(t, func(s *fake, m *fakeMessage) []out {
		time.Sleep(5 * time.Millisecond)
		return s.honest(m)
	})
	o := fakeOptions(s)
	o.Conns, o.Window, o.Rate, o.Duration, o.Drain = 2, 1, 2000, 500*time.Millisecond, 5*time.Second
	if r := chat(t, o); r.Behind < 500 {
		t.Errorf("behind by %d; the server can do 200/s of 2000/s", r.Behind)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := startFake(t, nil)
	s.mu.Lock()
	s.welcome.HeartbeatS = 1
	s.mu.Unlock()
	r, err := Connect(context.Background(), ConnectOptions{Addr: s.addr(), Tokens: names(), Conns: 5, Hold: 1200 * time.Millisecond, Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Passed() || r.Open != 5 || r.Pongs < 5 || r.SignIn.Count != 5 || r.Memory != nil {
		t.Errorf("%+v", r)
	}
}

func TestConnectCountsFailures(t *testing.T) {
	s := startFake(t, nil)
	tokens := &Tokens{of: func(id uint32) (string, error) {
		if id%2 == 1 {
			return "bad", nil
		}
		return fmt.Sprint("user-", id), nil
	}}
	r, err := Connect(context.Background(), ConnectOptions{Addr: s.addr(), Tokens: tokens, Conns: 6, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.Passed() || r.Open != 3 || r.Failed != 3 || r.Errors["sign-in failed: unauthenticated: no"] != 3 {
		t.Errorf("%+v", r)
	}
}

func TestConnectKeepsToItsRate(t *testing.T) {
	t.Parallel()
	s := startFake(t, nil)
	r, err := Connect(context.Background(), ConnectOptions{Addr: s.addr(), Tokens: names(), Conns: 50, Rate: 100, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.Open != 50 || r.Seconds < 0.45 {
		t.Errorf("%d connections in %.2f s at 100/s", r.Open, r.Seconds)
	}
}

// TestChatOfOldUsers: conversations that were there before go on at whatever seq they are; that is no gap.
func TestChatOfOldUsers(t *testing.T) {
	s := startFake(t, nil)
	o := fakeOptions(s)
	o.Tokens.fresh = false
	o.Duration = 200 * time.Millisecond
	for range 2 {
		if r := chat(t, o); !r.Passed() || r.Acked == 0 {
			t.Fatalf("passed %t, checks %+v, errors %v", r.Passed(), r.Checks, r.Errors)
		}
	}
}
