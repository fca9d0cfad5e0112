package storagetest

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Slow is a file system on which a sync takes a while, as on a disk: in memory what is written is durable before anybody can look.
type Slow struct {
	vfs.FS
	Sync time.Duration
}

// Unwrap implements vfs.FS.
func (s Slow) Unwrap() vfs.FS { return s.FS }

// Create implements vfs.FS.
func (s Slow) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.file(s.FS.Create(name, c))
}

// ReuseForWrite implements vfs.FS.
func (s Slow) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.file(s.FS.ReuseForWrite(from, to, c))
}

func (s Slow) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, s.Sync}, nil
}

type slowFile struct {
	vfs.File
	sync time.Duration
}

// Sync implements vfs.File.
func (f slowFile) Sync() error {
	time.Sleep(f.sync)
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f slowFile) SyncData() error {
	time.Sleep(f.sync)
	return f.File.SyncData()
}
