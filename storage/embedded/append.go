package embedded

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/storage"
)

// write is a batch on its way: what Append and the writes of rows hand to Pebble. It is the storage.Commit of an Append.
type write struct {
	s            *Store
	batch        *pebble.Batch // nil when nothing is to be stored
	stamp        storage.Stamp
	older, newer *write // flight's list
	runs         []flyingRun
	keys         []flyingKey
	purge        string // the conversation of which it purges
	began        time.Time
}

// flyingRun is a run of a write.
type flyingRun struct {
	tail   *tail
	before uint64 // the tail before it
	last   uint64
}

// flyingKey is a key of a write other than a run's, and what there was before.
type flyingKey struct {
	key  string
	old  []byte        // nil: nothing
	note *storage.Note // see flyingValue
}

// Append implements storage.Buckets. All runs go into one batch; the fsync that makes it durable may be shared with other writes.
//
// The order of the calls is the order in Pebble's log: Store.order is held from the comparison of the tails until the batch is applied. So
// a crash can only cut off the end, and a run is never there without those of its conversation that were in flight before it.
func (s *Store) Append(ctx context.Context, runs []*storage.Run) (storage.Commit, error) {
	size, err := checkRuns(runs)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !s.gate.enter() { // until Wait
		return nil, storage.ErrClosed
	}
	if s.space.full.Load() {
		s.gate.leave()
		return nil, storage.ErrFull
	}
	w := &write{s: s, began: time.Now(), runs: make([]flyingRun, 0, len(runs))}
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.loadTails(w, runs); err != nil {
		s.gate.leave()
		return nil, err
	}
	messages := s.compare(w, runs)
	if len(w.runs) == 0 {
		s.gate.leave()
		return w, nil
	}
	s.flight.begin(w)
	w.batch = s.db.NewBatchWithSize(size)
	for _, r := range runs {
		if r.Err == nil {
			s.put(w, r)
		}
	}
	s.m.messages.Add(float64(messages))
	if err := s.apply(w); err != nil {
		s.gate.leave()
		return nil, err
	}
	return w, nil
}

// runOverhead is about what a run or a row takes in a batch beside ids and messages.
const runOverhead = 64

// checkRuns refuses what could not be read back, and says how large a batch the runs make.
func checkRuns(runs []*storage.Run) (size int, err error) {
	size = runOverhead
	for _, r := range runs {
		switch {
		case r.First == 0:
			return 0, storage.ErrInvalidSeq
		case len(r.Messages) == 0 || badID(r.Conversation):
			return 0, fmt.Errorf("embedded: a run of %d messages of %q cannot be stored", len(r.Messages), r.Conversation)
		}
		size += len(r.Wire) + len(r.Conversation) + runOverhead
		for _, user := range r.Members {
			if badID(user) {
				return 0, fmt.Errorf("embedded: %q cannot be a member of %q", user, r.Conversation)
			}
			size += 2 * (len(r.Conversation) + len(user) + runOverhead)
		}
	}
	return size, nil
}

// loadTails puts the tail of every run's conversation into w. It is the only part of an Append that can fail, and comes before anything
// is changed.
func (s *Store) loadTails(w *write, runs []*storage.Run) error {
	for _, r := range runs {
		t, err := s.tail(r.Conversation)
		if err != nil {
			return err
		}
		w.runs = append(w.runs, flyingRun{tail: t})
	}
	return nil
}

// tail is the conversation's, from memory or from the disk. One that was forgotten while in flight must not be made a second time:
// flight counts on there being one.
func (s *Store) tail(conversation string) (*tail, error) {
	if t := s.tails.get(conversation); t != nil {
		return t, nil
	}
	t := s.flight.tail(conversation)
	if t == nil {
		seq, err := s.appliedTail(conversation)
		if err != nil {
			return nil, err
		}
		t = &tail{conversation: strings.Clone(conversation), applied: seq}
	}
	s.tails.put(t)
	return t, nil
}

// appliedTail is the conversation's tail with what is still in flight.
func (s *Store) appliedTail(conversation string) (uint64, error) {
	it, err := s.newRuns(conversation)
	if err != nil {
		return 0, err
	}
	ok := it.newest()
	tail := it.head.last()
	if err := it.close(); err != nil || !ok {
		return 0, err
	}
	return tail, nil
}

// compare is the compare-and-set: it leaves the runs in w that start right above their tail, and refuses the others.
func (s *Store) compare(w *write, runs []*storage.Run) (messages int) {
	all := w.runs
	w.runs = all[:0]
	for i, r := range runs {
		t := all[i].tail
		if r.First != t.applied+1 {
			r.Err = storage.ErrStale
			s.m.stale.Inc()
			continue
		}
		r.Err = nil
		last := t.applied + uint64(len(r.Messages))
		w.runs = append(w.runs, flyingRun{tail: t, before: t.applied, last: last})
		t.applied = last
		messages += len(r.Messages)
		if r.First == 1 {
			for _, user := range r.Members {
				w.keys = append(w.keys, flyingKey{key: string(rowKey(nil, r.Conversation, user))})
			}
		}
	}
	return messages
}

// put writes a run into w's batch, and with the first run of a conversation its members' rows and their lists. The only copy of the
// messages is the one into the batch.
func (s *Store) put(w *write, r *storage.Run) {
	s.key = appendHead(appendKey(s.key[:0], talkSpace, r.Conversation, runMark), r, w.stamp)
	op := w.batch.SetDeferred(len(s.key), len(r.Wire))
	copy(op.Key, s.key)
	copy(op.Value, r.Wire)
	w.must(op.Finish())
	if r.First > 1 {
		return
	}
	row := appendRow(nil, &storage.View{MinSeq: 1, Stamp: w.stamp})
	for _, user := range r.Members {
		w.must(w.batch.Set(rowKey(nil, r.Conversation, user), row, nil))
		w.must(w.batch.Set(listKey(nil, user, r.Conversation), nil, nil))
	}
}

// must is for what cannot fail: changing a batch that nobody else has.
func (w *write) must(err error) {
	if err != nil {
		panic("embedded: " + err.Error())
	}
}

// apply hands w to Pebble, which writes it to its log and makes it readable. The caller holds order and has begun w. The stamp goes along,
// so that it never falls: the log's order is the order of the stamps.
func (s *Store) apply(w *write) error {
	w.must(w.batch.Set(stampKey, binary.BigEndian.AppendUint64(nil, uint64(w.stamp)), nil))
	s.space.spend(w.batch.Len())
	s.m.batchBytes.Add(float64(w.batch.Len()))
	if err := s.db.ApplyNoSyncWait(w.batch, pebble.Sync); err != nil {
		return s.fail(err)
	}
	return nil
}

// Wait implements storage.Commit.
func (w *write) Wait() error {
	if w.batch == nil {
		return nil
	}
	defer w.s.gate.leave()
	return w.sync()
}

// sync waits for the fsync, and has readers see what was written.
func (w *write) sync() error {
	if err := w.batch.SyncWait(); err != nil {
		return w.s.fail(err)
	}
	w.s.flight.land(w)
	w.s.m.commit.Observe(time.Since(w.began).Seconds())
	return w.batch.Close()
}
