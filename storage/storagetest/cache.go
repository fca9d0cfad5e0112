package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-im/parley/storage"
)

// TestBodyCache is the suite of storage.BodyCache. open makes an empty one with room for some megabytes. A cache may forget anything; one that
// keeps next to nothing of a little is not worth having, and fails too.
func TestBodyCache(t *testing.T, open func(tb testing.TB) storage.BodyCache) {
	for _, sub := range []struct {
		name string
		test func(*testing.T, storage.BodyCache)
	}{
		{"AddGet", testCacheAddGet},
		{"AddKeepsTheFirst", testCacheAddKeepsTheFirst},
		{"Drop", testCacheDrop},
		{"DropOfMany", testCacheDropOfMany},
		{"Bounded", testCacheBounded},
		{"FillsAndDrops", testCacheFillsAndDrops},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, open(t)) })
	}
}

// cacheKeys are n keys of several conversations, with seqs that they share.
func cacheKeys(n int) (keys []storage.BodyKey, bodies [][]byte) {
	for i := range n {
		k := storage.BodyKey{Conversation: fmt.Sprint("g:", i%7), Seq: uint64(1 + i/7)}
		keys = append(keys, k)
		bodies = append(bodies, fmt.Appendf(nil, "%v", k))
	}
	return keys, bodies
}

func cacheGet(tb testing.TB, c storage.BodyCache, keys ...storage.BodyKey) [][]byte {
	tb.Helper()
	before := [][]byte{[]byte("before")}
	out, err := c.Get(context.Background(), keys, before)
	if err != nil || len(out) != 1+len(keys) || string(out[0]) != "before" {
		tb.Fatalf("%d bodies for %d keys, %v", len(out)-1, len(keys), err)
	}
	return out[1:]
}

func cacheAdd(tb testing.TB, c storage.BodyCache, keys []storage.BodyKey, bodies [][]byte) {
	tb.Helper()
	if err := c.Add(context.Background(), keys, bodies); err != nil {
		tb.Fatal(err)
	}
}

func cacheDrop(tb testing.TB, c storage.BodyCache, keys ...storage.BodyKey) {
	tb.Helper()
	if err := c.Drop(context.Background(), keys); err != nil {
		tb.Fatal(err)
	}
}

// kept is how many of the bodies are there; any other than what was put in is a failure.
func kept(tb testing.TB, c storage.BodyCache, keys []storage.BodyKey, bodies [][]byte) (n int) {
	tb.Helper()
	for i, body := range cacheGet(tb, c, keys...) {
		if body == nil {
			continue
		}
		if n++; !bytes.Equal(body, bodies[i]) {
			tb.Fatalf("%v is %q, want %q", keys[i], body, bodies[i])
		}
	}
	return n
}

func testCacheAddGet(t *testing.T, c storage.BodyCache) {
	keys, bodies := cacheKeys(700)
	if n := kept(t, c, keys, bodies); n != 0 {
		t.Fatalf("an empty cache has %d", n)
	}
	cacheAdd(t, c, keys[:350], bodies[:350])
	if n := kept(t, c, keys[:350], bodies[:350]); n < 300 {
		t.Fatalf("it has kept %d of 350 small bodies", n)
	}
	if n := kept(t, c, keys[350:], bodies[350:]); n != 0 {
		t.Fatalf("it has %d that were never put in", n)
	}
	cacheAdd(t, c, nil, nil)
	cacheAdd(t, c, keys, bodies)
	if n := kept(t, c, keys, bodies); n < 600 {
		t.Fatalf("it has kept %d of 700 small bodies", n)
	}
}

