package mongo

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a Store.
type metrics struct {
	messages  prometheus.Counter
	bulks     prometheus.Counter
	stale     prometheus.Counter
	reloads   prometheus.Counter
	retries   prometheus.Counter
	holes     prometheus.Counter
	restamped prometheus.Counter
	commit    prometheus.Histogram
	cache     *prometheus.CounterVec
	all       []prometheus.Collector
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		messages:  counter("messages_total", "Messages that were stored."),
		bulks:     counter("bulks_total", "Bulk writes of messages that were sent."),
		stale:     counter("stale_total", "Runs that were refused because the tail was another."),
		reloads:   counter("reloads_total", "Conversations that were read again after a write whose outcome was not known."),
		retries:   counter("retries_total", "Operations that were tried again after an error that passes, or after another writer."),
		holes:     counter("holes_total", "Messages that are missing at or below their conversation's tail. Always a fault: run parley admin verify."),
		restamped: counter("restamped_total", "Documents that were stamped again because their write took long."),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "parley_mongo_commit_seconds", Help: "From the call of Append until its messages were durable.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		cache: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_mongo_cache_total", Help: "Bodies that were looked for in the cache, by result: hit, miss, error.",
		}, []string{"result"}),
	}
	m.all = []prometheus.Collector{m.messages, m.bulks, m.stale, m.reloads, m.retries, m.holes, m.restamped, m.commit, m.cache}
	if r == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := r.Register(c); err != nil {
			for _, done := range m.all[:i] {
				r.Unregister(done)
			}
			return nil, errors.Join(errors.New("mongo: metrics"), err)
		}
	}
	return m, nil
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_mongo_" + name, Help: help})
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.all {
		r.Unregister(c)
	}
}
