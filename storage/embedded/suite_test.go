package embedded_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
	"github.com/parley-im/parley/storage/storagetest"
)

// open opens a store for a test or benchmark, and closes it at the end.
func open(tb testing.TB, o embedded.Options) *embedded.Store {
	tb.Helper()
	s, err := embedded.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// backend is a store in the folder "data" of a file system, or of the operating system's.
func backend(tb testing.TB, o embedded.Options) storagetest.Backend {
	s := open(tb, o)
	return storagetest.Backend{
		Buckets: s, Directory: s, Changes: s, Operator: s,
		Reopen: func() storagetest.Backend {
			tb.Helper()
			if err := s.Close(); err != nil {
				tb.Fatal(err)
			}
			return backend(tb, o)
		},
	}
}

// inMemory and onSlowDisk are for the suites, onDisk for the benchmarks.
func inMemory(tb testing.TB) storagetest.Backend {
	return backend(tb, embedded.Options{Dir: "data", FS: vfs.NewMem()})
}

func onSlowDisk(tb testing.TB) storagetest.Backend {
	return backend(tb, embedded.Options{Dir: "data", FS: storagetest.Slow{FS: vfs.NewMem(), Sync: time.Millisecond}})
}

func onDisk(tb testing.TB) storagetest.Backend {
	return backend(tb, embedded.Options{Dir: tb.TempDir()})
}

func TestBuckets(t *testing.T) { storagetest.TestBuckets(t, inMemory) }

func TestBucketsSlowDisk(t *testing.T) {
	t.Parallel()
	storagetest.TestBuckets(t, onSlowDisk)
}

var _ storage.Buckets = (*embedded.Store)(nil)

func TestDirectory(t *testing.T) { storagetest.TestDirectory(t, inMemory) }

func TestDirectorySlowDisk(t *testing.T) {
	t.Parallel()
	storagetest.TestDirectory(t, onSlowDisk)
}

func TestChanges(t *testing.T) { storagetest.TestChanges(t, inMemory) }

func TestChangesSlowDisk(t *testing.T) {
	t.Parallel()
	storagetest.TestChanges(t, onSlowDisk)
}

var _ storage.Changes = (*embedded.Store)(nil)

func TestOperator(t *testing.T) { storagetest.TestOperator(t, inMemory) }

func TestOperatorSlowDisk(t *testing.T) {
	t.Parallel()
	storagetest.TestOperator(t, onSlowDisk)
}

var _ storage.Operator = (*embedded.Store)(nil)

func TestHistories(t *testing.T) {
	histories := 300
	if testing.Short() {
		histories = 40
	}
	storagetest.TestHistories(t, histories, inMemory)
}

func routes(_ testing.TB, maxPerUser int) storage.Routes { return embedded.NewRoutes(maxPerUser) }

func TestRoutes(t *testing.T) { storagetest.TestRoutes(t, routes) }

// log is a maker of logs with so many partitions.
func log(partitions int) func(tb testing.TB, queueBytes int64) storage.Log {
	return func(tb testing.TB, queueBytes int64) storage.Log {
		return open(tb, embedded.Options{Dir: "data", FS: vfs.NewMem(), Partitions: partitions, QueueBytes: queueBytes}).NewLog()
	}
}

func TestLog(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint("partitions=", partitions), func(t *testing.T) { storagetest.TestLog(t, log(partitions)) })
	}
}

func BenchmarkBuckets(b *testing.B)   { storagetest.BenchmarkBuckets(b, onDisk) }
func BenchmarkDirectory(b *testing.B) { storagetest.BenchmarkDirectory(b, onDisk) }
func BenchmarkRoutes(b *testing.B)    { storagetest.BenchmarkRoutes(b, routes) }
func BenchmarkLog(b *testing.B)       { storagetest.BenchmarkLog(b, log(2)) }
