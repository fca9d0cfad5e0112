package embedded

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-im/parley/storage"
)

// Options of a store. All but Dir have useful zeros.
type Options struct {
	// Dir is the data folder. The store keeps to the folder "db" and the file "ballast" in it. What is missing is made, mode 0700.
	Dir string
	// FS is where Dir is; nil: the operating system's files.
	FS vfs.FS
	// CacheBytes is for blocks that were read; 0: 256 MiB. It is taken as it is needed.
	CacheBytes int64
	// ReserveBytes is the free space below which nothing is written any more, so that reads and clean-up go on; 0: 256 MiB. A quarter
	// of it is held in a file, to be given back when the disk is full all the same.
	ReserveBytes int64
	// Partitions of the Log; 0: 1. Each is one goroutine's work.
	Partitions int
	// QueueBytes bounds the records that wait in the Log; 0: 64 MiB.
	QueueBytes int64
	// Now is the clock of the Log; nil: time.Now.
	Now func() time.Time
	// Logger; nil: none.
	Logger *slog.Logger
	// Registerer of the metrics; nil: none.
	Registerer prometheus.Registerer
	// Fatal is called when a write failed in a way after which it is not known what the disk holds. It should end the process: the store
	// cannot be used any more. nil: it is logged, and the process ends with status 1. Any goroutine may call it.
	Fatal func(error)

	tune func(*pebble.Options) // for tests
}

// Store implements storage.Buckets, storage.Directory, storage.Changes and storage.Operator in a folder. All methods are safe from any goroutine.
type Store struct {
	o      Options
	db     *pebble.DB
	lock   *pebble.Lock
	epoch  string
	space  space
	m      *metrics
	gate   gate
	flight flight

	order sync.Mutex // held from the comparison of the tails until the batch is applied; guards tails and key
	tails tails
	key   []byte

	rowLocks rowLocks
	rewrite  atomic.Int32 // Compacts that are running
}

// A store's own keys.
var (
	formatKey = []byte("#format")
	epochKey  = []byte("#epoch")
	stampKey  = []byte("#stamp") // the highest that was given out, 8 bytes, big-endian; in every batch
)

// format is of the layout as a whole. Format 1 had no labels, nor anything else above the run mark; a store with it becomes one of format 2 when it
// is opened, so that a server that knows only format 1 refuses it and does not take labels for damage.
const format = "2"

// Open opens the store in a folder, and makes it when there is none. Every error says what to do about it.
func Open(o Options) (*Store, error) {
	s := &Store{o: withDefaults(o)}
	s.rowLocks.init()
	s.flight.init()
	s.m = newMetrics(s)
	dir := s.o.FS.PathJoin(s.o.Dir, "db")
	if err := makeDir(s.o.FS, dir); err != nil {
		return nil, fmt.Errorf("embedded: cannot make the data folder: %w: check the path and its owner, or choose another", err)
	}
	var err error
	if s.lock, err = pebble.LockDirectory(dir, s.o.FS); err != nil {
		return nil, lockError(s.o.Dir, err)
	}
	s.space.init(s)
	if err := s.open(dir); err != nil {
		s.space.close()
		return nil, errors.Join(err, s.lock.Close())
	}
	s.space.watch()
	return s, nil
}

func withDefaults(o Options) Options {
	o.FS = cmp.Or(o.FS, vfs.Default)
	o.CacheBytes = cmp.Or(o.CacheBytes, 256<<20)
	o.ReserveBytes = cmp.Or(o.ReserveBytes, 256<<20)
	o.Partitions = cmp.Or(o.Partitions, 1)
	o.QueueBytes = cmp.Or(o.QueueBytes, 64<<20)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) {
			o.Logger.Error("the store failed, the process ends", "err", err)
			os.Exit(1)
		}
	}
	return o
}

