package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// talk is a conversation's share of a group: its runs, one after the other.
type talk struct {
	id    string
	runs  []queued
	done  int    // of runs: those that are settled
	next  uint64 // the seq of the first message that is not stored
	began time.Time

	sure bool // what lies below next is stored, as far as its bucket goes

	// Of the last round:
	what outcome
	spot written
}

// queued is a run and the commit that it belongs to.
type queued struct {
	*storage.Run
	commit *commit
	wire   [][]byte // each message's encoding
	counts []storage.Counts
}

func (q *queued) last() uint64 { return q.First + uint64(len(q.Messages)) - 1 }

// outcome is what is known of a write after its round.
type outcome uint8

const (
	fresh     outcome = iota // not tried yet, or known not to have happened
	applied                  // acknowledged
	duplicate                // the insert met a bucket: the update is to be tried
	unknown                  // look
)

// written is one write of a round.
type written struct {
	id     string
	n      uint64
	place  place
	insert bool
	to     uint64 // the last seq in it
}

// group is some commits being written.
type group struct {
	w     *writer
	talks []*talk
	pause pause
	until time.Time
	late  map[time.Time][]string // buckets whose write took long, by when it began
	last  error                  // of the latest bulk
}

// write stores commits, as far as that is possible. Afterwards each run has its Err, and each commit its own.
func (w *writer) write(commits []*commit) {
	g := &group{w: w, until: time.Now().Add(w.s.o.RetryFor), late: make(map[time.Time][]string)}
	g.gather(commits)
	ctx := context.Background()
	err := g.rows(ctx)
	for err == nil && len(g.open()) > 0 {
		err = g.round(ctx)
	}
	if err == nil {
		err = g.restamp(ctx)
	}
	if err != nil {
		g.abandon(commits, err)
	}
	w.forget(commits[len(commits)-1].call)
}

// gather sorts runs by conversation. A run that was made on top of one that was refused is refused as well: the counts in it are wrong.
func (g *group) gather(commits []*commit) {
	byID := make(map[string]*talk)
	for _, c := range commits {
		for _, r := range c.runs {
			r.Err = nil
			if g.w.refused[r.Conversation] >= c.call {
				r.Err = storage.ErrStale
				g.w.s.metrics.stale.Inc()
				continue
			}
			q := queued{Run: r, commit: c}
			if err := q.cut(); err != nil {
				r.Err = err
				continue
			}
			t := byID[r.Conversation]
			if t == nil {
				t = &talk{id: r.Conversation, next: r.First, began: time.Now()}
				byID[r.Conversation], g.talks = t, append(g.talks, t)
			}
			t.runs = append(t.runs, q)
		}
	}
}

// cut takes the run's encoding apart, and counts.
func (q *queued) cut() error {
	_, a, _ := protocol.ParseConversation(q.Conversation)
	counts, rest := q.Before, q.Wire
	q.wire, q.counts = make([][]byte, len(q.Messages)), make([]storage.Counts, len(q.Messages))
	for i, m := range q.Messages {
		head, message, after, err := protocol.CutMessage(rest)
		if err != nil || head.Seq != q.First+uint64(i) {
			return fmt.Errorf("mongo: a run of %s is not what its messages are encoded as", q.Conversation)
		}
		if storage.CountsAsUnread(m) {
			counts[storage.Side(m.Sender, a)]++
		}
		q.wire[i], q.counts[i], rest = message, counts, after
	}
	return nil
}

// open are the talks that have something left to store.
func (g *group) open() []*talk {
	var open []*talk
	for _, t := range g.talks {
		if t.done < len(t.runs) {
			open = append(open, t)
		}
	}
	return open
}

// abandon ends the group: of what is left nobody knows whether it is stored, or not when.
func (g *group) abandon(commits []*commit, err error) {
	open := g.open()
	g.w.s.log.Error("messages not stored, or not for certain", "conversations", len(open), "err", err)
	for _, t := range open {
		g.w.poison(t.id)
		for _, q := range t.runs[t.done:] {
			q.commit.err = g.w.s.fault(err)
		}
	}
	for _, c := range commits { // everything is stored, but may not be on a list yet
		if len(open) == 0 {
			c.err = g.w.s.fault(err)
		}
	}
}

// rows writes the rows of members. Of those that are there already the duplicate key says so.
func (g *group) rows(ctx context.Context) error {
	var models []mongo.WriteModel
	var ids []string
	for _, t := range g.talks {
		for _, q := range t.runs {
			for _, user := range q.Members {
				models, ids = append(models, newRow(user, q.Conversation)), append(ids, rowID(user, q.Conversation))
			}
		}
	}
	if len(models) == 0 {
		return nil
	}
	s, began := g.w.s, time.Now()
	err := s.again(ctx, func() (bool, error) { return writeAll(ctx, s.rows, models) }) // not done: two upserts of one row met
	if err != nil {
		return err
	}
	return s.restamp(ctx, s.rows, began, ids...)
}

// round is one bulk, and finding out what became of it; or a look at those of which that is not known.
func (g *group) round(ctx context.Context) error {
	open := g.open()
	for _, t := range open {
		if t.what == unknown {
			return g.look(ctx)
		}
	}
	models := make([]mongo.WriteModel, 0, len(open))
	for _, t := range open {
		if err := t.pick(ctx, g.w.s); err != nil {
			return err
		}
	}
	if sure, err := g.borders(ctx, open); err != nil || !sure {
		return err
	}
	for _, t := range open {
		models = append(models, t.model())
	}
	flags := g.w.takeFlags(len(models) + 100)
	for _, id := range flags {
		models = append(models, unflagModel(id))
	}
	g.w.s.metrics.bulks.Inc()
	result, err := g.w.s.buckets.BulkWrite(ctx, models, unordered())
	g.last = err
	g.judge(open, len(flags), result, err)
	for _, t := range open {
		if t.what == applied {
			g.settle(t)
		}
	}
	return nil
}

