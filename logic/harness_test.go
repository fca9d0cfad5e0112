package logic

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
	"github.com/parley-im/parley/storage/mongo"
	"github.com/parley-im/parley/storage/mongo/mongotest"
)

// fakeGateway keeps what the logic tier says to each connection.
type fakeGateway struct {
	mu      sync.Mutex
	changed sync.Cond
	devices map[protocol.SessionID]*device
}

// device is a connection of the fake gateway. Its fields are guarded by the gateway's lock.
type device struct {
	t        testing.TB
	g        *fakeGateway
	l        *Logic
	session  *protocol.Session
	welcomed bool
	welcome  protocol.Welcome
	kick     *protocol.Kick
	closed   bool
	frames   []protocol.Frame // all that was delivered, in order
	nextID   uint32
	asked    map[uint32]asked // of some requests, for a history
}

func newFakeGateway() *fakeGateway {
	g := &fakeGateway{devices: make(map[protocol.SessionID]*device)}
	g.changed.L = &g.mu
	return g
}

func (g *fakeGateway) Welcome(id protocol.SessionID, w protocol.Welcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.devices[id]; d != nil {
		d.welcomed, d.welcome = true, w
	}
	g.changed.Broadcast()
}

func (g *fakeGateway) Deliver(ds []protocol.Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, delivery := range ds {
		for _, id := range delivery.To {
			d := g.devices[id]
			if d == nil || !d.welcomed {
				continue
			}
			b := append([]byte(nil), delivery.Frames...)
			for len(b) > 0 {
				f, n, err := protocol.Split(b, protocol.DefaultMaxDown)
				if err != nil || n == 0 {
					d.t.Errorf("a delivery is not whole frames: %v", err)
					return
				}
				if (f.Command == protocol.CmdSignal) != delivery.Ephemeral {
					d.t.Errorf("%s in a delivery that is ephemeral: %t", f.Command, delivery.Ephemeral)
				}
				d.frames = append(d.frames, f)
				b = b[n:]
			}
			d.closed = d.closed || delivery.Close
		}
	}
	g.changed.Broadcast()
}

func (g *fakeGateway) Kick(id protocol.SessionID, k protocol.Kick) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.devices[id]; d != nil && d.kick == nil {
		d.kick, d.closed = &k, true
	}
	g.changed.Broadcast()
}

// wait blocks until ok, which runs under the lock, or fails the test after a long time.
func (g *fakeGateway) wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	timer := time.AfterFunc(30*time.Second, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.changed.Broadcast()
	})
	defer timer.Stop()
	start := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for !ok() {
		if time.Since(start) > 29*time.Second {
			t.Fatalf("waited in vain for %s", what)
		}
		g.changed.Wait()
	}
}

// store is all that a logic tier needs to remember, in whatever.
type store interface {
	storage.Buckets
	storage.Directory
	storage.Changes
	storage.Operator
	Close() error
}

// server is a logic tier on an embedded store in memory or, in a subtest of TestOnMongo, on MongoDB.
type server struct {
	t      testing.TB
	fs     vfs.FS // of the embedded one
	store  store
	routes storage.Routes
	g      *fakeGateway
	l      *Logic
	nextID protocol.SessionID
	stop   func()
}

