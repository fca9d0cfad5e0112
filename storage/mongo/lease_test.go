package mongo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
)

const leasePatience = 30 * time.Second

func leaseStore(t *testing.T, uri string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{URI: uri})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func mustLease(t *testing.T, s *Store, server string) *Lease {
	t.Helper()
	l, err := s.Lease(t.Context(), LeaseOptions{Server: server, Host: "host-of-" + server, Every: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // some tests close it, or cut it off
	return l
}

// untilLease waits until the condition holds.
func untilLease(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(leasePatience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", leasePatience, what)
		}
	}
}

// One server has the database; another is kept out until that one gives it back.
func TestLease(t *testing.T) {
	s := leaseStore(t, mongotest.Database(t))
	first := mustLease(t, s, "a")
	untilLease(t, "the holder is ready", func() bool { return first.Ready() == nil })
	for range 3 {
		_, err := s.Lease(t.Context(), LeaseOptions{Server: "b", Host: "other"})
		if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "host-of-a") {
			t.Fatalf("a second server: %v", err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := mustLease(t, s, "b")
	untilLease(t, "the successor is ready", func() bool { return second.Ready() == nil })
}

// The same server takes over from its earlier run, which may think that it is alive: that one learns it.
func TestLeaseTakenOver(t *testing.T) {
	s := leaseStore(t, mongotest.Database(t))
	before := mustLease(t, s, "a")
	now := mustLease(t, s, "a")
	select {
	case <-before.Lost():
	case <-time.After(leasePatience):
		t.Fatal("the earlier run does not learn that it lost the lease")
	}
	if err := before.Ready(); !errors.Is(err, ErrHeld) {
		t.Errorf("the earlier run says %v", err)
	}
	if err := before.Close(); err != nil {
		t.Error(err)
	}
	renewals := leaseRenewed(t, s)
	untilLease(t, "a renewal", func() bool { return leaseRenewed(t, s) > renewals })
	untilLease(t, "the holder is ready, after its earlier run closed", func() bool { return now.Ready() == nil })
}

func leaseRenewed(t *testing.T, s *Store) bson.DateTime {
	t.Helper()
	var d leaseDocument
	if err := s.meta.FindOne(t.Context(), bson.D{{Key: "_id", Value: leaseID}}).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d.Renewed
}

// A lease that was not renewed for leaseTime is free; one that was a moment less long ago is not.
func TestLeaseExpires(t *testing.T) {
	s := leaseStore(t, mongotest.Database(t))
	now, err := s.clock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put := func(age time.Duration) {
		t.Helper()
		dead := leaseDocument{ID: leaseID, Server: "dead", Run: "r", Host: "h", Renewed: bson.NewDateTimeFromTime(now.Add(-age))}
		if _, err := s.meta.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: leaseID}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.meta.InsertOne(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
	}
	put(-time.Minute) // the clock of a server that took over may be behind
	if _, err := s.Lease(t.Context(), LeaseOptions{Server: "b"}); !errors.Is(err, ErrHeld) {
		t.Errorf("of one that was renewed a moment ago: %v", err)
	}
	put(leaseTime)
	l := mustLease(t, s, "b")
	untilLease(t, "the successor is ready", func() bool { return l.Ready() == nil })
}

// Of many who start at the same moment one gets it.
func TestLeaseRace(t *testing.T) {
	s := leaseStore(t, mongotest.Database(t))
	const many = 20
	got := make(chan *Lease, many)
	for i := range many {
		go func() {
			l, err := s.Lease(t.Context(), LeaseOptions{Server: string(rune('a' + i)), Host: "h"})
			if err != nil && !errors.Is(err, ErrHeld) {
				t.Error(err)
			}
			got <- l
		}()
	}
	winners := 0
	for range many {
		if l := <-got; l != nil {
			winners++
			t.Cleanup(func() { _ = l.Close() }) // the database is dropped
		}
	}
	if winners != 1 {
		t.Errorf("%d servers have the lease", winners)
	}
}

// While the database is away the lease says so; when it is back, so does the lease.
func TestLeaseAway(t *testing.T) {
	proxy := wiretest.Start(t, mongotest.Database(t))
	s := leaseStore(t, proxy.URI())
	l := mustLease(t, s, "a")
	proxy.Down()
	untilLease(t, "unavailable", func() bool { return errors.Is(l.Ready(), storage.ErrUnavailable) })
	proxy.Up()
	untilLease(t, "ready again", func() bool { return l.Ready() == nil })
	select {
	case <-l.Lost():
		t.Error("the lease is lost")
	default:
	}
}
