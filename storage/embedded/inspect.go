package embedded

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Inspect implements storage.Operator. Its buckets are the runs.
func (s *Store) Inspect(ctx context.Context, conversation string, seqs []uint64) (*storage.Inspection, error) {
	in := &inspection{Inspection: storage.Inspection{Conversation: conversation}, of: make(map[uint64]*storage.InspectedSlot)}
	if badID(conversation) {
		return &in.Inspection, ctx.Err()
	}
	var err error
	if in.ChangeSeq, err = s.ChangeSeq(ctx, conversation); err != nil {
		return nil, err
	}
	err = s.Slots(ctx, conversation, "", seqs, func(slot *storage.Slot) bool {
		in.Slots = append(in.Slots, storage.InspectedSlot{Slot: *slot})
		return true
	})
	if err != nil {
		return nil, err
	}
	for i := range in.Slots {
		hideRevoked(&in.Slots[i].Slot)
		in.of[in.Slots[i].Message.Seq] = &in.Slots[i]
	}
	if err := s.read(ctx, conversation, func(r *runs) error { return in.runs(ctx, r) }); err != nil {
		return nil, err
	}
	if err := s.inspectUsers(ctx, in); err != nil {
		return nil, err
	}
	in.repeat()
	return &in.Inspection, nil
}

// inspection gathers what Inspect returns.
type inspection struct {
	storage.Inspection
	of map[uint64]*storage.InspectedSlot // by seq; one of those that were asked for twice
}

// repeat has a slot that was asked for twice say the same twice.
func (in *inspection) repeat() {
	for i := range in.Slots {
		in.Slots[i] = *in.of[in.Slots[i].Message.Seq]
	}
}

// hideRevoked takes out what nobody may see any more.
func hideRevoked(slot *storage.Slot) {
	if slot.Labels.Revoke != nil {
		slot.Message.Content, slot.Message.Mentions, slot.Labels.Edit = nil, nil, nil
	}
}

func (in *inspection) runs(ctx context.Context, r *runs) error {
	r.from, r.to = 1, 0 // no labels
	for ok := r.newest(); ok; ok = r.older() {
		if err := ctx.Err(); err != nil {
			return err
		}
		h := r.head
		if len(in.Buckets) == 0 {
			in.State = h.state()
		}
		value, err := r.it.ValueAndErr()
		if err != nil {
			return err
		}
		b := storage.InspectedBucket{
			ID: r.conversation + ":" + strconv.FormatUint(h.first, 10), First: h.first, Last: h.last(), Slots: int(h.count), Bytes: len(r.it.Key()) + len(value),
		}
		in.Buckets = append(in.Buckets, b)
		r.each(func(m *protocol.MessageHead, message []byte) bool {
			if slot := in.of[m.Seq]; slot != nil {
				slot.Bucket, slot.Bytes = b.ID, len(message)
			}
			return true
		})
	}
	slices.Reverse(in.Buckets)
	return r.err
}

// inspectUsers reads the rows, and what users deleted.
func (s *Store) inspectUsers(ctx context.Context, in *inspection) (err error) {
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	at := make(map[string]int) // of the rows, by user
	err = s.scan(ctx, in.Conversation, rowMark, func(end, key, value []byte) error {
		if len(end) == 1 && end[0] == headEnd {
			return nil
		}
		v, ok := parseRow(value, in.Conversation)
		if old, flying := s.flight.before(key, v.Stamp); ok && flying {
			if old == nil {
				return nil
			}
			v, ok = parseRow(old, in.Conversation)
		}
		if !ok {
			return damaged("a row", key)
		}
		at[string(end)] = len(in.Rows)
		in.Rows = append(in.Rows, storage.InspectedRow{User: string(end), View: v})
		return nil
	})
	if err != nil {
		return err
	}
	return s.scan(ctx, in.Conversation, hideMark, func(end, key, value []byte) error {
		user, first, ok := cutHide(end)
		set, ok2 := s.durableBits(key, value)
		if !ok || !ok2 {
			return damaged("what a user deleted", key)
		}
		if i, ok := at[user]; ok {
			for _, b := range set {
				in.Rows[i].Hidden += uint64(bits.OnesCount8(b))
			}
		}
		for seq, slot := range in.of {
			if seq/chunkSeqs == first/chunkSeqs && bitOf(set, seq) {
				deleted(slot, user)
			}
		}
		return nil
	})
}

// deleted adds a user to those who deleted the message.
func deleted(slot *storage.InspectedSlot, user string) {
	if slot.DelMore = len(slot.DelList) >= storage.MaxDeleters; !slot.DelMore {
		slot.DelList = append(slot.DelList, user)
	}
}

// cutHide takes a key after the hide mark apart: the user, and the first seq of the chunk.
func cutHide(end []byte) (user string, first uint64, ok bool) {
	i := bytes.IndexByte(end, endOfUser)
	if i <= 0 || len(end) != i+1+8 {
		return "", 0, false
	}
	return string(end[:i]), binary.BigEndian.Uint64(end[i+1:]) * chunkSeqs, true
}

// scan calls f for all keys of a conversation with the mark: the key's end after the mark, the key, and the value.
func (s *Store) scan(ctx context.Context, conversation string, mark byte, f func(end, key, value []byte) error) (err error) {
	lower, upper := appendKey(nil, talkSpace, conversation, mark), appendKey(nil, talkSpace, conversation, mark+1)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
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
		if err := f(it.Key()[len(lower):], it.Key(), value); err != nil {
			return err
		}
	}
	return it.Error()
}
