package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the largest latency that is told apart from larger ones.
const longest = 10 * time.Minute

// recorder is an HDR histogram of microseconds with three significant digits. It belongs to one goroutine.
type recorder struct {
	h *hdrhistogram.Histogram
}

func newRecorder() *recorder {
	return &recorder{h: hdrhistogram.New(1, longest.Microseconds(), 3)}
}

func (r *recorder) record(us int64) {
	if r.h.RecordValue(us) != nil {
		_ = r.h.RecordValue(longest.Microseconds()) // within the range by construction
	}
}

// merge adds what other has recorded.
func (r *recorder) merge(other *recorder) { r.h.Merge(other.h) }

// Latency is a distribution of latencies, in microseconds, as an HDR histogram with three significant digits saw them.
type Latency struct {
	Count int64 `json:"count"`
	Mean  int64 `json:"mean_us"`
	P50   int64 `json:"p50_us"`
	P90   int64 `json:"p90_us"`
	P99   int64 `json:"p99_us"`
	P999  int64 `json:"p999_us"`
	Max   int64 `json:"max_us"`
}

func (r *recorder) latency() Latency {
	return Latency{
		Count: r.h.TotalCount(), Mean: int64(r.h.Mean()), P50: r.h.ValueAtQuantile(50), P90: r.h.ValueAtQuantile(90),
		P99: r.h.ValueAtQuantile(99), P999: r.h.ValueAtQuantile(99.9), Max: r.h.Max(),
	}
}

// faults counts what went wrong by what it was. The kinds are few: error codes and the errors of sockets.
type faults map[string]uint64

func (f faults) add(what string) { f[what]++ }

func (f faults) merge(other faults) {
	for what, n := range other {
		f[what] += n
	}
}
