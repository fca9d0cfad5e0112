package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/storage"
)

// rowLocks make the writes of a row one after the other, each until it is durable; those of different rows share their fsyncs, but for
// the few that happen to have the same lock. What changes the messages of a conversation has the lock of its latest change.
type rowLocks struct {
	seed  maphash.Seed
	locks [4096]sync.Mutex
}

func (l *rowLocks) init() { l.seed = maphash.MakeSeed() }

func (l *rowLocks) of(key []byte) *sync.Mutex { return &l.locks[l.index(key)] }

func (l *rowLocks) index(key []byte) uint64 {
	return maphash.Bytes(l.seed, key) % uint64(len(l.locks))
}

// all takes the locks of several keys, always in one order, and returns what gives them back.
func (l *rowLocks) all(keys [][]byte) (unlock func()) {
	var of []uint64
	for _, key := range keys {
		of = append(of, l.index(key))
	}
	slices.Sort(of)
	of = slices.Compact(of)
	for _, i := range of {
		l.locks[i].Lock()
	}
	return func() {
		for _, i := range of {
			l.locks[i].Unlock()
		}
	}
}

// RaiseRead implements storage.Directory.
func (s *Store) RaiseRead(ctx context.Context, user, conversation string, seq, count uint64) (view storage.View, raised bool, err error) {
	if badID(user) || badID(conversation) {
		return view, false, fmt.Errorf("embedded: %q cannot have a row in %q", user, conversation)
	}
	if !s.gate.enter() {
		return view, false, storage.ErrClosed
	}
	defer s.gate.leave()
	key := rowKey(nil, conversation, user)
	lock := s.rowLocks.of(key)
	lock.Lock()
	defer lock.Unlock()
	if err := ctx.Err(); err != nil {
		return view, false, err
	}
	was, old, err := s.row(key, conversation)
	if err == nil && was == nil {
		err = fmt.Errorf("embedded: the user has no row in %s", conversation)
	}
	if err != nil || old.ReadSeq >= seq {
		return old, false, err
	}
	view = old
	view.ReadSeq, view.ReadCount = seq, count
	w := &write{s: s, keys: []flyingKey{{key: string(key), old: was}}}
	err = s.writeRow(w, func(b *pebble.Batch) error {
		view.Stamp = w.stamp
		return b.Set(key, appendRow(nil, &view), nil)
	})
	if err != nil {
		return storage.View{}, false, err
	}
	return view, true, nil
}

// row is a row and its value, nil when there is none. The caller holds its lock.
func (s *Store) row(key []byte, conversation string) (value []byte, v storage.View, err error) {
	value, err = s.get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, v, nil
	}
	if err != nil {
		return nil, v, err
	}
	// Other than with its lock held, a row is written only when it is made.
	if _, flying := s.flight.flying(key); flying {
		return nil, v, nil
	}
	v, ok := parseRow(value, conversation)
	if !ok {
		return nil, v, damaged("a row", key)
	}
	return value, v, nil
}

// get returns a copy of a value, durable or not.
func (s *Store) get(key []byte) ([]byte, error) {
	value, closer, err := s.db.Get(key)
	if err != nil {
		return nil, err
	}
	value = append(make([]byte, 0, len(value)), value...)
	return value, closer.Close()
}

// writeRow stores what set puts into the batch, once w has its stamp, and returns when it is durable. The caller holds the row's lock.
func (s *Store) writeRow(w *write, set func(*pebble.Batch) error) error {
	if s.space.full.Load() {
		return storage.ErrFull
	}
	return s.writeNow(w, set)
}

// writeNow is writeRow also when the disk is full, for what frees space.
func (s *Store) writeNow(w *write, set func(*pebble.Batch) error) error {
	w.began = time.Now()
	w.batch = s.db.NewBatch()
	s.order.Lock()
	s.flight.begin(w)
	w.must(set(w.batch))
	err := s.apply(w)
	s.order.Unlock()
	if err != nil {
		return err
	}
	return w.sync()
}

// SignedOut implements storage.Directory.
func (s *Store) SignedOut(ctx context.Context, user, device string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if !s.gate.enter() {
		return false, storage.ErrClosed
	}
	defer s.gate.leave()
	if badID(user) {
		return false, nil
	}
	value, err := s.value(deviceKey(nil, user, device))
	return value != nil, err
}

// value is what is durable at a key, nil when there is nothing.
func (s *Store) value(key []byte) ([]byte, error) {
	value, err := s.get(key)
	if old, flying := s.flight.flying(key); flying {
		return old.old, nil
	}
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// SetSignedOut implements storage.Directory.
func (s *Store) SetSignedOut(ctx context.Context, user, device string, out bool) error {
	if badID(user) {
		return fmt.Errorf("embedded: %q cannot be a user", user)
	}
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	key := deviceKey(nil, user, device)
	lock := s.rowLocks.of(key)
	lock.Lock()
	defer lock.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	was, err := s.value(key)
	if err != nil || (was != nil) == out {
		return err
	}
	w := &write{s: s, keys: []flyingKey{{key: string(key), old: was}}}
	return s.writeRow(w, func(b *pebble.Batch) error {
		if !out {
			return b.Delete(key, nil)
		}
		return b.Set(key, binary.AppendUvarint([]byte{layout}, uint64(w.stamp)), nil)
	})
}

// Epoch implements storage.Directory.
func (s *Store) Epoch(context.Context) (string, error) { return s.epoch, nil }