// startServer opens the store on fs (nil: an empty one in memory). change may alter the options.
func startServer(t testing.TB, fs vfs.FS, change func(*Options)) *server {
	t.Helper()
	if fs == nil {
		fs = vfs.NewMem()
	}
	var now Options
	if change != nil {
		change(&now)
	}
	s := &server{t: t, fs: fs, routes: embedded.NewRoutes(64), g: newFakeGateway()}
	log, store := openStore(t, fs, now.Now)
	s.store = store
	o := Options{Log: log, Buckets: store, Directory: store, Changes: store, Routes: s.routes, Gateway: s.g}
	if change != nil {
		change(&o)
	}
	var err error
	if s.l, err = New(o); err != nil {
		t.Fatal(err)
	}
	if err := s.l.Start(); err != nil {
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		if err := s.l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := s.store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// openStore opens a store and the log in line with it.
func openStore(t testing.TB, fs vfs.FS, now func() time.Time) (storage.Log, store) {
	t.Helper()
	if strings.HasPrefix(t.Name(), "TestOnMongo/") {
		s, err := mongo.Open(t.Context(), mongo.Options{URI: mongotest.Database(t), Cache: embedded.NewCache(8 << 20)})
		if err != nil {
			t.Fatal(err)
		}
		log, err := embedded.OpenLog(embedded.LogOptions{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return log, s
	}
	s, err := embedded.Open(embedded.Options{Dir: "data", FS: fs, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s.NewLog(), s
}

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) options(o *Options) { o.Now = c.time }

func (c *clock) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// dial opens a session and returns it when it was let in or kicked.
func (s *server) dial(user, deviceID string, platform protocol.Platform, flags uint32) *device {
	s.t.Helper()
	s.g.mu.Lock()
	s.nextID++
	id := s.nextID
	d := &device{t: s.t, g: s.g, l: s.l, asked: make(map[uint32]asked), session: &protocol.Session{
		ID: id, Key: fmt.Sprint("key-", id), User: user, DeviceID: deviceID, Platform: platform, Flags: flags,
	}}
	s.g.devices[id] = d
	s.g.mu.Unlock()
	s.l.Open(d.session)
	s.g.wait(s.t, "WELCOME or KICK", func() bool { return d.welcomed || d.kick != nil })
	return d
}

// online opens a session of a device without a class.
func (s *server) online(user string) *device {
	s.t.Helper()
	d := s.dial(user, fmt.Sprint("device-", s.nextID+1), protocol.PlatformOther, protocol.HelloSignedIn)
	if d.kick != nil {
		s.t.Fatalf("%s was kicked: %+v", user, d.kick)
	}
	return d
}

// hangUp closes a session from the client's side.
func (d *device) hangUp() {
	d.g.mu.Lock()
	delete(d.g.devices, d.session.ID)
	d.g.mu.Unlock()
	d.l.Closed(d.session.ID)
}

// request hands in a frame, and returns its request id.
func (d *device) request(cmd protocol.Command, body protocol.Body) uint32 {
	var b []byte
	if body != nil {
		b = protocol.AppendBody(nil, body)
	}
	return d.requestBytes(cmd, b)
}

func (d *device) requestBytes(cmd protocol.Command, body []byte) uint32 {
	d.g.mu.Lock()
	d.nextID++
	id := d.nextID
	d.g.mu.Unlock()
	f := protocol.Frame{Header: protocol.Header{Command: cmd, RequestID: id}, Body: body}
	d.l.Handle(d.session.ID, []protocol.Frame{f})
	for i := range f.Body {
		f.Body[i] = 0xc1 // the buffer is the gateway's again: whoever kept it reads garbage
	}
	return id
}

// reply waits for the reply to a request, and decodes it into body. An ERROR is returned.
func (d *device) reply(id uint32, body protocol.Body) error {
	d.t.Helper()
	var found *protocol.Frame
	d.g.wait(d.t, "a reply", func() bool {
		for i := range d.frames {
			if f := &d.frames[i]; f.RequestID == id && f.Command != protocol.CmdPush {
				found = f
				return true
			}
		}
		return false
	})
	if found.Command == protocol.CmdError {
		e := &protocol.Error{}
		if err := protocol.Unmarshal(found.Body, e); err != nil {
			d.t.Fatal(err)
		}
		return e
	}
	if body != nil {
		if err := protocol.Unmarshal(found.Body, body); err != nil {
			d.t.Fatal(err)
		}
	}
	return nil
}

// call is request and reply.
func (d *device) call(cmd protocol.Command, request, reply protocol.Body) error {
	d.t.Helper()
	return d.reply(d.request(cmd, request), reply)
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode fails the test unless err is an ERROR of the code.
func wantCode(t testing.TB, err error, code protocol.ErrorCode) {
	t.Helper()
	if !errors.Is(err, &protocol.Error{Code: code}) {
		t.Errorf("got %v, want %v", err, code)
	}
}

func text(id, to string) *protocol.Send {
	return &protocol.Send{ClientMsgID: id, Kind: protocol.KindDirect, Target: to, ContentType: protocol.ContentText, Content: []byte("text of " + id)}
}

// send sends a message and waits for its ack.
func (d *device) send(m *protocol.Send) protocol.SendAck {
	d.t.Helper()
	var ack protocol.SendAck
	must(d.t, d.call(protocol.CmdSend, m, &ack))
	return ack
}

// pushed is the messages of all PUSHes so far. The caller holds the gateway's lock, or nothing is on its way.
func (d *device) pushed() []protocol.Message {
	var all []protocol.Message
	for _, f := range d.frames {
		if f.Command == protocol.CmdPush {
			var p protocol.Push
			if err := protocol.Unmarshal(f.Body, &p); err != nil {
				d.t.Error(err)
			}
			all = append(all, p.Messages...)
		}
	}
	return all
}

// waitPushed waits until n messages were pushed.
func (d *device) waitPushed(n int) []protocol.Message {
	d.t.Helper()
	var all []protocol.Message
	d.g.wait(d.t, fmt.Sprint(n, " pushed messages"), func() bool {
		all = d.pushed()
		return len(all) >= n
	})
	return all
}

// waitEvent waits for an event of a type.
func (d *device) waitEvent(typ protocol.EventType) protocol.Event {
	d.t.Helper()
	var found protocol.Event
	d.g.wait(d.t, fmt.Sprint("an event of type ", typ), func() bool {
		for _, f := range d.frames {
			var es protocol.Events
			if f.Command != protocol.CmdEvent || protocol.Unmarshal(f.Body, &es) != nil {
				continue
			}
			for _, e := range es.Events {
				if e.Type == typ {
					found = e
					return true
				}
			}
		}
		return false
	})
	return found
}

// pullAll pages through a conversation, upwards.
func (d *device) pullAll(conversation string, limit uint16) []protocol.Message {
	d.t.Helper()
	var all []protocol.Message
	for from := uint64(0); ; {
		var r protocol.PullReply
		must(d.t, d.call(protocol.CmdPull, &protocol.Pull{ConversationID: conversation, FromSeq: from, Limit: limit}, &r))
		all = append(all, r.Messages...)
		if !r.More {
			return all
		}
		from = all[len(all)-1].Seq + 1
	}
}
