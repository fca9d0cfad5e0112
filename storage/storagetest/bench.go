package storagetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// BenchmarkBuckets measures reads of a store that has been in use for a while: conversations whose messages were written a few at a time.
func BenchmarkBuckets(b *testing.B, open func(tb testing.TB) Backend) {
	s := open(b).Buckets
	talks := history(b, s, 200, 100)
	next := 0
	talk := func() *Talk { next++; return talks[next%len(talks)] }
	b.Run("State", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.State(b.Context(), talk().ID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Recent200", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			if err := s.Recent(b.Context(), talk().ID, func(storage.RecentID) bool { n++; return n < 200 }); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, newestFirst := range []bool{false, true} {
		b.Run(fmt.Sprintf("Read50/newestFirst=%t", newestFirst), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k := talk()
				if err := s.Read(b.Context(), storage.Range{Conversation: k.ID, From: k.Tail() - 60, To: k.Tail() - 11, NewestFirst: newestFirst}, func(*storage.Slot) bool { return true }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// history writes conversations in many small runs each.
func history(b *testing.B, s storage.Buckets, conversations, runs int) []*Talk {
	b.Helper()
	r := seeded(1)
	var talks []*Talk
	for i := range conversations {
		talks = append(talks, Direct("alice", fmt.Sprintf("peer-%06d", i)))
	}
	for range runs {
		var batch []*storage.Run
		for _, k := range talks {
			batch = append(batch, k.Run(r, 1+r.IntN(5)))
		}
		appendRuns(b, s, batch...)
	}
	return talks
}

// BenchmarkDirectory measures a user with very many conversations, and marks that are raised by many at once.
func BenchmarkDirectory(b *testing.B, open func(tb testing.TB) Backend) {
	s := open(b)
	talks := history(b, s.Buckets, 10_000, 3)
	_, upTo, err := s.Directory.Changed(b.Context(), "alice", 0)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		since storage.Stamp
	}{{"Nothing", upTo}, {"All", 0}} {
		b.Run("ChangedOf10000/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := s.Directory.Changed(b.Context(), "alice", c.since); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Entries10", func(b *testing.B) {
		b.ReportAllocs()
		ids := make([]string, 10)
		for n := 0; b.Loop(); n++ {
			for i := range ids {
				ids[i] = talks[(10*n+i)%len(talks)].ID
			}
			if _, err := s.Directory.Entries(b.Context(), "alice", ids); err != nil {
				b.Fatal(err)
			}
		}
	})
	var next, marks atomic.Uint64
	b.Run("RaiseRead/64AtOnce", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				k := talks[next.Add(1)%uint64(len(talks))]
				if _, _, err := s.Directory.RaiseRead(context.Background(), k.Members[1], k.ID, marks.Add(1), 0); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkRoutes measures look-ups while devices come and go.
func BenchmarkRoutes(b *testing.B, open func(tb testing.TB, maxPerUser int) storage.Routes) {
	const users = 100_000
	s := open(b, 10)
	name := make([]string, users)
	for i := range name {
		name[i] = fmt.Sprint("user-", i)
		if _, err := s.Register(b.Context(), route(name[i], "phone", "mobile", protocol.SessionID(1+i)), true); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("Online2", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			out := make([][]storage.Route, 0, 2)
			pair := make([]string, 2)
			for i := 0; pb.Next(); i++ {
				pair[0], pair[1] = name[i*7919%users], name[i*104729%users]
				var err error
				if out, err = s.Online(context.Background(), pair, out[:0]); err != nil || len(out) != 2 {
					b.Error(out, err)
				}
			}
		})
	})
	b.Run("RegisterRemove", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				r := route(name[i*7919%users], "pc", "desktop", protocol.SessionID(users+i))
				_, err := s.Register(context.Background(), r, true)
				if err == nil {
					err = s.Remove(context.Background(), r)
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// drop is a consumer that does nothing.
type drop struct{}

// Process implements storage.Consumer.
func (drop) Process(int, []*storage.Record) {}

// BenchmarkLog measures Append from all processors at once.
func BenchmarkLog(b *testing.B, open func(tb testing.TB, queueBytes int64) storage.Log) {
	l := open(b, 1<<30)
	ended := make(chan error, 1)
	go func() { ended <- l.Consume(drop{}) }()
	recs := make([]*storage.Record, 1000)
	for i := range recs {
		recs[i] = record(fmt.Sprint("g:", i), i, 128)
	}
	b.Run("Append", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			rec := *recs[i%len(recs)] // a record is the log's once it was appended
			if err := l.Append(&rec); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