// testCacheAddKeepsTheFirst: a body never changes, so whatever comes later for its key is not looked at.
func testCacheAddKeepsTheFirst(t *testing.T, c storage.BodyCache) {
	keys, bodies := cacheKeys(100)
	cacheAdd(t, c, keys, bodies)
	_, others := cacheKeys(101)
	was := kept(t, c, keys, bodies)
	cacheAdd(t, c, keys, others[1:])
	for i, body := range cacheGet(t, c, keys...) {
		if body != nil && !bytes.Equal(body, bodies[i]) && !bytes.Equal(body, others[1+i]) {
			t.Fatalf("%v is %q", keys[i], body)
		}
		if bytes.Equal(body, bodies[i]) {
			was--
		}
	}
	if was > 10 { // a few may have been forgotten before the second Add
		t.Fatalf("%d bodies were written over", was)
	}
}

func testCacheDrop(t *testing.T, c storage.BodyCache) {
	keys, bodies := cacheKeys(100)
	cacheAdd(t, c, keys[:50], bodies[:50])
	cacheDrop(t, c, keys[0], keys[10], keys[99]) // the last was not there
	for range 3 {
		cacheAdd(t, c, keys, bodies)
		got := cacheGet(t, c, keys...)
		if got[0] != nil || got[10] != nil || got[99] != nil {
			t.Fatalf("dropped, and there again: %q %q %q", got[0], got[10], got[99])
		}
	}
	if n := kept(t, c, keys, bodies); n < 80 {
		t.Fatalf("it has kept %d of the 97 others", n)
	}
}

// testCacheDropOfMany: a purge drops more than there is room for; none of it comes back.
func testCacheDropOfMany(t *testing.T, c storage.BodyCache) {
	keys, bodies := cacheKeys(100_000)
	for i := 0; i < len(keys); i += 1000 {
		cacheDrop(t, c, keys[i:i+1000]...)
	}
	for i := 0; i < len(keys); i += 1000 {
		cacheAdd(t, c, keys[i:i+1000], bodies[i:i+1000])
	}
	for i := 0; i < len(keys); i += 1000 {
		if n := kept(t, c, keys[i:i+1000], bodies[i:i+1000]); n != 0 {
			t.Fatalf("%d of 1000 that were dropped are there", n)
		}
	}
}

// testCacheBounded: far more than there is room for goes in, and what comes out is right.
func testCacheBounded(t *testing.T, c storage.BodyCache) {
	const n, size = 2000, 64 << 10
	for i := range n {
		body := bytes.Repeat([]byte{byte(i)}, size)
		cacheAdd(t, c, []storage.BodyKey{{Conversation: "g:large", Seq: uint64(i + 1)}}, [][]byte{body})
	}
	for i := range n {
		body := cacheGet(t, c, storage.BodyKey{Conversation: "g:large", Seq: uint64(i + 1)})[0]
		if body != nil && (len(body) != size || body[0] != byte(i)) {
			t.Fatalf("seq %d has %d bytes of %d", i+1, len(body), body[0])
		}
	}
}

// testCacheFillsAndDrops: readers that have read a body fill the cache while the message is revoked. Whoever looks after Drop returned
// does not see it, then or later, however late a fill comes.
func testCacheFillsAndDrops(t *testing.T, c storage.BodyCache) {
	const rounds, readers = 2000, 5 // 10,000 fills
	for round := range rounds {
		key := []storage.BodyKey{{Conversation: "g:busy", Seq: uint64(round + 1)}}
		body := [][]byte{[]byte("secret")}
		var dropped atomic.Bool
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				if err := c.Add(context.Background(), key, body); err != nil {
					t.Error(err)
				}
				was := dropped.Load()
				got, err := c.Get(context.Background(), key, nil)
				if err != nil || was && got[0] != nil {
					t.Errorf("round %d: it is shown after it was dropped: %q, %v", round, got, err)
				}
			})
		}
		all.Go(func() {
			if err := c.Drop(context.Background(), key); err != nil {
				t.Error(err)
			}
			dropped.Store(true)
		})
		all.Wait()
		if got := cacheGet(t, c, key...)[0]; got != nil || t.Failed() {
			t.Fatalf("round %d: it is there after all: %q", round, got)
		}
	}
}
