package client_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/client"
	"github.com/parley-im/parley/conn"
	"github.com/parley-im/parley/logic"
	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage/embedded"
)

const patience = 30 * time.Second

var secret = bytes.Repeat([]byte("s"), conn.MinSecret)

// server is a whole server in this process, on files in memory.
type server struct {
	t       *testing.T
	fs      vfs.FS
	addr    string
	store   *embedded.Store
	gateway *conn.Gateway
	logic   *logic.Logic
}

func newServer(t *testing.T) *server {
	s := &server{t: t, fs: vfs.NewMem(), addr: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// start puts the parts together as the server's main package does. After stop it goes on with the same files, at the same address.
func (s *server) start() {
	verifier, err := conn.NewVerifier(conn.VerifierOptions{Secret: secret})
	s.must(err)
	s.store, err = embedded.Open(embedded.Options{Dir: "data", FS: s.fs, CacheBytes: 8 << 20, ReserveBytes: 1 << 20})
	s.must(err)
	s.gateway, err = conn.New(conn.Options{Listen: s.addr, Verifier: verifier, Loops: 1, MaxConns: 100, DrainWindow: 300 * time.Millisecond})
	s.must(err)
	s.logic, err = logic.New(logic.Options{
		Log: s.store.NewLog(), Buckets: s.store, Directory: s.store, Changes: s.store, Routes: embedded.NewRoutes(8), Gateway: s.gateway,
	})
	s.must(err)
	s.must(s.logic.Start())
	s.must(s.gateway.Start(s.logic))
	s.addr = s.gateway.Addr().String()
}

func (s *server) stop() {
	s.must(s.gateway.Close())
	s.must(s.logic.Close())
	s.must(s.store.Close())
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// app is a user's app: it keeps what it was given, and what outlives its process.
type app struct {
	t      *testing.T
	s      *server
	user   string
	state  *client.MemoryState
	outbox *client.MemoryOutbox
	c      *client.Client

	mu  sync.Mutex
	got map[string][]protocol.Message
}

func (s *server) app(user string) *app {
	a := &app{
		t: s.t, s: s, user: user, state: client.NewMemoryState(), outbox: client.NewMemoryOutbox(), got: map[string][]protocol.Message{},
	}
	a.start()
	s.t.Cleanup(a.stop)
	return a
}

// start starts the app's process; after stop another one, with the same state and outbox.
func (a *app) start() {
	device := a.user + "-phone"
	c, err := client.New(client.Options{
		Addr: a.s.addr, Plaintext: true, DeviceID: device, Platform: protocol.PlatformAndroid,
		Token: func(context.Context) (string, error) { return conn.Mint(secret, a.user, device, "", time.Hour) },
		State: a.state, Outbox: a.outbox, OnMessage: a.take,
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.c = c
	c.Start()
}

func (a *app) stop() {
	if err := a.c.Close(); err != nil {
		a.t.Errorf("%s's client had stopped: %v", a.user, err)
	}
}

func (a *app) take(_ context.Context, m protocol.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.Content = bytes.Clone(m.Content)
	a.got[m.ConversationID] = append(a.got[m.ConversationID], m)
	return nil
}

func (a *app) ready() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	if err := a.c.Ready(ctx); err != nil {
		a.t.Fatalf("%s is not ready: %v", a.user, err)
	}
}

// queue queues the texts from to to-1 for another user.
func (a *app) queue(to string, from, end int) (list []*client.Pending) {
	a.t.Helper()
	for i := from; i < end; i++ {
		p, err := a.c.Queue(a.t.Context(), client.Text(client.User(to), fmt.Sprint(a.user, " ", i)))
		if err != nil {
			a.t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// acked waits for the acks.
func (a *app) acked(list []*client.Pending) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	for _, p := range list {
		if _, err := p.Wait(ctx); err != nil {
			a.t.Fatalf("%s: %v", a.user, err)
		}
	}
}

// await waits until the app got n messages of a conversation.
func (a *app) await(conversation string, n int) {
	a.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		a.mu.Lock()
		got := len(a.got[conversation])
		a.mu.Unlock()
		if got >= n {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("%s got %d messages of %s, want %d", a.user, got, conversation, n)
		}
	}
}

// check: everything once, in the order of seq, and what each user sent in the order in which it was sent.
func (a *app) check(conversation string, sent map[string]int) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := map[string]int{}
	for i, m := range a.got[conversation] {
		if m.Seq != uint64(i+1) {
			a.t.Fatalf("%s: message %d of %s has the seq %d", a.user, i+1, conversation, m.Seq)
		}
		if want := fmt.Sprint(m.Sender, " ", seen[m.Sender]); string(m.Content) != want {
			a.t.Fatalf("%s: seq %d is %q, want %q", a.user, m.Seq, m.Content, want)
		}
		seen[m.Sender]++
	}
	for user, n := range sent {
		if seen[user] != n {
			a.t.Errorf("%s got %d messages of %s, want %d", a.user, seen[user], user, n)
		}
	}
	if list, err := a.outbox.List(a.t.Context()); err != nil || len(list) != 0 {
		a.t.Errorf("%s: left in the outbox: %v, %v", a.user, list, err)
	}
}

const conversation = "p:alice:bob"

// Two users chat; one closes the app and comes back; then the whole server stops and starts anew while both go on sending. Everything
// arrives once and in order.
func TestAgainstServer(t *testing.T) {
	const n = 100
	s := newServer(t)
	alice, bob := s.app("alice"), s.app("bob")
	alice.ready()
	bob.ready()

	pending := slices.Concat(alice.queue("bob", 0, n), bob.queue("alice", 0, n))
	alice.acked(pending[:n])
	bob.acked(pending[n:])
	alice.await(conversation, 2*n)
	bob.await(conversation, 2*n)

	bob.stop()
	alice.acked(alice.queue("bob", n, 2*n))
	bob.start()
	bob.await(conversation, 3*n)

	s.stop()
	pending = slices.Concat(alice.queue("bob", 2*n, 3*n), bob.queue("alice", n, 2*n)) // nobody is there to take them
	s.start()
	alice.acked(pending[:n])
	bob.acked(pending[n:])
	alice.await(conversation, 5*n)
	bob.await(conversation, 5*n)

	for _, a := range []*app{alice, bob} {
		a.check(conversation, map[string]int{"alice": 3 * n, "bob": 2 * n})
	}
	if st := alice.c.Stats(); st.Connections < 2 {
		t.Errorf("alice had %d connections: the server was not gone", st.Connections)
	}
}

// The server is stopped and started while messages are on their way, so that acks are lost: each is stored once all the same.
func TestServerRestartsUnderLoad(t *testing.T) {
	const rounds, each = 5, 200
	s := newServer(t)
	alice, bob := s.app("alice"), s.app("bob")
	alice.ready()
	bob.ready()
	for i := range rounds {
		mine := alice.queue("bob", i*each, (i+1)*each)
		theirs := bob.queue("alice", i*each, (i+1)*each)
		alice.acked(mine[:each/4]) // the rest is in the outbox, or in flight
		s.stop()
		s.start()
		alice.acked(mine)
		bob.acked(theirs)
	}
	for _, a := range []*app{alice, bob} {
		a.await(conversation, 2*rounds*each)
		a.check(conversation, map[string]int{"alice": rounds * each, "bob": rounds * each})
	}
	t.Logf("alice: %+v", alice.c.Stats())
}

// A new device of a user who was never here before gets the newest messages, and the list says the rest.
func TestNewDeviceAgainstServer(t *testing.T) {
	s := newServer(t)
	alice := s.app("alice")
	alice.acked(alice.queue("bob", 0, 120))
	bob := s.app("bob")
	bob.ready()
	bob.await(conversation, 50)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list, err := bob.c.Conversations(ctx, conversation)
	if err != nil || len(list) != 1 || list[0].MaxSeq != 120 || list[0].Unread != 120 {
		t.Fatalf("Conversations: %+v, %v", list, err)
	}
	if r, err := bob.c.Read(ctx, conversation, 100); err != nil || r.Seq != 100 || r.Unread != 20 {
		t.Errorf("Read: %+v, %v", r, err)
	}
	older, err := bob.c.Pull(ctx, protocol.Pull{ConversationID: conversation, ToSeq: 70, NewestFirst: true, Limit: 100})
	if err != nil || len(older.Messages) != 70 || older.Messages[0].Seq != 70 {
		t.Errorf("Pull: %d messages, %v", len(older.Messages), err)
	}
	bob.mu.Lock()
	defer bob.mu.Unlock()
	for i, m := range bob.got[conversation] {
		if m.Seq != uint64(71+i) {
			t.Fatalf("message %d has the seq %d", i, m.Seq)
		}
	}
}
