package storagetest

import (
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Power is a file system in memory whose power can be cut before any of its operations that change something. What was synced by then
// is there after it; of the rest, each block and each name is there or not.
type Power struct {
	vfs.FS
	mem *vfs.MemFS

	mu    sync.Mutex
	left  int // operations until the cut; below 0: never
	cfg   vfs.CrashCloneCfg
	after *vfs.MemFS
}

// NewPower is a file system on mem, which must be one that can crash: vfs.NewCrashableMem, or what After returned.
func NewPower(mem *vfs.MemFS) *Power { return &Power{FS: mem, mem: mem, left: -1} }

// CutAfter has the power cut after so many more operations, with percent of what is not synced surviving. r is used at that moment.
func (p *Power) CutAfter(operations, percent int, r *rand.Rand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.cfg = operations, vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: r}
}

// IsCut tells whether the power was cut. What a program on this file system learns from then on is not true any more: it goes on, on a disk
// that nobody will see again. Whatever it learnt before IsCut returned false, it learnt before the cut.
func (p *Power) IsCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after != nil
}

// After cuts the power unless it is, and returns the disk as it is when the power is back.
func (p *Power) After() *vfs.MemFS {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
	return p.after
}

func (p *Power) cut() {
	if p.after == nil {
		p.after = p.mem.CrashClone(p.cfg)
	}
}

// step counts an operation.
func (p *Power) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		p.cut()
	}
	p.left--
}

// Unwrap implements vfs.FS.
func (p *Power) Unwrap() vfs.FS { return p.FS }

func (p *Power) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return powerFile{f, p}, nil
}

// Create implements vfs.FS.
func (p *Power) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	p.step()
	return p.file(p.FS.Create(name, c))
}

// OpenReadWrite implements vfs.FS.
func (p *Power) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	p.step()
	return p.file(p.FS.OpenReadWrite(name, c, o...))
}

// ReuseForWrite implements vfs.FS.
func (p *Power) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	p.step()
	return p.file(p.FS.ReuseForWrite(from, to, c))
}

// OpenDir implements vfs.FS.
func (p *Power) OpenDir(name string) (vfs.File, error) { return p.file(p.FS.OpenDir(name)) }

// Rename implements vfs.FS.
func (p *Power) Rename(from, to string) error { p.step(); return p.FS.Rename(from, to) }

// Remove implements vfs.FS.
func (p *Power) Remove(name string) error { p.step(); return p.FS.Remove(name) }

// Link implements vfs.FS.
func (p *Power) Link(from, to string) error { p.step(); return p.FS.Link(from, to) }

type powerFile struct {
	vfs.File
	p *Power
}

// Write implements vfs.File.
func (f powerFile) Write(b []byte) (int, error) { f.p.step(); return f.File.Write(b) }

// WriteAt implements vfs.File.
func (f powerFile) WriteAt(b []byte, at int64) (int, error) { f.p.step(); return f.File.WriteAt(b, at) }

// Sync implements vfs.File.
func (f powerFile) Sync() error { f.p.step(); return f.File.Sync() }

// SyncData implements vfs.File.
func (f powerFile) SyncData() error { f.p.step(); return f.File.SyncData() }

// SyncTo implements vfs.File.
func (f powerFile) SyncTo(n int64) (bool, error) { f.p.step(); return f.File.SyncTo(n) }
