package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/parley-im/parley/storage"
)

const (
	retentionEvery = time.Hour
	retentionPace  = 20      // steps of purgeStep messages a second, so that a first sweep of a large store does not hold up what people do
	retentionKnown = 1 << 18 // conversations of which is remembered how far they are purged, at about 100 bytes each
)

// retention purges what is older than an age, again and again. It is one goroutine.
type retention struct {
	store storage.Operator
	keep  time.Duration
	log   *slog.Logger
	m     *retentionMetrics
	pace  *rate.Limiter
	done  map[string]uint64 // how far conversations were purged; what is not in it is purged again, which changes nothing

	stop  context.CancelFunc
	ended chan struct{}
}

type retentionMetrics struct {
	purged prometheus.Counter
	sweeps *prometheus.CounterVec
	ended  prometheus.Gauge
}

func newRetentionMetrics(r prometheus.Registerer) (*retentionMetrics, error) {
	m := &retentionMetrics{
		purged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "parley_retention_messages_total", Help: "Messages purged because of their age.",
		}),
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_retention_sweeps_total", Help: "Sweeps over all conversations, by how they ended: ok, error.",
		}, []string{"result"}),
		ended: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "parley_retention_last_sweep_timestamp_seconds", Help: "When the last sweep ended well; 0: none did yet.",
		}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.purged, m.sweeps, m.ended} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func newRetention(s storage.Operator, keep time.Duration, log *slog.Logger, r prometheus.Registerer) (*retention, error) {
	m, err := newRetentionMetrics(r)
	if err != nil {
		return nil, fmt.Errorf("metrics of the retention: %w", err)
	}
	return &retention{
		store: s, keep: keep, log: log, m: m, pace: rate.NewLimiter(retentionPace, retentionPace), done: make(map[string]uint64),
		ended: make(chan struct{}),
	}, nil
}

// start sweeps now and every hour until close.
func (r *retention) start() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.ended)
		tick := time.NewTicker(retentionEvery)
		defer tick.Stop()
		for {
			r.run(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// close ends it between two steps.
func (r *retention) close() error {
	r.stop()
	<-r.ended
	return nil
}

// run is a sweep and what is said of it. A failed one is made good by the next.
func (r *retention) run(ctx context.Context) {
	purged, err := r.sweep(ctx, time.Now().Add(-r.keep))
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.m.sweeps.WithLabelValues("error").Inc()
		r.log.Error("old messages could not be purged; it is tried again within an hour", "purged", purged, "err", err)
	default:
		r.m.sweeps.WithLabelValues("ok").Inc()
		r.m.ended.SetToCurrentTime()
		if purged > 0 {
			r.log.Info("old messages are purged", "messages", purged)
		}
	}
}

// sweep purges what is older than before in all conversations.
func (r *retention) sweep(ctx context.Context, before time.Time) (purged uint64, err error) {
	err = eachConversation(ctx, r.store, func(c string) error {
		last, err := r.store.LastBefore(ctx, c, before.UnixMilli())
		from := r.done[c] + 1
		if err != nil || last < from {
			return err
		}
		n, err := purge(ctx, r.store, c, from, last, func(uint64) error { return r.pace.Wait(ctx) })
		purged += n
		r.m.purged.Add(float64(n))
		if err == nil {
			r.remember(c, last)
		}
		return err
	})
	return purged, err
}

func (r *retention) remember(conversation string, last uint64) {
	if _, known := r.done[conversation]; known || len(r.done) < retentionKnown {
		r.done[conversation] = last
	}
}
