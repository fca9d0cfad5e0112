package embedded

import (
	"crypto/rand"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A full disk. Pebble ends the process when a write to its log fails, so it must not come to that:
//
//  1. Below a reserve of free space writes are refused with ErrFull. Free space is looked at every second, and before as much was written as
//     could have used it up. Reads, and compactions, which free space, go on.
//  2. When a write finds the disk full all the same (others write to it too), a file that was held for that is given back, and the write
//     is done again.
//  3. When that is gone or was not enough, the write waits until there is space.
//  4. A compaction that finds the disk full fails instead, which gives back what it took, and the next one waits until writes are taken again.
//
// When there is space again, writes go on, and the ballast is made anew.
type space struct {
	s       *Store
	files   vfs.FS // below the one that Pebble uses
	ballast string // the file
	size    int64  // of the ballast

	full  atomic.Bool  // writes are refused
	tight atomic.Bool  // a compaction found the disk full since full was set
	left  atomic.Int64 // what may be written before free space is looked at again
	free  atomic.Int64 // when it was last looked at; -1: not known

	mu      sync.Mutex // guards the ballast
	held    bool       // it is there
	poke    chan struct{}
	stop    chan struct{}
	stopped sync.Once
	done    sync.WaitGroup
}

const (
	spaceInterval = time.Second
	spaceFactor   = 4               // bytes on the disk for a byte in a batch, at most: log, table, and the same again while tables are merged
	spaceRetry    = time.Second / 5 // while a write or a compaction waits for space
)

func (sp *space) init(s *Store) {
	sp.s, sp.files = s, s.o.FS
	sp.ballast = sp.files.PathJoin(s.o.Dir, "ballast")
	sp.size = s.o.ReserveBytes / 4
	sp.poke, sp.stop = make(chan struct{}, 1), make(chan struct{})
	_, err := sp.files.Stat(sp.ballast)
	sp.held = err == nil
	sp.look()
}

// watch starts the goroutine that looks at free space.
func (sp *space) watch() {
	sp.done.Go(func() {
		tick := time.NewTicker(spaceInterval)
		defer tick.Stop()
		for {
			sp.look()
			sp.hold()
			select {
			case <-tick.C:
			case <-sp.poke:
			case <-sp.stop:
				return
			}
		}
	})
}

func (sp *space) close() {
	sp.stopped.Do(func() { close(sp.stop) })
	sp.done.Wait()
}

func (sp *space) closing() bool {
	select {
	case <-sp.stop:
		return true
	default:
		return false
	}
}

// spend notes that n bytes go to the disk.
func (sp *space) spend(n int) {
	if sp.left.Add(-int64(n)) < 0 {
		select {
		case sp.poke <- struct{}{}:
		default:
		}
	}
}

// look sets full, and how much may be written before the next look.
func (sp *space) look() {
	u, err := sp.files.GetDiskUsage(sp.s.o.Dir)
	if errors.Is(err, vfs.ErrUnsupported) { // as in memory
		sp.free.Store(-1)
		sp.left.Store(1 << 62)
		return
	}
	if err != nil {
		sp.s.o.Logger.Error("cannot tell the free space of the data folder's disk", "err", err)
		return
	}
	free := int64(u.AvailBytes)
	sp.free.Store(free)
	sp.left.Store(max(free-sp.s.o.ReserveBytes, 0) / spaceFactor)
	full := free < sp.s.o.ReserveBytes
	if !full {
		sp.tight.Store(false)
	}
	if was := sp.full.Swap(full); was == full {
		return
	}
	if full {
		sp.s.o.Logger.Error("the disk is nearly full: messages are refused until space is freed", "free", free, "reserve", sp.s.o.ReserveBytes)
		sp.s.m.diskFull.Inc()
	} else {
		sp.s.o.Logger.Info("the disk has space again: messages are accepted", "free", free)
	}
}

// hold makes the ballast when it is missing and there is plenty of space for it.
func (sp *space) hold() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	free := sp.free.Load()
	if sp.held || sp.full.Load() || free >= 0 && free < sp.s.o.ReserveBytes+2*sp.size {
		return
	}
	if err := sp.makeBallast(); err != nil {
		sp.s.o.Logger.Warn("cannot make the file that is held for a full disk", "file", sp.ballast, "err", err)
		_ = sp.files.Remove(sp.ballast) // a part of it is of no use
		return
	}
	sp.held = true
}

func (sp *space) makeBallast() error {
	f, err := sp.files.Create(sp.ballast, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// Only there does Preallocate take the space for sure, or say that it did not.
	err = f.Preallocate(0, sp.size)
	if err != nil || runtime.GOOS != "linux" {
		err = fill(f, sp.size)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// fill writes what no file system can make smaller.
func fill(f vfs.File, size int64) error {
	block := make([]byte, 64<<10)
	for ; size > 0; size -= int64(len(block)) {
		_, _ = rand.Read(block)
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return nil
}

// giveBack removes the ballast. It tells whether there was one.
func (sp *space) giveBack() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if !sp.held {
		return false
	}
	sp.held = false
	err := sp.files.Remove(sp.ballast)
	sp.s.o.Logger.Error("the disk is full: the file that was held for that is given back, messages are refused", "file", sp.ballast, "err", err)
	return err == nil
}

// onFull is called when a write found the disk full; all other writes wait until it returns, and then this one is done again.
func (sp *space) onFull() {
	if !sp.full.Swap(true) {
		sp.s.m.diskFull.Inc()
	}
	sp.giveBack()
	for warned := false; !sp.closing(); warned = true {
		u, err := sp.files.GetDiskUsage(sp.s.o.Dir)
		if err != nil || int64(u.AvailBytes) >= sp.size/2 {
			return
		}
		if !warned {
			sp.s.o.Logger.Error("the disk is full: writes wait until space is freed", "free", u.AvailBytes)
		}
		select {
		case <-time.After(spaceRetry):
		case <-sp.stop:
		}
	}
}
