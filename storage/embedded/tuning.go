package embedded

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// pebbleOptions are Pebble's, as they were measured to be right for this load (BenchmarkAppend, for long enough that compactions have their
// say): many small keys, values that are written once and do not compress, and little deletion.
func (s *Store) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		FS:                 s.space.pebbleFS(),
		Lock:               s.lock,
		FormatMajorVersion: pebble.FormatValueSeparation,
		CacheSize:          s.o.CacheBytes,
		Logger:             pebbleLog{s},
		EventListener:      s.events(),

		// The first memtable is small and each is twice the one before, so an idle server does not hold all of it.
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 4,
		// A compaction of more tables at once is less work for each. A burst makes reads slower for a while; it does not stop writes.
		L0CompactionThreshold:      8,
		L0StopWritesThreshold:      1000,
		LBaseMaxBytes:              64 << 20,
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 2 },
		MaxOpenFiles:               1000,
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	// Messages go to files of their own when a memtable is flushed, and compactions move their keys alone, until those of a table
	// point to too many files. At a depth of 10 the messages were written anew so often that an append took twice the CPU.
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		p := pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: 100, MaxBlobReferenceDepth: 50, TargetGarbageRatio: 0.3, RewriteMinimumAge: 15 * time.Minute,
		}
		if s.rewrite.Load() > 0 { // every compaction writes the messages anew, and leaves none of the files with those that are gone
			p.MaxBlobReferenceDepth = 0
		}
		return p
	}
	if s.o.tune != nil {
		s.o.tune(o)
	}
	return o
}

// pebbleLog is Pebble's logger. Its Infof is for each flush and compaction.
type pebbleLog struct{ s *Store }

// Infof implements pebble.Logger.
func (pebbleLog) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (l pebbleLog) Errorf(format string, args ...any) {
	l.s.o.Logger.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger. Pebble calls it when it cannot go on, and does not expect it to return.
func (l pebbleLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf("embedded: "+format, args...)
	l.s.o.Fatal(err)
	panic(err)
}

func (s *Store) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			s.m.background.Inc()
			s.o.Logger.Error("a flush or compaction failed and is tried again", "err", err)
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.m.corrupt.Inc()
			s.o.Logger.Error("the store is damaged: restore the data folder from a backup", "what", info.String())
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			s.m.stalls.Inc()
			s.o.Logger.Warn("writes wait for the disk", "why", info.Reason)
		},
	}
}
