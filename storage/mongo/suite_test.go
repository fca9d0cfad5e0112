package mongo

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/storagetest"
)

// openStore opens a store on a database of its own.
func openStore(tb testing.TB, change ...func(*Options)) *Store {
	tb.Helper()
	return openAt(tb, mongotest.Database(tb), change...)
}

// openAt opens a store on a database.
func openAt(tb testing.TB, uri string, change ...func(*Options)) *Store {
	tb.Helper()
	o := Options{URI: uri, Timeout: 20 * time.Second, RetryFor: 60 * time.Second}
	for _, c := range change {
		c(&o)
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

func backend(tb testing.TB) storagetest.Backend {
	s := openStore(tb)
	return storagetest.Backend{Buckets: s, Directory: s, Changes: s, Operator: s, Repeats: true, Borders: true}
}

func TestBuckets(t *testing.T) { storagetest.TestBuckets(t, backend) }

// onlyLarge skips a test that keeps the server so busy that others run out of time, unless PARLEY_TEST_LARGE is 1.
func onlyLarge(t *testing.T) {
	t.Helper()
	if os.Getenv("PARLEY_TEST_LARGE") != "1" {
		t.Skip("runs with PARLEY_TEST_LARGE=1")
	}
}
