package mongo

import (
	"context"

	"github.com/parley-im/parley/storage"
)

// The cache holds bodies, in their stored form, and nothing else. The labels come from the bucket each time, in the query that also fetches the
// bodies that are missing; so neither a fill that meets a revoke, nor a cache that is out of date, shows what is no more. What is revoked or gone is
// not put in, and is dropped before its label is written.

// cached gets the bodies that the cache has. Without one, or when it fails, all are needed.
func (f *fetching) cached(ctx context.Context, w *wanted) {
	w.bodies, w.need = make([][]byte, len(w.of)), make([]int, 0, len(w.of))
	if f.s.o.Cache != nil {
		bodies, err := f.s.o.Cache.Get(ctx, f.keys(w), make([][]byte, 0, len(w.of)))
		if err == nil && len(bodies) == len(w.of) {
			w.bodies = bodies
		} else {
			f.s.metrics.cache.WithLabelValues("error").Inc()
		}
	}
	for k, body := range w.bodies {
		if body == nil {
			w.need = append(w.need, k)
		}
	}
	if f.s.o.Cache != nil {
		f.s.metrics.cache.WithLabelValues("miss").Add(float64(len(w.need)))
		f.s.metrics.cache.WithLabelValues("hit").Add(float64(len(w.of) - len(w.need)))
	}
}

func (f *fetching) keys(w *wanted) []storage.BodyKey {
	keys := make([]storage.BodyKey, len(w.of))
	for k, i := range w.of {
		keys[k] = storage.BodyKey{Conversation: f.conversation, Seq: f.seqs[i]}
	}
	return keys
}

// remember puts the bodies that were read into the cache, but for those that nobody may see.
func (f *fetching) remember(ctx context.Context, w *wanted, b *bucket) {
	if f.s.o.Cache == nil || len(w.need) == 0 {
		return
	}
	var keys []storage.BodyKey
	var bodies [][]byte
	for _, k := range w.need {
		seq, from := f.seqs[w.of[k]], &b.Slots[k]
		if seq <= b.Tail && from.Msg != nil && from.Revoke == nil && !from.Gone {
			keys = append(keys, storage.BodyKey{Conversation: f.conversation, Seq: seq})
			bodies = append(bodies, from.Msg)
		}
	}
	if len(keys) == 0 {
		return
	}
	if err := f.s.o.Cache.Add(ctx, keys, bodies); err != nil {
		f.s.metrics.cache.WithLabelValues("error").Inc()
	}
}
