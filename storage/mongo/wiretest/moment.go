package wiretest

import (
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Do calls f before the command is forwarded: what another writer does at this moment. It may use the server, through the proxy too.
func Do(f func(*Command)) Action {
	return func(e *Exchange) { f(e.Command) }
}

// DoAfter calls f when the command was carried out and before the driver has the reply.
func DoAfter(f func(*Command)) Action {
	return func(e *Exchange) {
		if e.Forward() != nil {
			f(e.Command)
		}
	}
}

// Delay lets a time pass before the command is forwarded, as a slow network does.
func Delay(d time.Duration) Action {
	return func(e *Exchange) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-e.Closing():
			e.Cut()
		}
	}
}

// Gate holds commands until it is opened. Its methods Before and After are the actions.
type Gate struct {
	once    sync.Once
	open    chan struct{}
	first   sync.Once
	reached chan struct{}
}

// NewGate makes a closed gate.
func NewGate() *Gate { return &Gate{open: make(chan struct{}), reached: make(chan struct{})} }

// Before is an Action: the command reaches the server when the gate is open. It does so too when its driver has given up meanwhile: a
// write that comes late.
func (g *Gate) Before(e *Exchange) { g.wait(e) }

// After is an Action: the command is carried out, and the driver gets the reply when the gate is open.
func (g *Gate) After(e *Exchange) {
	if e.Forward() != nil {
		g.wait(e)
	}
}

func (g *Gate) wait(e *Exchange) {
	g.first.Do(func() { close(g.reached) })
	select {
	case <-g.open:
	case <-e.Closing():
		e.Cut()
	}
}

// Reached is closed when the first command is held, with After: when it was carried out.
func (g *Gate) Reached() <-chan struct{} { return g.reached }

// Open lets all commands go, those that come later too.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Behind answers reads from what it saw earlier: a majority read that is behind what was written. Its method Read is the action. Until
// Freeze, and after Thaw, it notes the last reply to each read; in between it gives the noted ones. Reads are the same when they differ in
// nothing but their session and cluster time. One that was never noted, or whose reply did not fit into the first batch, goes to the server.
type Behind struct {
	mu     sync.Mutex
	frozen bool
	noted  map[string]bson.Raw
	bytes  int
	stale  int
}

// The bounds of what a Behind notes. A read beyond them is answered by the server, as one that was never noted.
const (
	maxNoted      = 10_000
	maxNotedBytes = 64 << 20
)

// NewBehind makes one that notes.
func NewBehind() *Behind { return &Behind{noted: make(map[string]bson.Raw)} }

// Freeze makes reads be answered by what is noted now.
func (b *Behind) Freeze() { b.set(true) }

// Thaw makes reads be answered by the server again.
func (b *Behind) Thaw() { b.set(false) }

func (b *Behind) set(frozen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = frozen
}

// Stale is how many reads were answered from what was noted.
func (b *Behind) Stale() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stale
}

// Read is an Action, for find and aggregate.
func (b *Behind) Read(e *Exchange) {
	key, err := readKey(e.Command)
	if err != nil {
		e.fail(err)
		return
	}
	if reply := b.recall(key); reply != nil {
		e.Answer(reply)
		return
	}
	if reply := e.Forward(); reply != nil && whole(reply) {
		b.note(key, reply)
	}
}

func (b *Behind) recall(key string) bson.Raw {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.frozen || b.noted[key] == nil {
		return nil
	}
	b.stale++
	return b.noted[key]
}

func (b *Behind) note(key string, reply bson.Raw) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.noted[key]
	bytes := b.bytes - len(old) + len(reply)
	if b.frozen || bytes > maxNotedBytes || !known && len(b.noted) >= maxNoted {
		return
	}
	b.bytes = bytes
	b.noted[key] = slices.Clone(reply)
}

// readKey is what a read asks for.
func readKey(c *Command) (string, error) {
	var body bson.D
	if err := bson.Unmarshal(c.Body, &body); err != nil {
		return "", err
	}
	body = slices.DeleteFunc(body, func(e bson.E) bool {
		return e.Key == "lsid" || e.Key == "$clusterTime" || e.Key == "txnNumber" || e.Key == "maxTimeMS"
	})
	raw, err := bson.Marshal(body)
	return string(raw), err
}

// whole tells whether a reply is a success with all of the result in it.
func whole(reply bson.Raw) bool {
	ok, _ := reply.Lookup("ok").AsFloat64OK()
	id, _ := reply.Lookup("cursor", "id").AsInt64OK()
	return ok == 1 && id == 0
}
