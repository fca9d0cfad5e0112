package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

// heldFS is a file system on which a sync of the log takes as long as the test wants.
type heldFS struct {
	vfs.FS
	held *sync.RWMutex // locked: syncs wait
}

func (h heldFS) file(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return heldFile{f, h.held}, nil
}

func (h heldFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.FS.Create(name, c)
	return h.file(name, f, err)
}

func (h heldFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.FS.ReuseForWrite(from, to, c)
	return h.file(to, f, err)
}

type heldFile struct {
	vfs.File
	held *sync.RWMutex
}

func (f heldFile) wait() {
	f.held.RLock()
	defer f.held.RUnlock()
}

func (f heldFile) Sync() error     { f.wait(); return f.File.Sync() }
func (f heldFile) SyncData() error { f.wait(); return f.File.SyncData() }

// everything is what readers are shown of a conversation.
type everything struct {
	Slots   []storage.Slot
	Entries []storage.Entry
	Notes   []storage.Note
	Number  uint64
	Rows    []storage.InspectedRow
}

func readEverything(t *testing.T, s *Store, k *storagetest.Talk) (e everything) {
	t.Helper()
	ctx := t.Context()
	slot := func(s *storage.Slot) bool { e.Slots = append(e.Slots, *s); return true }
	note := func(n storage.Note) bool { e.Notes = append(e.Notes, n); return true }
	var errs []error
	for _, viewer := range []string{"", "alice", "bob", "fan0"} {
		for _, newestFirst := range []bool{false, true} {
			q := storage.Range{Conversation: k.ID, Viewer: viewer, From: 1, To: 100, NewestFirst: newestFirst}
			errs = append(errs, s.Read(ctx, q, slot))
		}
		errs = append(errs, s.Slots(ctx, k.ID, viewer, []uint64{2, 9, 1}, slot))
	}
	for _, user := range k.Members {
		entries, err := s.Entries(ctx, user, []string{k.ID})
		all, _, err2 := s.Changed(ctx, user, 0)
		e.Entries = append(append(e.Entries, entries...), all...)
		errs = append(errs, err, err2)
	}
	for since := range uint64(4) {
		errs = append(errs, s.Notes(ctx, k.ID, since, note))
	}
	var err error
	e.Number, err = s.ChangeSeq(ctx, k.ID)
	in, err2 := s.Inspect(ctx, k.ID, []uint64{2})
	if err := errors.Join(append(errs, err, err2)...); err != nil {
		t.Fatal(err)
	}
	e.Rows = in.Rows
	if in.ChangeSeq != e.Number {
		t.Fatalf("the latest change is %d, inspected %d", e.Number, in.ChangeSeq)
	}
	return e
}

