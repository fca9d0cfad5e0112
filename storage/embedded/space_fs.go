package embedded

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleFS is the file system for Pebble: one on which a write does not fail for lack of space, but for those of compactions.
type pebbleFS struct {
	vfs.FS // waits for space, or makes it
	below  vfs.FS
	space  *space
}

func (sp *space) pebbleFS() vfs.FS {
	return pebbleFS{FS: vfs.OnDiskFull(sp.files, sp.onFull), below: sp.files, space: sp}
}

// Remove implements vfs.FS. It needs no space, so it does not wait for any.
func (f pebbleFS) Remove(name string) error { return f.below.Remove(name) }

// Create implements vfs.FS. Pebble's marker files name the manifest to start from, and Pebble syncs the names of both with one sync of
// the folder. A file system that keeps names in no order could have the marker after a power cut, and not the manifest. So what is
// there is synced before the marker is made.
func (f pebbleFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if c == "pebble-compaction" || c == "pebble-blob-file-rewrite" {
		return f.createForCompaction(name, c)
	}
	if strings.HasPrefix(f.PathBase(name), "marker.") {
		if err := syncDir(f.FS, f.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return f.FS.Create(name, c)
}

// createForCompaction makes a file of which Pebble can do without.
func (f pebbleFS) createForCompaction(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	for f.space.tight.Load() && !f.space.closing() {
		select {
		case <-time.After(spaceRetry):
		case <-f.space.stop:
		}
	}
	file, err := f.below.Create(name, c)
	if err != nil {
		return nil, f.space.note(err)
	}
	return compactionFile{file, f.space}, nil
}

// Unwrap implements vfs.FS.
func (f pebbleFS) Unwrap() vfs.FS { return f.FS }

// compactionFile is a file that a compaction writes.
type compactionFile struct {
	vfs.File
	space *space
}

// Write implements vfs.File.
func (f compactionFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.space.note(err)
}

// Sync implements vfs.File.
func (f compactionFile) Sync() error { return f.space.note(f.File.Sync()) }

// SyncData implements vfs.File.
func (f compactionFile) SyncData() error { return f.space.note(f.File.SyncData()) }

// note remembers that a compaction found the disk full, and has writes refused.
func (sp *space) note(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		if !sp.full.Swap(true) {
			sp.s.m.diskFull.Inc()
		}
		sp.tight.Store(true)
	}
	return err
}
