package mongo

import (
	"testing"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/storagetest"
)

var _ interface {
	storage.Buckets
	storage.Directory
	storage.Changes
	storage.Operator
} = (*Store)(nil)

func TestDirectory(t *testing.T) {
	t.Parallel()
	storagetest.TestDirectory(t, backend)
}

func TestChanges(t *testing.T) {
	t.Parallel()
	storagetest.TestChanges(t, backend)
}
func TestOperator(t *testing.T) {
	t.Parallel()
	storagetest.TestOperator(t, backend)
}

// TestMarksInHistories: random histories of messages, labels, deletions, marks and purges, while the store is closed and opened again.
func TestMarksInHistories(t *testing.T) {
	t.Parallel()
	storagetest.TestHistories(t, 12, func(tb testing.TB) storagetest.Backend {
		uri := mongotest.Database(tb)
		var reopen func() storagetest.Backend
		reopen = func() storagetest.Backend {
			s := openAt(tb, uri)
			return storagetest.Backend{Buckets: s, Directory: s, Changes: s, Operator: s, Repeats: true, Borders: true, Reopen: reopen}
		}
		return reopen()
	})
}
