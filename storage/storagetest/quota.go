package storagetest

import (
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Quota is a file system of a limited size on top of another one, which should be empty at the beginning. When it is full, a write
// stores what fits and fails with ENOSPC, and a new file cannot be made. All methods are safe from any goroutine.
type Quota struct {
	vfs.FS

	mu    sync.Mutex
	limit int64
	used  int64
	fails int  // as Fails counts them
	taken bool // what is removed goes to others
	files map[string]*quotaEntry
}

// quotaEntry is a file with a name. Handles keep it when the name goes.
type quotaEntry struct {
	size    int64
	gone    bool
	mayFail bool
}

// NewQuota is a file system of limit bytes on fs.
func NewQuota(fs vfs.FS, limit int64) *Quota {
	return &Quota{FS: fs, limit: limit, files: make(map[string]*quotaEntry)}
}

// SetLimit changes the size, as when others write files or delete them.
func (q *Quota) SetLimit(limit int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = limit
}

// TakeFreed says whether the space of removed files is gone, as when others write to the disk at the same time.
func (q *Quota) TakeFreed(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = on
}

// Free is what still fits.
func (q *Quota) Free() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(q.limit-q.used, 0)
}

// Used is the size of all files.
func (q *Quota) Used() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

// Fails is how many writes did not fit, without those of Pebble's compactions, which can fail.
func (q *Quota) Fails() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fails
}

// GetDiskUsage implements vfs.FS.
func (q *Quota) GetDiskUsage(string) (vfs.DiskUsage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return vfs.DiskUsage{AvailBytes: uint64(max(q.limit-q.used, 0)), TotalBytes: uint64(q.limit), UsedBytes: uint64(q.used)}, nil
}

// Unwrap implements vfs.FS.
func (q *Quota) Unwrap() vfs.FS { return q.FS }

// grow makes a file at least size bytes long, as far as there is room, and returns how long it may be.
func (q *Quota) grow(e *quotaEntry, size int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if more := size - e.size; more > 0 && !e.gone {
		if more > q.limit-q.used {
			q.fail(e.mayFail)
			more = max(q.limit-q.used, 0)
		}
		e.size += more
		q.used += more
		size = e.size
	}
	return size
}

// entry is the file of that name, made when there is none.
func (q *Quota) entry(name string, c vfs.DiskWriteCategory, fresh bool) (*quotaEntry, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.files[name]; e != nil && !fresh {
		return e, nil
	}
	mayFail := c == "pebble-compaction" || c == "pebble-blob-file-rewrite"
	if q.used >= q.limit {
		q.fail(mayFail)
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	q.drop(name)
	e := &quotaEntry{mayFail: mayFail}
	q.files[name] = e
	return e, nil
}

func (q *Quota) fail(may bool) {
	if !may {
		q.fails++
	}
}

func (q *Quota) drop(name string) {
	if e := q.files[name]; e != nil {
		q.used -= e.size
		if q.taken {
			q.limit -= e.size
		}
		e.gone = true
		delete(q.files, name)
	}
}

func (q *Quota) file(e *quotaEntry, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &quotaFile{File: f, q: q, e: e}, nil
}

// Create implements vfs.FS.
func (q *Quota) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	e, err := q.entry(name, c, true)
	if err != nil {
		return nil, err
	}
	f, err := q.FS.Create(name, c)
	return q.file(e, f, err)
}

// OpenReadWrite implements vfs.FS.
func (q *Quota) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	e, err := q.entry(name, c, false)
	if err != nil {
		return nil, err
	}
	f, err := q.FS.OpenReadWrite(name, c, o...)
	return q.file(e, f, err)
}

// ReuseForWrite implements vfs.FS.
func (q *Quota) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := q.FS.ReuseForWrite(from, to, c)
	if err != nil {
		return nil, err
	}
	q.rename(from, to)
	e, err := q.entry(to, c, false)
	return q.file(e, f, err)
}

func (q *Quota) rename(from, to string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.files[from]; e != nil {
		q.drop(to)
		delete(q.files, from)
		q.files[to] = e
	}
}

// Rename implements vfs.FS.
func (q *Quota) Rename(from, to string) error {
	err := q.FS.Rename(from, to)
	if err == nil {
		q.rename(from, to)
	}
	return err
}

// Remove implements vfs.FS.
func (q *Quota) Remove(name string) error {
	err := q.FS.Remove(name)
	if err == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.drop(name)
	}
	return err
}

// RemoveAll implements vfs.FS.
func (q *Quota) RemoveAll(name string) error {
	err := q.FS.RemoveAll(name)
	if err == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		for file := range q.files {
			if strings.HasPrefix(file, name+"/") || file == name {
				q.drop(file)
			}
		}
	}
	return err
}

// quotaFile is a file that is written from its beginning to its end.
type quotaFile struct {
	vfs.File
	q  *Quota
	e  *quotaEntry
	at int64
}

// Write implements vfs.File.
func (f *quotaFile) Write(b []byte) (int, error) {
	may := f.q.grow(f.e, f.at+int64(len(b))) - f.at
	if may >= int64(len(b)) {
		n, err := f.File.Write(b)
		f.at += int64(n)
		return n, err
	}
	n, err := f.File.Write(b[:max(may, 0)])
	f.at += int64(n)
	if err == nil {
		err = syscall.ENOSPC
	}
	return n, err
}

// WriteAt implements vfs.File.
func (f *quotaFile) WriteAt(b []byte, at int64) (int, error) {
	if f.q.grow(f.e, at+int64(len(b))) < at+int64(len(b)) {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(b, at)
}

// Preallocate implements vfs.File.
func (f *quotaFile) Preallocate(at, n int64) error {
	if f.q.grow(f.e, at+n) < at+n {
		return syscall.ENOSPC
	}
	return f.File.Preallocate(at, n)
}
