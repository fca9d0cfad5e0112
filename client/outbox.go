package client

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/parley-im/parley/protocol"
)

// Outbox is where a client keeps the messages that the server has not answered for good. Its methods may be called by several
// goroutines at once, but never by two for the same entry. An entry that Put returned for is there after a crash.
type Outbox interface {
	// Put adds an entry, or replaces the one with the same Order.
	Put(ctx context.Context, e Entry) error
	// Remove removes the entry with this Order. It is no error if there is none.
	Remove(ctx context.Context, order uint64) error
	// List returns all entries, lowest Order first.
	List(ctx context.Context) ([]Entry, error)
}

// Entry is a message in the outbox.
type Entry struct {
	// Order is the entry's key, and its place: higher is later.
	Order uint64
	// Send is the message.
	Send protocol.Send
	// TriedMS is when it was first sent, by this device's clock, in milliseconds since 1970. 0: never.
	TriedMS int64
	// TriedSeq is how far the conversation was known then, in the history named by TriedEpoch: if the message was stored, its
	// seq is higher.
	TriedSeq   uint64
	TriedEpoch string
}

// Target is whom the entry is for.
func (e *Entry) Target() Target { return Target{Kind: e.Send.Kind, ID: e.Send.Target} }

// MemoryOutbox is an Outbox that ends with the process. Any goroutine may use it.
type MemoryOutbox struct {
	mu      sync.Mutex
	entries map[uint64]Entry
}

// NewMemoryOutbox returns an empty one.
func NewMemoryOutbox() *MemoryOutbox { return &MemoryOutbox{entries: map[uint64]Entry{}} }

// Put implements Outbox.
func (o *MemoryOutbox) Put(_ context.Context, e Entry) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.entries[e.Order] = e
	return nil
}

// Remove implements Outbox.
func (o *MemoryOutbox) Remove(_ context.Context, order uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.entries, order)
	return nil
}

// List implements Outbox.
func (o *MemoryOutbox) List(context.Context) ([]Entry, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]Entry, 0, len(o.entries))
	for _, e := range o.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.Order, b.Order) })
	return list, nil
}
