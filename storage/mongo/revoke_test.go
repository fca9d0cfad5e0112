package mongo

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
	"github.com/parley-im/parley/storage/storagetest"
)

// cold is a cache that never has what is asked for, so that every read of a body is a fill.
type cold struct {
	storage.BodyCache
	fills atomic.Int64
}

func (c *cold) Get(_ context.Context, keys []storage.BodyKey, out [][]byte) ([][]byte, error) {
	return append(out, make([][]byte, len(keys))...), nil
}

func (c *cold) Add(ctx context.Context, keys []storage.BodyKey, bodies [][]byte) error {
	c.fills.Add(int64(len(keys)))
	return c.BodyCache.Add(ctx, keys, bodies)
}

// kept tells whether the cache has the body of a message.
func (c *cold) kept(tb testing.TB, key storage.BodyKey) bool {
	tb.Helper()
	bodies, err := c.BodyCache.Get(context.Background(), []storage.BodyKey{key}, nil)
	if err != nil || len(bodies) != 1 {
		tb.Fatal(bodies, err)
	}
	return bodies[0] != nil
}

// TestRevokeWhileTheCacheIsFilled: 2,000 messages are revoked, and 8,000 purged, while readers fill the cache with them all the time. Whoever begins to read after
// that does not see the content, and it is not left in the cache; whoever reads meanwhile sees all of it or nothing.
func TestRevokeWhileTheCacheIsFilled(t *testing.T) {
	onlyLarge(t)
	t.Parallel()
	const talks, messages, purged, piece, reads = 200, 50, 160, 10, 20
	c := &cold{BodyCache: embedded.NewCache(64 << 20)}
	s := openStore(t, func(o *Options) { o.Cache = c })
	r := seeded(40)
	list := make([]*storagetest.Talk, talks)
	runs := make([]*storage.Run, talks)
	for i := range list {
		list[i] = storagetest.Direct("alice", fmt.Sprint("bob", i))
		runs[i] = list[i].Run(r, messages)
	}
	appendRuns(t, s, runs...)
	var revokedTo, looked atomic.Uint64 // in all conversations
	turns := make(chan struct{}, reads) // of the readers: so many while each message is revoked
	var reading sync.WaitGroup
	for reader := range 2 {
		reading.Go(func() {
			r := seeded(uint64(41 + reader))
			for range turns {
				looked.Add(look(t, s, list[r.IntN(talks)], &revokedTo))
			}
		})
	}
	for seq := uint64(1); seq <= messages && !t.Failed(); seq++ {
		var changes []*storage.Change
		for _, k := range list[purged:] {
			changes = append(changes, revokeOf(k.ID, seq, seq))
		}
		for range reads {
			turns <- struct{}{}
		}
		apply(t, s, changes...)
		for _, k := range list[:purged] {
			if seq%piece == 0 {
				purge(t, s, k.ID, seq-piece+1, seq, piece)
			}
		}
		if seq%piece == 0 {
			revokedTo.Store(seq)
		}
	}
	close(turns)
	reading.Wait()
	for _, k := range list {
		for seq := uint64(1); seq <= messages; seq++ {
			if c.kept(t, storage.BodyKey{Conversation: k.ID, Seq: seq}) {
				t.Fatalf("%s, seq %d: the body was left in the cache", k.ID, seq)
			}
		}
	}
	t.Logf("%d bodies were put into the cache meanwhile, %d messages were looked at", c.fills.Load(), looked.Load())
	if c.fills.Load() < talks*messages {
		t.Fatal("too few fills to mean anything")
	}
}

// look reads some messages around those that are being revoked.
func look(t *testing.T, s *Store, k *storagetest.Talk, revokedTo *atomic.Uint64) (n uint64) {
	before := revokedTo.Load()
	from := before - min(before-min(before, 1), 5)
	q := storage.Range{Conversation: k.ID, Viewer: "alice", From: max(from, 1), To: min(before+20, k.Tail())}
	err := s.Read(context.Background(), q, func(slot *storage.Slot) bool {
		n++
		seq := slot.Message.Seq
		view := storage.Project(&slot.Message, &slot.Labels, storage.Viewer{User: "alice"})
		want := &k.Slots[seq-1].Message
		switch {
		case view.Status == protocol.StatusNormal && seq <= before:
			t.Errorf("seq %d is shown, and all up to %d had been revoked", seq, before)
		case view.Status == protocol.StatusNormal && !bytes.Equal(view.Content, want.Content):
			t.Errorf("seq %d has other content", seq)
		case view.Status != protocol.StatusNormal && len(view.Content) > 0:
			t.Errorf("seq %d has status %d and content", seq, view.Status)
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

// gated is a cache whose fills wait.
type gated struct {
	storage.BodyCache
	reached, open chan struct{}
}

func (g *gated) Add(ctx context.Context, keys []storage.BodyKey, bodies [][]byte) error {
	g.reached <- struct{}{}
	<-g.open
	return g.BodyCache.Add(ctx, keys, bodies)
}

// TestFillAfterRevoke: a reader that had read a body before it was revoked, and fills the cache with it after, leaves nothing behind.
func TestFillAfterRevoke(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*Store, string) error{
		"revoke": func(s *Store, conversation string) error {
			return s.Apply(context.Background(), []*storage.Change{revokeOf(conversation, 2, 1)})
		},
		"purge": func(s *Store, conversation string) error {
			_, err := s.Purge(context.Background(), conversation, 2, 2)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gated{BodyCache: embedded.NewCache(1 << 20), reached: make(chan struct{}), open: make(chan struct{})}
			s, k := openStore(t, func(o *Options) { o.Cache = g }), storagetest.Direct("alice", "bob")
			appendRuns(t, s, k.Run(seeded(50), 3))
			var read sync.WaitGroup
			read.Go(func() {
				err := s.Slots(context.Background(), k.ID, "bob", []uint64{1, 2, 3}, func(*storage.Slot) bool { return true })
				if err != nil {
					t.Error(err)
				}
			})
			<-g.reached
			if err := remove(s, k.ID); err != nil {
				t.Fatal(err)
			}
			close(g.open)
			read.Wait()
			keys := []storage.BodyKey{{Conversation: k.ID, Seq: 1}, {Conversation: k.ID, Seq: 2}, {Conversation: k.ID, Seq: 3}}
			bodies, err := g.Get(t.Context(), keys, nil)
			if err != nil || bodies[0] == nil || bodies[1] != nil || bodies[2] == nil {
				t.Fatalf("in the cache: %t, %t, %t, %v", bodies[0] != nil, bodies[1] != nil, bodies[2] != nil, err)
			}
		})
	}
}
