package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-im/parley/storage"
)

// look finds out what became of writes whose outcome is not known: it drops what is remembered of their conversations and reads their tails, and, where
// something stands at or above the first seq, the ids.
func (g *group) look(ctx context.Context) error {
	if time.Now().After(g.until) {
		return errors.Join(errBusy, g.last)
	}
	s := g.w.s
	s.metrics.retries.Inc()
	g.pause.wait(ctx)
	var talks []*talk
	var ids []string
	for _, t := range g.open() {
		if t.what == unknown {
			talks, ids = append(talks, t), append(ids, t.id)
		}
	}
	s.metrics.reloads.Add(float64(len(talks)))
	heads, err := s.heads(ctx, ids)
	if err != nil {
		return g.passing(err)
	}
	seen := make([]sight, len(talks))
	var reads errgroup.Group
	reads.SetLimit(queriesAtOnce)
	for i, t := range talks {
		reads.Go(func() error { return t.see(ctx, s, heads[t.id], &seen[i]) })
	}
	if err := reads.Wait(); err != nil {
		return g.passing(err)
	}
	for i, t := range talks {
		g.decide(t, &seen[i])
	}
	return nil
}

// passing is nil for an error that passes: look comes again, until there is no more time.
func (g *group) passing(err error) error {
	if !transient(err) && !errors.Is(err, errBusy) {
		return err
	}
	g.last = err
	return nil
}

// sight is what a look at a conversation saw.
type sight struct {
	tail   uint64
	bucket string             // the newest
	ids    []storage.RecentID // of the seqs from talk.next up, descending: as far as both the talk and the conversation go
}

func (t *talk) see(ctx context.Context, s *Store, head *bucket, seen *sight) error {
	if _, err := s.loadHome(ctx, t.id); err != nil {
		return err
	}
	if head == nil {
		var err error
		if head, err = s.newest(ctx, t.id); err != nil || head == nil {
			return err
		}
	}
	seen.tail, seen.bucket = head.Tail, head.ID
	for seq := min(head.Tail, t.end()); seq >= t.next; {
		ids, err := s.ids(ctx, t.id, seq)
		if err != nil {
			return err
		}
		seen.ids = append(seen.ids, ids...)
		seq -= uint64(len(ids))
	}
	return nil
}

// decide goes by what was seen.
func (g *group) decide(t *talk, seen *sight) {
	switch {
	case seen.tail+1 < t.next:
		g.refuse(t, fmt.Errorf("%w: it is %d", storage.ErrStale, seen.tail))
		return
	case seen.tail+1 == t.next:
		t.what, t.sure = fresh, true
		return
	}
	there := t.next
	for i := len(seen.ids) - 1; i >= 0 && there <= seen.tail; i-- {
		if seen.ids[i].Seq != there { // below next
			continue
		}
		q, at := t.each(there, there, func(uint64, *queued, int) {})
		if !q.matches(at, seen.ids[i]) {
			break
		}
		there++
	}
	end := min(seen.tail, t.end())
	for there <= end && t.runs[t.done].last() < there { // whole runs of it are there
		g.stored(t, t.runs[t.done].last(), seen.bucket)
	}
	if there <= end {
		g.refuse(t, storage.ErrStale)
		return
	}
	g.stored(t, end, seen.bucket)
}
