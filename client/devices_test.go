package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parley-im/parley/client"
	"github.com/parley-im/parley/conn"
	"github.com/parley-im/parley/protocol"
)

// device makes a client for one more device of a user.
func (s *server) device(user, device string, platform protocol.Platform, tune func(*client.Options)) *client.Client {
	s.t.Helper()
	o := client.Options{
		Addr: s.addr, Plaintext: true, DeviceID: device, Platform: platform,
		Token:      func(context.Context) (string, error) { return conn.Mint(secret, user, device, "", time.Hour) },
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
	}
	tune(&o)
	c, err := client.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	c.Start()
	s.t.Cleanup(func() { c.Close() })
	return c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// received is what a device got of one conversation.
type received struct {
	mu   sync.Mutex
	seqs []uint64
	grew chan struct{} // capacity 1
}

func newReceived() *received { return &received{grew: make(chan struct{}, 1)} }

func (l *received) take(_ context.Context, m protocol.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seqs = append(l.seqs, m.Seq)
	select {
	case l.grew <- struct{}{}:
	default:
	}
	return nil
}

// reach waits until it ends with seq, and checks that it has everything before, once.
func (l *received) reach(t *testing.T, seq uint64) {
	t.Helper()
	ctx := within(t)
	for {
		l.mu.Lock()
		n := len(l.seqs)
		done := n > 0 && l.seqs[n-1] >= seq
		l.mu.Unlock()
		if done {
			break
		}
		select {
		case <-l.grew:
		case <-ctx.Done():
			t.Fatalf("got %d messages, want %d", n, seq)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.seqs {
		if s != uint64(i+1) {
			t.Fatalf("message %d has the seq %d", i+1, s)
		}
	}
}

// Three devices of a user see everything that any of them sends or gets. They signal, and their read marks go to the other side.
func TestDevicesOfAUser(t *testing.T) {
	s := newServer(t)
	logs := map[string]*received{}
	clients := map[string]*client.Client{}
	signals, events := make(chan protocol.Signal, 10), make(chan protocol.Event, 10)
	for device, platform := range map[string]protocol.Platform{
		"phone": protocol.PlatformIOS, "desk": protocol.PlatformLinux, "web": protocol.PlatformWeb,
	} {
		logs[device] = newReceived()
		clients[device] = s.device("alice", device, platform, func(o *client.Options) { o.OnMessage = logs[device].take })
	}
	bob := s.device("bob", "phone", protocol.PlatformIOS, func(o *client.Options) {
		o.OnSignal = func(_ context.Context, s protocol.Signal) { signals <- s }
		o.OnEvent = func(_ context.Context, e protocol.Event) { events <- e }
	})
	ctx := within(t)
	for _, c := range append([]*client.Client{bob}, clients["phone"], clients["desk"], clients["web"]) {
		if err := c.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		for _, c := range []*client.Client{clients["phone"], clients["desk"], clients["web"]} {
			if _, err := c.Send(ctx, client.Text(client.User("bob"), fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := bob.Send(ctx, client.Text(client.User("alice"), fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range logs {
		l.reach(t, 80)
	}
	if err := clients["web"].Signal(ctx, client.User("bob"), 9, []byte("typing")); err != nil {
		t.Fatal(err)
	}
	if got := <-signals; got.Sender != "alice" || got.Type != 9 || string(got.Data) != "typing" {
		t.Errorf("signal %+v", got)
	}
	if _, err := clients["desk"].Read(ctx, conversation, 80); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Type != protocol.EventRead || e.User != "alice" || e.Seq != 80 {
		t.Errorf("event %+v", e)
	}
	if err := clients["phone"].SignOut(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	wantKick(t, clients["web"], protocol.KickSignedOut)
}

func wantKick(t *testing.T, c *client.Client, reason protocol.KickReason) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("it was not kicked")
	}
	var kick *client.KickError
	if !errors.As(c.Err(), &kick) || kick.Reason != reason {
		t.Errorf("it ended with %v, want KICK %d", c.Err(), reason)
	}
}

// A second phone takes the place of the first only when the person has just signed in; one that only reconnects is sent away.
func TestDevicesOfAClass(t *testing.T) {
	s := newServer(t)
	ctx := within(t)
	nothing := func(*client.Options) {}
	first := s.device("alice", "old phone", protocol.PlatformIOS, nothing)
	if err := first.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	wantKick(t, s.device("alice", "another phone", protocol.PlatformAndroid, nothing), protocol.KickDisplaced)
	second := s.device("alice", "new phone", protocol.PlatformAndroid, func(o *client.Options) { o.SignedIn = true })
	if err := second.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	wantKick(t, first, protocol.KickDisplaced)
	if err := second.Err(); err != nil {
		t.Error(err)
	}
}

// 2,000 messages in a pipeline keep their order.
func TestPipelineAgainstServer(t *testing.T) {
	const n = 2000
	s := newServer(t)
	var texts []string
	done := make(chan struct{})
	c := s.device("alice", "desk", protocol.PlatformLinux, func(o *client.Options) {
		o.Pipeline, o.OutboxLimit = 30, n
		o.OnMessage = func(_ context.Context, m protocol.Message) error {
			if texts = append(texts, string(m.Content)); len(texts) == n {
				close(done)
			}
			return nil
		}
	})
	ctx := within(t)
	for i := range n {
		if _, err := c.Queue(ctx, client.Text(client.User("bob"), fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("not all came")
	}
	for i, text := range texts {
		if text != fmt.Sprint(i) {
			t.Fatalf("%q at %d", text, i)
		}
	}
}

// A device that comes and goes while messages arrive all the time gets every one of them once: none falls between its SYNC and its first PUSH.
func TestComesAndGoesWhileMessagesArrive(t *testing.T) {
	const rounds = 200
	s := newServer(t)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	alice := s.device("alice", "desk", protocol.PlatformLinux, func(o *client.Options) { o.Pipeline = 8 })
	var sent uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := alice.Send(ctx, client.Text(client.User("bob"), "x")); err == nil {
				sent++
			}
		}
	})
	l := newReceived()
	state := client.NewMemoryState()
	come := func() *client.Client {
		return s.device("bob", "phone", protocol.PlatformIOS, func(o *client.Options) {
			o.State, o.OnMessage, o.History = state, l.take, 1<<30
		})
	}
	for range rounds {
		c := come()
		if err := c.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
	come()
	if sent < rounds {
		t.Fatalf("only %d messages in %d rounds", sent, rounds)
	}
	l.reach(t, sent)
	t.Logf("%d messages, %d rounds", sent, rounds)
}

// The server says goodbye and is there again: the client moves over, and what is sent meanwhile is stored once and in order.
func TestDrainAgainstServer(t *testing.T) {
	s := newServer(t)
	l := newReceived()
	c := s.device("alice", "desk", protocol.PlatformLinux, func(o *client.Options) { o.OnMessage, o.OutboxLimit = l.take, 10_000 })
	ctx := within(t)
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	var pending []*client.Pending
	send := func(n int) {
		for range n {
			p, err := c.Queue(ctx, client.Text(client.User("bob"), "x"))
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
		}
	}
	send(300)
	drained, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	s.gateway.Drain(drained) // that it does not end in time is one of the ways in which it ends
	cancel()
	send(300)
	s.stop()
	send(300)
	s.start()
	for _, p := range pending {
		if _, err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	l.reach(t, 900)
}
