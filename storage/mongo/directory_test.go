package mongo

import (
	"testing"

	"github.com/parley-im/parley/storage"
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
