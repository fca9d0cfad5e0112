package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

const unit = 256 << 10 // disks are small here, so that they are soon full

// fullDisk is a store on a disk that gets full, and what was stored in it.
type fullDisk struct {
	t     *testing.T
	r     *rand.Rand
	disk  *storagetest.Quota
	store *Store
	talk  *storagetest.Talk
	tail  uint64 // of what was stored

	byHand bool // compactions are
}

func newFullDisk(t *testing.T, limit int64, byHand bool) *fullDisk {
	d := &fullDisk{t: t, byHand: byHand, r: rand.New(rand.NewPCG(1, 1)), disk: storagetest.NewQuota(vfs.NewMem(), limit), talk: storagetest.Direct("alice", "bob")}
	d.open()
	return d
}

func (d *fullDisk) open() {
	store, err := Open(Options{
		Dir: "data", FS: d.disk, ReserveBytes: 8 * unit, Fatal: func(err error) { d.t.Errorf("the process would have ended: %v", err) },
		tune: func(o *pebble.Options) { o.MemTableSize, o.DisableAutomaticCompactions = unit, d.byHand },
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.store = store
	d.t.Cleanup(func() { d.store.Close() })
}

// append stores a run, of about 30 KB.
func (d *fullDisk) append() error {
	run := d.talk.Run(d.r, 100)
	c, err := d.store.Append(d.t.Context(), []*storage.Run{run})
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		d.talk.Cut(d.tail)
		return err
	}
	if run.Err != nil {
		d.t.Fatal(run.Err)
	}
	d.tail = d.talk.Tail()
	return nil
}

// fill appends until that is refused.
func (d *fullDisk) fill() {
	d.t.Helper()
	for range 100_000 {
		err := d.append()
		if errors.Is(err, storage.ErrFull) {
			d.disk.TakeFreed(true) // or compactions could make room
			if d.append() != nil {
				return
			}
			d.disk.TakeFreed(false)
			continue
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	d.t.Fatal("the disk never got full")
}

// waitFor waits until ok.
func (d *fullDisk) waitFor(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (d *fullDisk) held() bool {
	d.store.space.mu.Lock()
	defer d.store.space.mu.Unlock()
	return d.store.space.held
}

// takes tells whether writes are taken.
func (d *fullDisk) takes() bool {
	d.t.Helper()
	err := d.append()
	if err != nil && !errors.Is(err, storage.ErrFull) {
		d.t.Fatal(err)
	}
	return err == nil
}

// TestDiskFull: below the reserve nothing is written, everything can be read; when there is space again, writes go on.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	d := newFullDisk(t, 32*unit, false)
	d.waitFor("the ballast is there", d.held)
	log := d.store.NewLog()
	for range 3 {
		d.fill()
		if free := d.disk.Free(); free > 8*unit {
			t.Fatalf("writes are refused with %d bytes free", free)
		}
		d.talk.Check(t, d.store, d.tail)
		if d.takes() {
			t.Fatal("a write was taken right after one was refused")
		}
		if _, _, err := d.store.RaiseRead(t.Context(), "alice", d.talk.ID, d.tail, 0); !errors.Is(err, storage.ErrFull) {
			t.Fatalf("RaiseRead on a full disk: %v", err)
		}
		if err := d.store.SetSignedOut(t.Context(), "alice", "phone", true); !errors.Is(err, storage.ErrFull) {
			t.Fatalf("SetSignedOut on a full disk: %v", err)
		}
		if err := d.store.SetSignedOut(t.Context(), "alice", "phone", false); err != nil {
			t.Fatalf("SetSignedOut that changes nothing: %v", err)
		}
		for _, err := range []error{d.store.Writable(), log.Ready(), log.Append(&storage.Record{})} {
			if !errors.Is(err, storage.ErrFull) {
				t.Fatalf("on a full disk: %v", err)
			}
		}
		entries, _, err := d.store.Changed(t.Context(), "alice", 0)
		if err != nil || len(entries) != 1 || entries[0].State.Tail != d.tail {
			t.Fatalf("the list on a full disk: %+v, %v", entries, err)
		}
		d.disk.TakeFreed(false)
		d.disk.SetLimit(d.disk.Used() + 40*unit)
		d.waitFor("writes are taken again", d.takes)
		if err := log.Ready(); err != nil {
			t.Fatal(err)
		}
	}
	d.talk.Check(t, d.store, d.tail)
	if d.disk.Fails() != 0 {
		t.Fatalf("%d writes found the disk full", d.disk.Fails())
	}
}

// TestDiskFilledByOthers: the space goes from one moment to the next, while writes are on their way. They are made good with the ballast, or
// wait for space; none is lost, and the process lives.
func TestDiskFilledByOthers(t *testing.T) {
	t.Parallel()
	d := newFullDisk(t, 64*unit, false)
	for round := range 4 {
		d.disk.SetLimit(d.disk.Used() + 64*unit)
		d.waitFor("writes are taken", d.takes)
		d.waitFor("the ballast is there", d.held)
		var writing sync.WaitGroup
		stored := make(chan struct{}, 1)
		writing.Go(func() {
			for {
				if err := d.append(); err != nil {
					if !errors.Is(err, storage.ErrFull) {
						t.Error(err)
					}
					return
				}
				select {
				case stored <- struct{}{}:
				default:
				}
			}
		})
		<-stored
		d.disk.SetLimit(d.disk.Used() + int64(round)*15_000)
		fails := d.disk.Fails()
		if round%2 == 1 { // the ballast goes too, and then there is nothing
			d.waitFor("a write finds the disk full, or is refused", func() bool { return d.disk.Fails() > fails || d.store.Writable() != nil })
			d.disk.SetLimit(0)
		}
		d.waitFor("writes are refused", func() bool { return d.store.Writable() != nil })
		for range 20 { // others write, or wait for the disk; reads go on
			if err := d.store.Read(t.Context(), storage.Range{Conversation: d.talk.ID, From: 1, To: 100, NewestFirst: true}, func(*storage.Slot) bool { return true }); err != nil {
				t.Fatal(err)
			}
		}
		d.disk.SetLimit(d.disk.Used() + 64*unit)
		writing.Wait()
	}
	d.waitFor("writes are taken", d.takes)
	if d.disk.Fails() == 0 {
		t.Fatal("no write found the disk full")
	}
	if err := d.store.Close(); err != nil {
		t.Fatal(err)
	}
	d.open()
	d.talk.Check(t, d.store, d.tail)
}

// TestCloseOnFullDisk: a write that waits for space does not keep the server from stopping, and is not taken for stored.
func TestCloseOnFullDisk(t *testing.T) {
	d := newFullDisk(t, 64*unit, false)
	if err := d.append(); err != nil {
		t.Fatal(err)
	}
	d.waitFor("the ballast is there", d.held)
	d.disk.SetLimit(0)
	run := d.talk.Run(d.r, 100)
	c, err := d.store.Append(t.Context(), []*storage.Run{run})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() { waited <- c.Wait() }()
	d.waitFor("the write finds the disk full", func() bool { return d.disk.Fails() > 0 })
	closed := make(chan struct{})
	go func() {
		d.store.Close() // reports that the log's end could not be written, or not
		close(closed)
	}()
	if err := <-waited; err == nil {
		t.Fatal("a write that did not reach the disk was taken for stored")
	}
	<-closed
	d.disk.SetLimit(64 * unit)
	d.open()
	state, err := d.store.State(context.Background(), d.talk.ID)
	if err != nil || state.Tail < d.tail {
		t.Fatalf("after that: %+v, %v", state, err)
	}
}

// TestOpenOnFullDisk: a server that is started on a full disk serves reads.
func TestOpenOnFullDisk(t *testing.T) {
	t.Parallel()
	d := newFullDisk(t, 32*unit, false)
	d.waitFor("the ballast is there", d.held)
	d.fill()
	if err := d.store.Close(); err != nil {
		t.Fatal(err)
	}
	d.open()
	d.talk.Check(t, d.store, d.tail)
	if d.takes() {
		t.Fatal("a write was taken on a full disk")
	}
	d.disk.SetLimit(64 * unit)
	d.waitFor("writes are taken again", d.takes)
}

// TestCompactionOnFullDisk: a compaction that finds the disk full gives back what it took, has writes refused, and the next one waits for
// space, so that it does not run in circles.
func TestCompactionOnFullDisk(t *testing.T) {
	t.Parallel()
	d := newFullDisk(t, 1<<30, true)
	for range 20 {
		if err := d.append(); err != nil {
			t.Fatal(err)
		}
		if err := d.store.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	d.waitFor("the ballast is there", d.held)
	used := d.disk.Used()
	d.disk.SetLimit(used + 100)
	compact := func() error { return d.store.db.Compact(t.Context(), []byte("a"), []byte("z"), false) }
	if err := compact(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a compaction on a full disk: %v", err)
	}
	d.waitFor("what the compaction took is free", func() bool { return d.disk.Used() <= used })
	if err := d.store.Writable(); !errors.Is(err, storage.ErrFull) || !d.store.space.tight.Load() {
		t.Fatalf("after that: %v", err)
	}
	again := make(chan error, 1)
	go func() { again <- compact() }()
	d.talk.Check(t, d.store, d.tail)
	select {
	case err := <-again:
		t.Fatalf("the next compaction did not wait: %v", err)
	default:
	}
	d.disk.SetLimit(1 << 30)
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	d.waitFor("writes are taken again", d.takes)
	d.talk.Check(t, d.store, d.tail)
	if d.disk.Fails() != 0 {
		t.Fatalf("%d writes other than a compaction's found the disk full", d.disk.Fails())
	}
}
