package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// verifiedBucket is a bucket with its slots as they are stored.
type verifiedBucket struct {
	ID     string         `bson:"_id"`
	Conv   string         `bson:"conv"`
	N      uint64         `bson:"n"`
	Layout int            `bson:"layout"`
	Move   int            `bson:"move"`
	Tail   uint64         `bson:"tail"`
	Counts storage.Counts `bson:"counts"`
	Newest bool           `bson:"newest"`
	Sealed bool           `bson:"sealed"`
	Slots  []bson.Raw     `bson:"slots"`

	changes map[uint64]uint64 // change_seq by seq
}

// verifiedSlot is what the next slot is held against.
type verifiedSlot struct {
	seq    uint64
	time   int64
	counts storage.Counts
	adds   *storage.Counts // what the message adds to the counts before it; nil: it is gone
}

// emptyDocument is the length of one.
const emptyDocument = 5

// open looks at a bucket that is not sealed. above is the first slot of the bucket above it, nil for none. It returns its own.
func (t *verifiedTalk) open(b *verifiedBucket, newest bool, above *verifiedSlot) *verifiedSlot {
	p := place{layout: b.Layout, move: b.Move}
	first, last := p.first(b.N), p.last(b.N)
	switch {
	case len(b.Slots) != b.Layout:
		t.fault(first, "bucket %s has %d slots instead of %d", b.ID, len(b.Slots), b.Layout)
		return nil
	case b.Tail < first || b.Tail > last:
		t.fault(first, "the tail of bucket %s is %d", b.ID, b.Tail)
		return nil
	case !newest && b.Tail < last:
		t.fault(b.Tail+1, "bucket %s ends at %d, and there is one above it", b.ID, b.Tail)
		above = nil
	}
	var bottom, below *verifiedSlot
	for i, raw := range b.Slots {
		seq := first + uint64(i)
		if seq > b.Tail {
			if len(raw) > emptyDocument {
				t.fault(seq, "there is something above the tail %d", b.Tail)
				break
			}
			continue
		}
		at := t.slot(b, seq, raw)
		if at != nil && below != nil {
			t.step(seq, below, at)
		}
		if i == 0 {
			bottom = at
		}
		below = at
	}
	if below != nil && below.counts != b.Counts {
		t.fault(b.Tail, "its counts are %v, and the bucket's %v", below.counts, b.Counts)
	}
	if above != nil && below != nil {
		t.step(above.seq, below, above)
	}
	return bottom
}

// step holds a message against the one before it, nil for none.
func (t *verifiedTalk) step(seq uint64, before, at *verifiedSlot) {
	was := verifiedSlot{}
	if before != nil {
		was = *before
	}
	if at.time < was.time {
		t.fault(seq, "its log time is %d, that of the message before it %d", at.time, was.time)
	}
	grown := storage.Counts{at.counts[0] - was.counts[0], at.counts[1] - was.counts[1]}
	if at.adds != nil && grown != *at.adds || grown[0]+grown[1] > 1 || grown[0] > 1 {
		t.fault(seq, "its counts are %v, those of the message before it %v", at.counts, was.counts)
	}
}

// slot looks at one that must have a message. It returns nil when there is nothing to hold the next against.
func (t *verifiedTalk) slot(b *verifiedBucket, seq uint64, raw bson.Raw) *verifiedSlot {
	var s slot
	if err := bson.Unmarshal(raw, &s); err != nil {
		t.fault(seq, "its slot cannot be read: %v", err)
		return nil
	}
	if len(s.ID) != len(protocol.MessageID{}) || !s.Gone && len(s.Msg) == 0 {
		t.fault(seq, "it is missing, and the tail of its bucket is %d", b.Tail)
		return nil
	}
	t.v.done.Messages++
	at := &verifiedSlot{seq: seq, time: s.Time, counts: s.Counts}
	if s.Gone {
		t.v.done.Gone++
		if len(s.Msg) > 0 || s.Revoke != nil || s.Edit != nil || len(s.Reactions)+len(s.DelList) > 0 || s.DelMore || s.ChangeSeq > 0 {
			t.fault(seq, "it is gone, and something of it is left")
		}
		return at
	}
	t.bounds(seq, &s)
	if s.ChangeSeq > 0 {
		if b.changes == nil {
			b.changes = make(map[uint64]uint64)
		}
		b.changes[seq] = s.ChangeSeq
	}
	var m protocol.Message
	if err := parseStored(s.Msg, &m); err != nil {
		t.fault(seq, "its body cannot be read: %v", err)
		return at
	}
	if m.Seq != seq || m.ConversationID != t.conversation || m.ServerMsgID != protocol.MessageID(s.ID).String() {
		t.fault(seq, "its body is of message %d of %q", m.Seq, m.ConversationID)
	}
	at.adds = &storage.Counts{}
	if storage.CountsAsUnread(&m) {
		at.adds[storage.Side(m.Sender, t.side)] = 1
	}
	return at
}

// bounds holds labels against what a slot has room for.
func (t *verifiedTalk) bounds(seq uint64, l *slot) {
	users := 0
	for _, r := range l.Reactions {
		users += len(r.Users)
		if int(r.Count) < len(r.Users) {
			t.fault(seq, "%d users reacted with %q, and %d are named", r.Count, r.Kind, len(r.Users))
		}
	}
	if len(l.DelList) > storage.MaxDeleters || len(l.Reactions) > protocol.MaxReactions || users > protocol.MaxReactors {
		t.fault(seq, "its labels are beyond their bounds: %d deleted it, %d reacted in %d ways", len(l.DelList), users, len(l.Reactions))
	}
	if l.ChangeSeq == 0 && (l.Revoke != nil || l.Edit != nil || len(l.Reactions) > 0) {
		t.fault(seq, "it has a label that no change made")
	}
}

// labelled holds the changes that a bucket's messages say they had against the notes. The next change's label may be there before its note.
func (t *verifiedTalk) labelled(ctx context.Context, b *verifiedBucket) error {
	if len(b.changes) == 0 {
		return nil
	}
	tail, err := t.v.s.ChangeSeq(ctx, t.conversation)
	if err != nil {
		return err
	}
	known := make(map[string][]noteSlot)
	for seq, c := range b.changes {
		if c > tail {
			if c > tail+1 {
				t.fault(seq, "it had change %d, and there are %d", c, tail)
			}
			continue
		}
		id := changeBucket(t.conversation, c)
		notes, ok := known[id]
		if !ok {
			if notes, err = t.v.s.notes(ctx, id, 0, storage.BucketSize); err != nil {
				return err
			}
			known[id] = notes
		}
		if i := int((c - 1) % storage.BucketSize); i >= len(notes) || notes[i].Seq != seq {
			t.fault(seq, "it had change %d, which is not noted to be its", c)
		}
	}
	return nil
}
