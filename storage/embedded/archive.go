package embedded

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// A Store is a storage.Source. What is read here is what is on the disk: nothing else uses the store meanwhile, so nothing is in flight.
var _ storage.Source = (*Store)(nil)

// LastStamp implements storage.Source.
func (s *Store) LastStamp(context.Context) (storage.Stamp, error) { return s.flight.upTo(), nil }

// Archive implements storage.Source.
func (s *Store) Archive(ctx context.Context, conversation string) (*storage.Archive, error) {
	state, err := s.State(ctx, conversation)
	if err != nil || badID(conversation) {
		return nil, err
	}
	if !s.gate.enter() {
		return nil, storage.ErrClosed
	}
	defer s.gate.leave()
	a := &storage.Archive{Conversation: conversation, State: state}
	for mark, take := range map[byte]func(a *storage.Archive, key, value []byte) bool{
		rowMark: archiveRow, hideMark: archiveHidden, reactMark: archiveReaction,
	} {
		err := s.each(ctx, appendKey(nil, talkSpace, conversation, mark), func(key, value []byte) bool { return take(a, key, value) })
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(a.Reacted, compareMarks)
	a.Reacted = mergeMarks(a.Reacted)
	return a, nil
}

// each calls take with what follows the prefix in the keys that have it, and their values. What take does not understand is damaged.
func (s *Store) each(ctx context.Context, prefix []byte, take func(key, value []byte) bool) (err error) {
	upper := bytes.Clone(prefix)
	upper[len(upper)-1]++
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if !take(it.Key()[len(prefix):], value) {
			return damaged("a record", it.Key())
		}
	}
	return it.Error()
}

// archiveRow takes a row, or the latest change.
func archiveRow(a *storage.Archive, key, value []byte) (ok bool) {
	if len(key) == 1 && key[0] == headEnd {
		a.ChangeStamp, a.ChangeSeq, ok = parseChange(value)
		return ok
	}
	v, ok := parseRow(value, a.Conversation)
	a.Rows = append(a.Rows, storage.ArchivedRow{User: string(key), View: v})
	return ok
}

// archiveHidden takes a chunk of what a user deleted. Chunks of a user come one after the other, in their order.
func archiveHidden(a *storage.Archive, key, value []byte) bool {
	if len(key) < 10 || key[len(key)-9] != endOfUser {
		return false
	}
	user, base := string(key[:len(key)-9]), binary.BigEndian.Uint64(key[len(key)-8:])*chunkSeqs
	_, set, ok := parseHidden(value)
	if n := len(a.Hidden); n == 0 || a.Hidden[n-1].User != user {
		a.Hidden = append(a.Hidden, storage.Mark{User: user})
	}
	m := &a.Hidden[len(a.Hidden)-1]
	for i, b := range set {
		for ; b != 0; b &= b - 1 {
			m.Seqs = append(m.Seqs, base+uint64(8*i+bits.TrailingZeros8(b)))
		}
	}
	return ok
}

// archiveReaction takes one reaction that the labels do not name.
func archiveReaction(a *storage.Archive, key, _ []byte) bool {
	if len(key) < 9 || len(key) < 9+int(key[8])+1 {
		return false
	}
	kind, user := key[9:9+key[8]], key[9+key[8]:]
	a.Reacted = append(a.Reacted, storage.Mark{User: string(user), Reaction: string(kind), Seqs: []uint64{^binary.BigEndian.Uint64(key)}})
	return true
}

func compareMarks(a, b storage.Mark) int {
	return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Reaction, b.Reaction), cmp.Compare(a.Seqs[0], b.Seqs[0]))
}

// mergeMarks makes one of those of a user and a reaction, which lie side by side.
func mergeMarks(list []storage.Mark) []storage.Mark {
	merged := list[:0]
	for _, m := range list {
		if n := len(merged); n > 0 && merged[n-1].User == m.User && merged[n-1].Reaction == m.Reaction {
			merged[n-1].Seqs = append(merged[n-1].Seqs, m.Seqs...)
			continue
		}
		merged = append(merged, m)
	}
	return merged
}

// ArchivedSlots implements storage.Source.
func (s *Store) ArchivedSlots(ctx context.Context, conversation string, from uint64, yield func(*storage.ArchivedSlot) bool) error {
	if from == 0 {
		return storage.ErrInvalidSeq
	}
	return s.read(ctx, conversation, func(r *runs) error {
		_, err := r.up(ctx, from, math.MaxUint64, func(slot *storage.Slot) bool {
			wire := r.page[slot.Message.Seq-max(r.head.first, r.from)].wire
			h, _, _, err := protocol.CutMessage(wire)
			id, ok := protocol.ParseMessageID(string(h.ServerMsgID))
			if err != nil || !ok {
				r.err = damaged("a message id", r.seekKey(slot.Message.Seq))
				return false
			}
			return yield(&storage.ArchivedSlot{Slot: *slot, ID: id})
		})
		return cmp.Or(err, r.err)
	})
}

// SignOuts implements storage.Source.
func (s *Store) SignOuts(ctx context.Context, yield func(storage.SignOut) bool) error {
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	more := true
	return s.each(ctx, []byte{deviceSpace}, func(key, value []byte) bool {
		user, device, ok := bytes.Cut(key, []byte{endOfUser})
		f := layoutFields(value)
		stamp := storage.Stamp(f.uint())
		if more {
			more = yield(storage.SignOut{User: string(user), Device: string(device), Stamp: stamp})
		}
		return ok && f.end()
	})
}
