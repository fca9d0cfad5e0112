package storage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"maps"
	"slices"

	"github.com/parley-im/parley/protocol"
)

// Sum stands for everything that a store has of a conversation: two that have the same have the same Sum, whatever their form. How messages lie
// in buckets or runs is not in it.
type Sum struct {
	Messages uint64 // gone ones, too
	Gone     uint64
	Labels   uint64 // messages that have any
	Notes    uint64 // of the latest change of each message
	Rows     uint64
	Hidden   uint64 // messages, once for each user
	Reacted  uint64 // beside the slots
	Hash     [sha256.Size]byte
}

// String is for people.
func (s Sum) String() string {
	return fmt.Sprintf("%d messages (%d gone, %d with labels), %d notes, %d rows, %d hidden, %d reactions beside, hash %x",
		s.Messages, s.Gone, s.Labels, s.Notes, s.Rows, s.Hidden, s.Reacted, s.Hash[:4])
}

// SumConversation reads a conversation whole.
func SumConversation(ctx context.Context, from Source, conversation string) (Sum, error) {
	s := summer{h: sha256.New()}
	a, err := from.Archive(ctx, conversation)
	if err != nil {
		return s.sum, err
	}
	err = from.ArchivedSlots(ctx, conversation, 1, func(slot *ArchivedSlot) bool {
		s.slot(slot)
		return true
	})
	if err != nil {
		return s.sum, err
	}
	s.archive(a)
	if err := s.notes(ctx, from, conversation); err != nil {
		return s.sum, err
	}
	s.h.Sum(s.sum.Hash[:0])
	return s.sum, nil
}

func sumSignOuts(ctx context.Context, from Source) (sum [sha256.Size]byte, err error) {
	s := summer{h: sha256.New()}
	err = from.SignOuts(ctx, func(o SignOut) bool {
		s.text(o.User, o.Device)
		s.add(uint64(o.Stamp))
		return true
	})
	s.h.Sum(sum[:0])
	return sum, err
}

// summer hashes. Every list has its length before it and every text too, so that no two contents make the same bytes.
type summer struct {
	h    hash.Hash
	b    []byte
	gone []span
	sum  Sum
}

// span is a range of seqs.
type span struct{ from, to uint64 }

// live are the seqs that are not gone: what was done to a message that is purged now may be kept or not.
func (s *summer) live(seqs []uint64) []uint64 {
	var left []uint64
	gone := s.gone
	for _, seq := range seqs {
		for len(gone) > 0 && gone[0].to < seq {
			gone = gone[1:]
		}
		if len(gone) == 0 || seq < gone[0].from {
			left = append(left, seq)
		}
	}
	return left
}

// purged notes a seq that is gone. They come in their order.
func (s *summer) purged(seq uint64) {
	s.sum.Gone++
	if n := len(s.gone); n > 0 && s.gone[n-1].to+1 == seq {
		s.gone[n-1].to = seq
		return
	}
	s.gone = append(s.gone, span{seq, seq})
}

func (s *summer) add(numbers ...uint64) {
	s.b = s.b[:0]
	for _, n := range numbers {
		s.b = binary.AppendUvarint(s.b, n)
	}
	s.h.Write(s.b)
}

func (s *summer) text(texts ...string) {
	for _, t := range texts {
		s.add(uint64(len(t)))
		s.b = append(s.b[:0], t...)
		s.h.Write(s.b)
	}
}

func (s *summer) bytes(b []byte) {
	s.add(uint64(len(b)))
	s.h.Write(b)
}

func (s *summer) archive(a *Archive) {
	s.add(a.State.Tail, a.State.Counts[0], a.State.Counts[1], uint64(a.State.ActiveMS), uint64(a.State.Stamp), a.ChangeSeq, uint64(a.ChangeStamp))
	s.add(uint64(len(a.Rows)))
	for i := range a.Rows {
		r := &a.Rows[i]
		s.text(r.User)
		s.add(r.ReadSeq, r.ReadCount, r.MinSeq, uint64(r.Stamp))
	}
	s.sum.Rows = uint64(len(a.Rows))
	s.sum.Hidden = s.marks(a.Hidden)
	s.sum.Reacted = s.marks(a.Reacted)
}

func (s *summer) marks(list []Mark) (n uint64) {
	for i := range list {
		seqs := s.live(list[i].Seqs)
		if len(seqs) == 0 {
			continue
		}
		s.text(list[i].User, list[i].Reaction)
		s.add(uint64(len(seqs)))
		s.add(seqs...)
		n += uint64(len(seqs))
	}
	s.text("") // no user: the end
	return n
}

func (s *summer) slot(slot *ArchivedSlot) {
	s.sum.Messages++
	s.h.Write(slot.ID[:])
	s.add(slot.Message.Seq, uint64(slot.LogTimeMS), slot.Counts[0], slot.Counts[1])
	l := &slot.Labels
	if l.Gone {
		s.purged(slot.Message.Seq)
		s.add(1)
		return
	}
	s.add(0)
	s.bytes(protocol.AppendBody(nil, &slot.Message))
	if l.ChangeSeq != 0 || l.Revoke != nil || l.Edit != nil || len(l.Reactions) > 0 {
		s.sum.Labels++
	}
	s.labels(l)
}

// notes takes each message's latest: a store may have left out the others.
func (s *summer) notes(ctx context.Context, from Source, conversation string) error {
	latest := make(map[uint64]Note)
	err := from.Notes(ctx, conversation, 0, func(n Note) bool {
		latest[n.Seq] = n
		return true
	})
	if err != nil {
		return err
	}
	s.sum.Notes = uint64(len(latest))
	for _, n := range slices.SortedFunc(maps.Values(latest), func(a, b Note) int { return cmp.Compare(a.ChangeSeq, b.ChangeSeq) }) {
		s.add(n.ChangeSeq, n.Seq, uint64(n.TimeMS))
	}
	return nil
}

func (s *summer) labels(l *Labels) {
	s.add(l.ChangeSeq)
	if r := l.Revoke; r != nil {
		s.text("revoke", r.User)
		s.add(uint64(r.Role), uint64(r.TimeMS))
	}
	if e := l.Edit; e != nil {
		s.text("edit")
		s.add(uint64(e.ContentType), uint64(e.TimeMS))
		s.bytes(e.Content)
	}
	s.add(uint64(len(l.Reactions)))
	for i := range l.Reactions {
		r := &l.Reactions[i]
		s.text(r.Kind)
		s.add(uint64(r.Count), uint64(len(r.Users)))
		s.text(r.Users...)
	}
}