// borders makes sure that the bucket before one that is to be inserted is full: an insert by itself does not compare any tail. The writer remembers
// where its latest writes ended, so there is seldom anything to read. sure is false when there is something to look at first.
func (g *group) borders(ctx context.Context, open []*talk) (sure bool, err error) {
	var talks []*talk
	var ids []string
	for _, t := range open {
		if tail, known := g.w.tails.Get(t.id); t.spot.insert && t.spot.n > 0 && !t.sure && (!known || tail+1 != t.next) {
			talks, ids = append(talks, t), append(ids, t.id)
		}
	}
	if len(talks) == 0 {
		return true, nil
	}
	heads, err := g.w.s.heads(ctx, ids)
	if err != nil {
		for _, t := range talks {
			t.what = unknown
		}
		return false, g.passing(err)
	}
	sure = true
	for _, t := range talks {
		if head := heads[t.id]; head == nil || head.Tail+1 != t.next {
			t.what, sure = unknown, false
		} else {
			t.sure = true
		}
	}
	return sure, nil
}

// judge says of each write what became of it.
func (g *group) judge(open []*talk, flags int, result *mongo.BulkWriteResult, err error) {
	var failed mongo.BulkWriteException
	switch {
	case err == nil, errors.As(err, &failed) && failed.WriteConcernError == nil && result != nil:
	case transient(err), failed.WriteConcernError != nil: // of the command as a whole
		for _, t := range open {
			t.what = unknown
		}
		return
	default:
		for _, t := range open {
			g.refuse(t, fmt.Errorf("mongo: %s from seq %d: %w", t.id, t.next, err))
		}
		return
	}
	byIndex := make(map[int]mongo.BulkWriteError, len(failed.WriteErrors))
	for _, e := range failed.WriteErrors {
		byIndex[e.Index] = e
	}
	updates := 0
	for i, t := range open {
		e, bad := byIndex[i]
		_, inserted := result.UpsertedIDs[int64(i)]
		switch {
		case bad && e.Code == codeDuplicateKey && t.spot.insert:
			t.what = duplicate
		case bad && (e.Code == codeDuplicateKey || transient(e)):
			t.what = unknown
		case bad:
			g.refuse(t, fmt.Errorf("mongo: %s from seq %d: %w", t.id, t.next, e.WriteError))
		case t.spot.insert && !inserted:
			t.what = unknown
		default:
			t.what = applied
			if !t.spot.insert {
				updates++
			}
		}
	}
	if result.MatchedCount >= int64(updates+flags) {
		return
	}
	for _, t := range open { // some did not match, and nobody says which
		if t.what == applied && !t.spot.insert {
			t.what = unknown
		}
	}
}

// settle moves on behind a write that was applied.
func (g *group) settle(t *talk) {
	if t.spot.insert && t.spot.n > 0 {
		g.w.unflag(t.spot.place.id(t.id, t.spot.n-1))
	}
	g.stored(t, t.spot.to, t.spot.id)
}

// stored notes that everything up to seq is, the last of it in bucket.
func (g *group) stored(t *talk, seq uint64, bucket string) {
	if time.Since(t.began) > g.w.s.settle/2 {
		g.late[t.began] = append(g.late[t.began], bucket)
	}
	g.w.s.metrics.messages.Add(float64(seq + 1 - t.next))
	t.next, t.what, t.sure = seq+1, fresh, true
	g.w.tails.Add(t.id, seq)
	for t.done < len(t.runs) && t.runs[t.done].last() <= seq {
		last := t.runs[t.done].last()
		t.done++
		if t.done < len(t.runs) && t.runs[t.done].First != last+1 { // it competes for these seqs, or leaves a hole: it is tried by itself
			t.next, t.sure = t.runs[t.done].First, false
			break
		}
	}
	t.began = time.Now()
}

// refuse ends the talk's next run with an error, and those of this group that were made on top of it.
func (g *group) refuse(t *talk, err error) {
	for _, q := range t.runs[t.done:] {
		q.Err = err
		g.w.s.metrics.stale.Inc()
		err = storage.ErrStale
	}
	t.done, t.what = len(t.runs), fresh
	g.w.poison(t.id)
}

// restamp stamps again what took long.
func (g *group) restamp(ctx context.Context) error {
	for began, ids := range g.late {
		err := g.w.s.again(ctx, func() (bool, error) { return true, g.w.s.restamp(ctx, g.w.s.buckets, began, ids...) })
		if err != nil {
			return err
		}
	}
	return nil
}

// poison refuses what is queued of the conversation: it was made on top of what was refused.
func (w *writer) poison(conversation string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[conversation] = w.calls
}

// forget drops what no later commit can be refused for.
func (w *writer) forget(call uint64) {
	for conversation, last := range w.refused {
		if last <= call {
			delete(w.refused, conversation)
		}
	}
}

// unflagModel takes the newest flag off. It matches whether or not there is one.
func unflagModel(id string) mongo.WriteModel {
	return mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}).
		SetUpdate(bson.D{{Key: "$unset", Value: bson.D{{Key: "newest", Value: ""}}}, raised()})
}