// whileHeld starts a write, and calls f when Pebble has it and the disk has not. It returns when the write is durable.
func whileHeld(t *testing.T, s *Store, held *sync.RWMutex, write func() error, f func()) {
	t.Helper()
	held.Lock()
	done := make(chan error, 1)
	go func() { done <- write() }()
	for s.flight.upTo() == s.lastStamp() { // until it has begun
		runtime.Gosched()
	}
	s.order.Lock() // until it is applied
	applied := s.flight.upTo()
	s.order.Unlock()
	if applied >= s.lastStamp() {
		t.Error("the write is not in flight any more")
	}
	f()
	held.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// lastStamp is the highest that was given out.
func (s *Store) lastStamp() storage.Stamp {
	s.flight.mu.RLock()
	defer s.flight.mu.RUnlock()
	return s.flight.last
}

// TestNothingInFlightIsShown: of a write that may still be lost readers see nothing, and of what it replaces they see what there was.
func TestNothingInFlightIsShown(t *testing.T) {
	var held sync.RWMutex
	s := mustOpen(t, Options{Dir: "data", FS: heldFS{vfs.NewMem(), &held}})
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	appendAndWait(t, s, k.Run(r, 4))
	appendAndWait(t, s, k.Run(r, 6))
	apply := func(c *storage.Change) func() error {
		return func() error { return errors.Join(s.Apply(t.Context(), []*storage.Change{c}), c.Err) }
	}
	own := func(o *storage.Own) func() error {
		return func() error { return s.ApplyOwn(t.Context(), []*storage.Own{o}) }
	}
	purge := func() error { _, err := s.Purge(t.Context(), k.ID, 1, 1); return err }
	if err := purge(); err != nil {
		t.Fatal(err)
	}
	k.Gone(1, 1)
	for i, write := range []func() error{
		apply(k.React(2, "alice", "+1", true)),  // the first change
		apply(k.React(2, "bob", "+1", true)),    // another of the same message
		apply(k.React(9, "bob", "+1", true)),    // of another
		apply(k.React(2, "alice", "+1", false)), // and of one that was changed before
		own(k.Own("bob", 0, 2, 9)),              // the first deletion
		own(k.Own("bob", 0, 3)),                 // another in the same chunk
		own(k.Own("alice", 3, 2)),               // with a clear
		own(k.Own("alice", 4)),                  // and that alone
		func() error { _, _, err := s.RaiseRead(t.Context(), "bob", k.ID, 7, 1); return err },
	} {
		before := readEverything(t, s, k)
		whileHeld(t, s, &held, write, func() {
			if now := readEverything(t, s, k); !reflect.DeepEqual(now, before) {
				t.Errorf("write %d, which may be lost, is shown:\n%+v\nbefore\n%+v", i, now, before)
			}
		})
		if now := readEverything(t, s, k); reflect.DeepEqual(now, before) {
			t.Errorf("write %d is not shown", i)
		}
		if t.Failed() {
			return
		}
	}
}

// TestReactorInFlight: the same for a reaction that the labels do not name.
func TestReactorInFlight(t *testing.T) {
	var held sync.RWMutex
	s := mustOpen(t, Options{Dir: "data", FS: heldFS{vfs.NewMem(), &held}})
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	appendAndWait(t, s, k.Run(r, 4))
	reactor := func(changeSeq uint64, count uint32, on bool) func() error {
		c := &storage.Change{
			Conversation: k.ID, Seq: 2, ChangeSeq: changeSeq, TimeMS: 1, Reactor: &storage.Reactor{User: "fan0", Reaction: "+1", On: on},
			Labels: storage.Labels{Reactions: []storage.Reaction{{Kind: "+1", Count: count, Users: []string{"bob"}}}},
		}
		return func() error { return errors.Join(s.Apply(t.Context(), []*storage.Change{c}), c.Err) }
	}
	for i, write := range []func() error{reactor(1, 3, true), reactor(2, 2, false)} {
		before := readEverything(t, s, k)
		whileHeld(t, s, &held, write, func() {
			if now := readEverything(t, s, k); !reflect.DeepEqual(now, before) {
				t.Errorf("write %d, which may be lost, is shown:\n%+v\nbefore\n%+v", i, now, before)
			}
		})
	}
}

// TestPurgeInFlight: what is being purged is shown as gone when it is gone for good. Until then a reader of it waits; others do not.
func TestPurgeInFlight(t *testing.T) {
	var held sync.RWMutex
	s := mustOpen(t, Options{Dir: "data", FS: heldFS{vfs.NewMem(), &held}})
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	appendAndWait(t, s, k.Run(r, 4))
	appendAndWait(t, s, k.Run(r, 6))
	read := func(ctx context.Context, from, to uint64) error {
		return s.Read(ctx, storage.Range{Conversation: k.ID, From: from, To: to}, func(*storage.Slot) bool { return true })
	}
	purge := func() error { _, err := s.Purge(t.Context(), k.ID, 2, 5); return err }
	whileHeld(t, s, &held, purge, func() {
		if err := read(t.Context(), 6, 10); err != nil {
			t.Error(err)
		}
		k.CheckState(t, s, 10)
		k.CheckRecent(t, s, 10)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := read(ctx, 1, 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a purge that may be lost is shown: %v", err)
		}
	})
	k.Gone(2, 5)
	k.Check(t, s, 10)
	if len(s.flight.purges)+len(s.flight.values) != 0 {
		t.Error("something is in flight for ever")
	}
}
