package embedded

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sort"
	"syscall"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// BenchmarkAppend writes batches of runs to the disk, three of them in flight, each made durable. Bodies do not compress, as those of
// encrypted or short messages do not. Run it for a minute at least (-benchtime 60s): the price of compactions comes later.
func BenchmarkAppend(b *testing.B) {
	for _, shape := range []struct{ conversations, runs, perRun int }{{100, 100, 25}, {100, 60, 1}, {100_000, 60, 1}} {
		b.Run(fmt.Sprintf("conversations=%d/runs=%d/messages=%d", shape.conversations, shape.runs, shape.runs*shape.perRun), func(b *testing.B) {
			s, err := Open(Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			benchmarkAppend(b, s, newLoad(shape.conversations, shape.runs, shape.perRun))
			m := s.db.Metrics()
			b.ReportMetric(float64(m.Compact.Duration)/float64(b.Elapsed()), "compacting")
			b.ReportMetric(float64(m.DiskSpaceUsage())/(1<<20), "MiB-disk")
			b.ReportMetric(float64(m.Levels[0].Sublevels), "L0")
		})
	}
}

const wireSize = 225 // bytes of a message with a body of 128

// load makes runs for the conversations in turn.
type load struct {
	ids     []string
	tails   []uint64
	next    int
	runs    int
	perRun  int
	random  []byte
	members [][]string
	list    []*protocol.Message // only its length is looked at
}

func newLoad(conversations, runs, perRun int) *load {
	l := &load{
		runs: runs, perRun: perRun, tails: make([]uint64, conversations), random: make([]byte, 16<<20), list: make([]*protocol.Message, perRun),
	}
	_, _ = rand.Read(l.random)
	for i := range conversations {
		a, b := fmt.Sprintf("user-%08d", 2*i), fmt.Sprintf("user-%08d", 2*i+1)
		l.ids = append(l.ids, protocol.DirectConversation(a, b))
		l.members = append(l.members, []string{a, b})
	}
	return l
}

func (l *load) batch() []*storage.Run {
	batch := make([]*storage.Run, l.runs)
	now := time.Now().UnixMilli()
	for i := range batch {
		c := l.next
		l.next = (l.next + 1) % len(l.ids)
		at := mathrand.IntN(len(l.random) - wireSize*l.perRun)
		r := &storage.Run{
			Conversation: l.ids[c], First: l.tails[c] + 1, Messages: l.list, Wire: l.random[at : at+wireSize*l.perRun], LogTimeMS: now,
			ActiveMS: now - 1, Before: storage.Counts{l.tails[c], 0}, After: storage.Counts{l.tails[c] + uint64(l.perRun), 0},
		}
		if r.First == 1 {
			r.Members = l.members[c]
		}
		l.tails[c] += uint64(l.perRun)
		batch[i] = r
	}
	return batch
}

func benchmarkAppend(b *testing.B, s *Store, l *load) {
	type flying struct {
		c     storage.Commit
		began time.Time
	}
	commits := make(chan flying, 2)
	done := make(chan []time.Duration)
	go func() {
		var waits []time.Duration
		for f := range commits {
			if err := f.c.Wait(); err != nil {
				b.Error(err)
			}
			waits = append(waits, time.Since(f.began))
		}
		done <- waits
	}()
	before := cpu(b)
	n := 0
	for b.Loop() {
		began := time.Now()
		c, err := s.Append(b.Context(), l.batch())
		if err != nil {
			b.Fatal(err)
		}
		commits <- flying{c, began}
		n++
	}
	close(commits)
	waits := <-done
	messages := float64(n * l.runs * l.perRun)
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/messages, "cpu-µs/message")
	b.ReportMetric(messages/b.Elapsed().Seconds(), "messages/s")
	sort.Slice(waits, func(i, j int) bool { return waits[i] < waits[j] })
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1e3, "p99-ms")
	b.ReportMetric(float64(waits[len(waits)-1].Microseconds())/1e3, "max-ms")
}

// cpu is what the process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
