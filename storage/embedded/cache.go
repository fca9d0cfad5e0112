package embedded

import (
	"cmp"
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/parley-im/parley/storage"
)

const (
	bodyLife     = 24 * time.Hour
	bodyOverhead = 160     // about what an entry takes beside its body and the conversation's id
	droppedSlots = 1 << 20 // at 4 bytes each
)

// Cache implements storage.BodyCache in the memory of the process, for a store that is elsewhere. Which bodies stay when there is no room
// for all is the library's business: those that are read often.
//
// What was dropped is remembered apart from the bodies, where nothing pushes it out: a table of times by the hash of the key. Two keys may share a
// place; then the other is not cached for a day either, which costs a read of the store. So a purge of any size takes no more memory.
type Cache struct {
	bodies  *otter.Cache[storage.BodyKey, []byte]
	seed    maphash.Seed
	dropped []atomic.Uint32 // until which minute since began
	now     func() time.Time
	began   time.Time
}

// NewCache is an empty cache for about so many bytes; 0: 64 MiB. The table of what was dropped takes 4 MiB more.
func NewCache(bytes int64) *Cache { return newCache(bytes, time.Now) }

func newCache(bytes int64, now func() time.Time) *Cache {
	return &Cache{
		bodies: otter.Must(&otter.Options[storage.BodyKey, []byte]{
			MaximumWeight: uint64(cmp.Or(max(bytes, 0), 64<<20)),
			Weigher: func(k storage.BodyKey, body []byte) uint32 {
				return uint32(len(k.Conversation) + len(body) + bodyOverhead)
			},
			ExpiryCalculator: otter.ExpiryCreating[storage.BodyKey, []byte](bodyLife),
			Clock:            cacheClock{now},
		}),
		seed: maphash.MakeSeed(), dropped: make([]atomic.Uint32, droppedSlots), now: now, began: now(),
	}
}

// cacheClock is the library's clock. Without ticks it needs no goroutine: what has expired is not seen, and makes room when room is needed.
type cacheClock struct{ now func() time.Time }

// NowNano implements otter.Clock.
func (c cacheClock) NowNano() int64 { return c.now().UnixNano() }

// Tick implements otter.Clock.
func (cacheClock) Tick(time.Duration) <-chan time.Time { return nil }

// minute is the number of the minute that it is, never 0.
func (c *Cache) minute() uint32 { return uint32(c.now().Sub(c.began)/time.Minute) + 1 }

func (c *Cache) slot(k storage.BodyKey) *atomic.Uint32 {
	return &c.dropped[maphash.Comparable(c.seed, k)%droppedSlots]
}

// Get implements storage.BodyCache.
func (c *Cache) Get(ctx context.Context, keys []storage.BodyKey, out [][]byte) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	now := c.minute()
	for _, k := range keys {
		body, ok := c.bodies.GetIfPresent(k)
		if !ok || c.slot(k).Load() >= now { // in this order: one that Add has left after a Drop is not shown
			body = nil
		}
		out = append(out, body)
	}
	return out, nil
}

// Add implements storage.BodyCache.
func (c *Cache) Add(ctx context.Context, keys []storage.BodyKey, bodies [][]byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := c.minute()
	for i, k := range keys {
		slot := c.slot(k)
		if slot.Load() >= now {
			continue
		}
		c.bodies.SetIfAbsent(k, bodies[i])
		if slot.Load() >= now { // dropped meanwhile: Drop may have looked before it was there
			c.bodies.Invalidate(k)
		}
	}
	return nil
}

// Drop implements storage.BodyCache. It does its work even when ctx has ended: nobody else would.
func (c *Cache) Drop(_ context.Context, keys []storage.BodyKey) error {
	until := c.minute() + uint32(bodyLife/time.Minute)
	for _, k := range keys {
		c.slot(k).Store(until)
		c.bodies.Invalidate(k)
	}
	return nil
}