// makeDir makes a folder that is still there after a power cut.
func makeDir(files vfs.FS, dir string) error {
	existing := dir
	for {
		if _, err := files.Stat(existing); err == nil || files.PathDir(existing) == existing {
			break
		}
		existing = files.PathDir(existing)
	}
	if err := files.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for {
		if err := syncDir(files, dir); err != nil || dir == existing {
			return err
		}
		dir = files.PathDir(dir)
	}
}

func syncDir(files vfs.FS, dir string) error {
	d, err := files.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func lockError(dir string, err error) error {
	if errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("embedded: may not write to the data folder %s: %w: start the server as its owner", dir, err)
	}
	return fmt.Errorf("embedded: the data folder %s is in use: %w: stop the server that uses it, or choose another folder", dir, err)
}

func (s *Store) open(dir string) error {
	var err error
	if s.db, err = pebble.Open(dir, s.pebbleOptions()); err != nil {
		return fmt.Errorf("embedded: cannot open the data folder %s: %w: if a newer server wrote it, use that one; if the disk is full, free some space; "+
			"if it is damaged, restore it from a backup", s.o.Dir, err)
	}
	if err := cmp.Or(s.openMeta(), s.m.register(s.o.Registerer)); err != nil {
		return errors.Join(err, s.db.Close())
	}
	return nil
}

// openMeta reads what the store knows of itself, or gives a new one its identity.
func (s *Store) openMeta() error {
	found, err := s.get(formatKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return s.makeMeta()
	}
	if err != nil {
		return fmt.Errorf("embedded: cannot read the data folder %s: %w: restore it from a backup", s.o.Dir, err)
	}
	if string(found) == "1" {
		if err := s.db.Set(formatKey, []byte(format), pebble.Sync); err != nil {
			return fmt.Errorf("embedded: cannot bring the data folder %s to format %s: %w", s.o.Dir, format, err)
		}
	} else if string(found) != format {
		return fmt.Errorf("embedded: the data folder %s has format %q, this server knows %q: use the server that wrote it, or a newer one",
			s.o.Dir, found, format)
	}
	epoch, err := s.get(epochKey)
	if err == nil {
		s.epoch = string(epoch)
		found, err = s.get(stampKey)
	}
	if err == nil && len(found) != 8 {
		err = damaged("the stamp", stampKey)
	}
	if err != nil {
		return fmt.Errorf("embedded: cannot read the data folder %s: %w: restore it from a backup", s.o.Dir, err)
	}
	s.flight.last = storage.Stamp(binary.BigEndian.Uint64(found))
	return nil
}

func (s *Store) makeMeta() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	empty := !it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if !empty {
		return fmt.Errorf("embedded: the data folder %s holds data of another program: choose another folder", s.o.Dir)
	}
	s.epoch = rand.Text()
	b := s.db.NewBatch()
	err = errors.Join(b.Set(formatKey, []byte(format), nil), b.Set(epochKey, []byte(s.epoch), nil), b.Set(stampKey, make([]byte, 8), nil))
	return errors.Join(err, b.Commit(pebble.Sync), b.Close())
}

// Writable is nil while writes are taken, ErrFull while the disk has less free space than the reserve, and ErrClosed after Close.
func (s *Store) Writable() error {
	switch {
	case s.gate.closed():
		return storage.ErrClosed
	case s.space.full.Load():
		return storage.ErrFull
	}
	return nil
}

// Close refuses new calls with ErrClosed, waits for those that are inside, and for every Commit to be waited for, and closes the files.
// Only the first call does anything.
func (s *Store) Close() error {
	s.space.close()
	if !s.gate.close() {
		return nil
	}
	s.m.unregister(s.o.Registerer)
	return errors.Join(s.db.Close(), s.lock.Close())
}

// fail ends it after a write of which it is not known whether it is on the disk. While closing on a full disk that is no surprise,
// and nobody was told that the write succeeded.
func (s *Store) fail(err error) error {
	err = fmt.Errorf("embedded: a write failed: %w", err)
	if !s.space.closing() {
		s.o.Fatal(err)
	}
	return err
}
