package embedded

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of a store and its log.
type metrics struct {
	messages     prometheus.Counter
	batchBytes   prometheus.Counter
	stale        prometheus.Counter
	changes      prometheus.Counter
	staleChanges prometheus.Counter
	purged       prometheus.Counter
	commit       prometheus.Histogram
	stalls       prometheus.Counter
	background   prometheus.Counter
	corrupt      prometheus.Counter
	diskFull     prometheus.Counter
	log          *logMetrics
	all          []prometheus.Collector
}

func newMetrics(s *Store) *metrics {
	m := &metrics{
		messages:     counter("messages_total", "Messages stored."),
		batchBytes:   counter("batch_bytes_total", "Bytes of the batches that were written, each once."),
		stale:        counter("stale_runs_total", "Runs refused because their conversation's tail was another one."),
		changes:      counter("changes_total", "Changes of messages stored."),
		staleChanges: counter("stale_changes_total", "Changes refused because the conversation's latest change was another one."),
		purged:       counter("purged_total", "Messages purged."),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "parley_storage_commit_seconds", Help: "From the start of a write until it was durable and waited for.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		stalls:     counter("write_stalls_total", "Times that writes waited for flushes or compactions."),
		background: counter("background_errors_total", "Flushes and compactions that failed; they are tried again."),
		corrupt:    counter("corruptions_total", "Reads that found the disk's bytes damaged."),
		diskFull:   counter("disk_full_total", "Times that free space fell below the reserve."),
		log:        newLogMetrics(),
	}
	free := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "parley_storage_free_bytes", Help: "Free space on the data folder's disk; -1 when it is not known.",
	}, func() float64 { return float64(s.space.free.Load()) })
	m.all = []prometheus.Collector{
		m.messages, m.batchBytes, m.stale, m.changes, m.staleChanges, m.purged, m.commit, m.stalls, m.background, m.corrupt, m.diskFull, free, &pebbleMetrics{s: s},
	}
	m.all = append(m.all, m.log.all()...)
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_storage_" + name, Help: help})
}

func (m *metrics) register(r prometheus.Registerer) error {
	if err := registerAll(r, m.all); err != nil {
		return fmt.Errorf("embedded: metrics: %w: open each store with a registerer of its own", err)
	}
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) { unregisterAll(r, m.all) }

// registerAll registers all or none.
func registerAll(r prometheus.Registerer, all []prometheus.Collector) error {
	if r == nil {
		return nil
	}
	for i, c := range all {
		if err := r.Register(c); err != nil {
			unregisterAll(r, all[:i])
			return err
		}
	}
	return nil
}

func unregisterAll(r prometheus.Registerer, all []prometheus.Collector) {
	if r == nil {
		return
	}
	for _, c := range all {
		r.Unregister(c)
	}
}

// logMetrics are those of a log.
type logMetrics struct {
	refused *prometheus.CounterVec
	queued  prometheus.Gauge
}

func newLogMetrics() *logMetrics {
	return &logMetrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_log_refused_total", Help: "Records that the log did not take.",
		}, []string{"reason"}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "parley_log_queued_bytes", Help: "Bytes in a queue of the log when one was last drained.",
		}),
	}
}

func (m *logMetrics) all() []prometheus.Collector { return []prometheus.Collector{m.refused, m.queued} }

// pebbleMetrics reads Pebble's own figures, once for each time they are collected.
type pebbleMetrics struct{ s *Store }

var (
	diskDesc  = prometheus.NewDesc("parley_storage_disk_bytes", "Bytes that the store takes on the disk.", nil, nil)
	cacheDesc = prometheus.NewDesc("parley_storage_cache_bytes", "Bytes of blocks in the cache.", nil, nil)
	memDesc   = prometheus.NewDesc("parley_storage_memtable_bytes", "Bytes of writes that are in memory and in the log.", nil, nil)
	l0Desc    = prometheus.NewDesc("parley_storage_l0_sublevels", "Tables that a read may have to look into before the sorted levels.", nil, nil)
	debtDesc  = prometheus.NewDesc("parley_storage_compaction_debt_bytes", "Bytes that compactions are behind.", nil, nil)
)

// Describe implements prometheus.Collector.
func (p *pebbleMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{diskDesc, cacheDesc, memDesc, l0Desc, debtDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *pebbleMetrics) Collect(ch chan<- prometheus.Metric) {
	if !p.s.gate.enter() {
		return
	}
	defer p.s.gate.leave()
	m := p.s.db.Metrics()
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(diskDesc, float64(m.DiskSpaceUsage()))
	gauge(cacheDesc, float64(m.BlockCache.Size))
	gauge(memDesc, float64(m.MemTable.Size))
	gauge(l0Desc, float64(m.Levels[0].Sublevels))
	gauge(debtDesc, float64(m.Compact.EstimatedDebt))
}
