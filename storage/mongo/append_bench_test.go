package mongo

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
	"github.com/parley-im/parley/storage/storagetest"
)

// commandCounter counts the commands that a store sends.
func commandCounter(n *atomic.Int64) func(*Options) {
	return func(o *Options) {
		o.Monitor = &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { n.Add(1) }}
	}
}

// BenchmarkAppend measures the run-writer by the size of a batch, and beside it a writer that makes one update for each message, 16 at a time:
// the same documents, the same guarantees.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ messages, conversations int }{
		{1, 1}, {10, 1}, {10, 10}, {100, 1}, {100, 100}, {1000, 1}, {1000, 100}, {1000, 1000},
	} {
		name := fmt.Sprintf("messages=%d/conversations=%d", c.messages, c.conversations)
		b.Run(name+"/runs", func(b *testing.B) {
			benchmarkAppend(b, c.messages, c.conversations, func(s *Store, runs []*storage.Run) error {
				commit, err := s.Append(context.Background(), runs)
				if err != nil {
					return err
				}
				return commit.Wait()
			})
		})
		b.Run(name+"/one-update", func(b *testing.B) { benchmarkAppend(b, c.messages, c.conversations, oneUpdateEach) })
	}
}

func benchmarkAppend(b *testing.B, messages, conversations int, write func(*Store, []*storage.Run) error) {
	var commands atomic.Int64
	s, r := openStore(b, commandCounter(&commands)), seeded(1)
	var talks []*storagetest.Talk
	var runs []*storage.Run
	for i := range conversations {
		talks = append(talks, storagetest.Direct("alice", fmt.Sprint("bob", i)))
		runs = append(runs, talks[i].Run(r, 1))
	}
	appendRuns(b, s, runs...)
	before := commands.Load()
	for b.Loop() {
		for i, k := range talks {
			runs[i] = k.Run(r, messages/conversations)
		}
		if err := write(s, runs); err != nil {
			b.Fatal(err)
		}
	}
	done := float64(b.N * messages)
	b.ReportMetric(done/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(commands.Load()-before)/done, "commands/message")
}

// oneUpdateEach stores runs with a command for each message.
func oneUpdateEach(s *Store, runs []*storage.Run) error {
	var all errgroup.Group
	all.SetLimit(16)
	for _, run := range runs {
		q := queued{Run: run}
		if err := q.cut(); err != nil {
			return err
		}
		all.Go(func() error { return updateEach(s, &q) })
	}
	return all.Wait()
}

func updateEach(s *Store, q *queued) error {
	for i := range q.Messages {
		seq := q.First + uint64(i)
		n, slot := plain().bucket(seq)
		t := &talk{id: q.Conversation, runs: []queued{*q}, next: seq}
		t.spot = written{id: plain().id(q.Conversation, n), n: n, place: plain(), insert: slot == 0, to: seq}
		if _, err := s.buckets.BulkWrite(context.Background(), []mongo.WriteModel{t.model()}, unordered()); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkPull measures a read of 20 messages in the middle of a conversation, without a cache and with one that has them.
func BenchmarkPull(b *testing.B) {
	for name, cache := range map[string]storage.BodyCache{"cold": nil, "warm": embedded.NewCache(64 << 20)} {
		b.Run(name, func(b *testing.B) {
			var commands atomic.Int64
			s, r := openStore(b, commandCounter(&commands), func(o *Options) { o.Cache = cache }), seeded(2)
			k := storagetest.Direct("alice", "bob"+strconv.Itoa(len(name)))
			appendRuns(b, s, k.Run(r, 250))
			q := storage.Range{Conversation: k.ID, Viewer: "alice", From: 121, To: 140, Expect: 20}
			read := func() {
				n := 0
				if err := s.Read(context.Background(), q, func(*storage.Slot) bool { n++; return true }); err != nil || n != 20 {
					b.Fatal(n, err)
				}
			}
			read()
			before := commands.Load()
			for b.Loop() {
				read()
			}
			b.ReportMetric(float64(commands.Load()-before)/float64(b.N), "commands/read")
		})
	}
}
