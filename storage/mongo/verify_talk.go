package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parley-im/parley/protocol"
)

// buckets looks at all buckets, conversation by conversation, those of one move after the other, from the highest number down, so that messages which
// come meanwhile are above what was looked at.
func (v *verifier) buckets(ctx context.Context) error {
	t := &verifiedTalk{v: v}
	order := bson.D{{Key: "conv", Value: 1}, {Key: "move", Value: 1}, {Key: "n", Value: -1}}
	err := each(ctx, v, v.s.buckets, order, 1, func(ctx context.Context, b []verifiedBucket) error {
		if b[0].Conv != t.conversation {
			if err := t.end(ctx); err != nil {
				return err
			}
			t.begin(b[0].Conv)
		}
		v.done.Buckets++
		return t.bucket(ctx, &b[0])
	})
	if err != nil {
		return err
	}
	if err := t.end(ctx); err != nil {
		return err
	}
	return t.members(ctx, 0)
}

// verifiedTalk is the conversation that is being looked at.
type verifiedTalk struct {
	v            *verifier
	conversation string
	side         string // the user of side 0
	moves        []verifiedMove
	rows         []string // of conversations that were looked at, not looked for yet
}

// verifiedMove is what is known of the buckets of one move.
type verifiedMove struct {
	move, layout     int
	sealed, unsealed int
	lowest           verifiedBucket // the last that was looked at, without its slots
	first            *verifiedSlot  // its first slot; nil when it was sealed, or damaged
	top              uint64         // the highest tail among the unsealed
	topNumber        uint64
	topFlagged       bool
	flagged          []uint64 // numbers of unsealed ones that are flagged as the newest
}

func (t *verifiedTalk) begin(conversation string) {
	_, side, _ := protocol.ParseConversation(conversation)
	t.conversation, t.side, t.moves = conversation, side, nil
}

// bucket looks at the next one.
func (t *verifiedTalk) bucket(ctx context.Context, b *verifiedBucket) error {
	if len(t.moves) == 0 || t.moves[len(t.moves)-1].move != b.Move {
		t.endMove()
		t.moves = append(t.moves, verifiedMove{move: b.Move, layout: b.Layout})
		t.moves[len(t.moves)-1].lowest.N = b.N + 1
	}
	m := &t.moves[len(t.moves)-1]
	p := place{layout: b.Layout, move: b.Move}
	switch {
	case b.Layout != m.layout || b.Layout < 1:
		t.fault(0, "bucket %s has layout %d, those above it %d", b.ID, b.Layout, m.layout)
		return nil
	case b.ID != p.id(b.Conv, b.N):
		t.fault(0, "bucket %s has the number %d and layout %d", b.ID, b.N, b.Layout)
	case b.N+1 != m.lowest.N:
		t.fault(p.first(b.N), "of the buckets, those between the numbers %d and %d are missing", b.N, m.lowest.N)
		m.first = nil
	}
	var first *verifiedSlot
	if b.Sealed {
		m.sealed++
	} else {
		newest := m.unsealed+m.sealed == 0
		m.unsealed++
		m.flag(b)
		first = t.open(b, newest, m.first)
		if err := t.labelled(ctx, b); err != nil {
			return err
		}
	}
	b.Slots, m.lowest, m.first = nil, *b, first
	return nil
}

// flag notes whether the bucket is the newest, and whether it says so.
func (m *verifiedMove) flag(b *verifiedBucket) {
	if b.Tail > m.top {
		m.top, m.topNumber, m.topFlagged = b.Tail, b.N, b.Newest
	}
	if b.Newest {
		m.flagged = append(m.flagged, b.N)
	}
}

func (t *verifiedTalk) fault(seq uint64, format string, args ...any) {
	t.v.fault(t.conversation, seq, format, args...)
}

// endMove is after the lowest bucket of a move.
func (t *verifiedTalk) endMove() {
	if len(t.moves) == 0 {
		return
	}
	m := &t.moves[len(t.moves)-1]
	if m.lowest.N != 0 {
		t.fault(1, "the buckets below number %d are missing", m.lowest.N)
	} else if m.first != nil {
		t.step(1, nil, m.first)
	}
}

// end is after the conversation's last bucket.
func (t *verifiedTalk) end(ctx context.Context) error {
	if t.conversation == "" && len(t.moves) == 0 {
		return nil
	}
	t.endMove()
	if err := t.moved(ctx); err != nil {
		return err
	}
	t.newest()
	t.v.done.Conversations++
	t.v.progress(t.v.done)
	switch kind, a, b := protocol.ParseConversation(t.conversation); kind {
	case protocol.KindDirect:
		t.rows = append(t.rows, rowID(a, t.conversation), rowID(b, t.conversation))
	case protocol.KindUser:
		t.rows = append(t.rows, rowID(a, t.conversation))
	case protocol.KindInvalid:
		t.fault(0, "%q cannot be a conversation's id", t.conversation)
	}
	return t.members(ctx, verifyBatch)
}

// members looks for the rows that the conversations must have, when there are more than so many.
func (t *verifiedTalk) members(ctx context.Context, more int) error {
	if len(t.rows) <= more {
		return nil
	}
	found, err := t.v.s.rowsByID(ctx, t.rows)
	for _, id := range t.rows {
		if _, ok := found[id]; !ok && err == nil {
			user, conversation := splitRowID(id)
			t.v.fault(conversation, 0, "is not on the list of %q: its row is missing", user)
		}
	}
	t.rows = t.rows[:0]
	return err
}

// newest holds the flags against the tails. The bucket below the highest may be flagged too: the next append, to whatever conversation, takes that
// flag away.
func (t *verifiedTalk) newest() {
	var top *verifiedMove
	for i := range t.moves {
		m := &t.moves[i]
		if m.unsealed > 0 && (top == nil || m.top >= top.top) {
			top = m
		}
	}
	switch {
	case top == nil:
		t.fault(0, "all its buckets are sealed")
	case !top.topFlagged:
		t.fault(top.top, "the bucket with the tail is not flagged as the newest")
	}
	for i := range t.moves {
		for _, n := range t.moves[i].flagged {
			if n+1 < t.moves[i].topNumber {
				t.fault(0, "its old bucket %d is flagged as the newest", n)
			}
		}
	}
}

// moved holds the moves against what layouts says.
func (t *verifiedTalk) moved(ctx context.Context) error {
	var d layoutDocument
	err := t.v.s.layouts.FindOne(ctx, bson.D{{Key: "_id", Value: t.conversation}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		d, err = layoutDocument{To: plain().layout}, nil
	}
	if err != nil {
		return err
	}
	for i := range t.moves {
		m := &t.moves[i]
		switch {
		case m.move == d.Move && m.layout != d.To, m.move == d.Move-1 && d.From > 0 && m.layout != d.From:
			t.fault(0, "its buckets of move %d have layout %d, and another is noted", m.move, m.layout)
		case m.move > d.Move:
			t.fault(0, "it has %d buckets of move %d, which is not noted", m.sealed+m.unsealed, m.move)
		case m.move == d.Move && m.sealed > 0:
			t.fault(0, "%d of its buckets are sealed, and it was not moved on", m.sealed)
		case m.move < d.Move && m.unsealed > 0 && (d.From == 0 || m.move < d.Move-1):
			t.fault(0, "%d of its old buckets are not sealed, and it was moved", m.unsealed)
		}
	}
	if d.From == 0 && (len(t.moves) == 0 || t.moves[len(t.moves)-1].move < d.Move) {
		t.fault(0, "it was moved to layout %d, and has no bucket there", d.To)
	}
	return nil
}
