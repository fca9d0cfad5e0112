package embedded

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

func TestBodyCache(t *testing.T) {
	storagetest.TestBodyCache(t, func(testing.TB) storage.BodyCache { return NewCache(4 << 20) })
}

// TestCacheTakesItsBytes: however much goes in.
func TestCacheTakesItsBytes(t *testing.T) {
	const room, size = 1 << 20, 10_000
	c := NewCache(room)
	for seq := range uint64(10_000) {
		if err := c.Add(t.Context(), []storage.BodyKey{{Conversation: "g:large", Seq: seq}}, [][]byte{make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	c.bodies.CleanUp()
	if n := c.bodies.WeightedSize(); n > room || n < room/2 {
		t.Fatalf("it has %d bytes of %d", n, room)
	}
}

// TestCacheForgets: a body after a day, and that one was dropped after a day and not before.
func TestCacheForgets(t *testing.T) {
	var now atomic.Int64 // the cache looks from a goroutine of its own, too
	now.Store(1_700_000_000)
	c := newCache(1<<20, func() time.Time { return time.Unix(now.Load(), 0) })
	kept, dropped := storage.BodyKey{Conversation: "g:a", Seq: 1}, storage.BodyKey{Conversation: "g:a", Seq: 2}
	keys := []storage.BodyKey{kept, dropped}
	look := func(wantKept, wantDropped bool) {
		t.Helper()
		got, err := c.Get(t.Context(), keys, nil)
		if err != nil || (got[0] != nil) != wantKept || (got[1] != nil) != wantDropped {
			t.Fatalf("there is %q, %v", got, err)
		}
	}
	add := func() {
		t.Helper()
		if err := c.Add(t.Context(), keys, [][]byte{[]byte("one"), []byte("two")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Drop(t.Context(), keys[1:]); err != nil {
		t.Fatal(err)
	}
	add()
	look(true, false)
	now.Add(int64((bodyLife - time.Minute).Seconds()))
	look(true, false)
	add() // does not make the first one last longer
	look(true, false)
	now.Add(60)
	look(false, false)
	now.Add(60)
	add()
	look(true, true)
}
