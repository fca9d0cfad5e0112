package mongo

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// A Store is a storage.Source, as long as nobody writes to it and no conversation is on its way to another layout.
var _ storage.Source = (*Store)(nil)

// LastStamp implements storage.Source: stamps are the store's clock, so it is that.
func (s *Store) LastStamp(ctx context.Context) (storage.Stamp, error) {
	now, err := s.clock(ctx)
	return storage.Stamp(max(now.UnixMilli(), 0)), err
}

// Archive implements storage.Source.
func (s *Store) Archive(ctx context.Context, conversation string) (*storage.Archive, error) {
	a := &storage.Archive{Conversation: conversation}
	heads, err := s.changeHeads(ctx, []string{conversation})
	if err != nil {
		return nil, err
	}
	a.ChangeSeq, a.ChangeStamp = heads[conversation].Tail, stampOf(heads[conversation].Stamp)
	if a.State, err = s.State(ctx, conversation); err != nil {
		return nil, err
	}
	var rows []row
	if err := all(ctx, s.rows, bson.D{{Key: "conv", Value: conversation}}, nil, &rows); err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.User, b.User) })
	for i := range rows {
		a.Rows = append(a.Rows, storage.ArchivedRow{User: rows[i].User, View: rows[i].view()})
	}
	sets := make(archiveSets)
	if err := s.archiveDelLists(ctx, conversation, sets); err != nil {
		return nil, err
	}
	if err := s.archiveBits(ctx, s.hidden, conversation, sets); err != nil {
		return nil, err
	}
	a.Hidden = sets.marks()
	sets = make(archiveSets)
	if err := s.archiveBits(ctx, s.reactors, conversation, sets); err != nil {
		return nil, err
	}
	a.Reacted = sets.marks()
	return a, nil
}

// archiveSet names the set of messages that a user deleted (kind "") or reacted to.
type archiveSet struct{ user, kind string }

type archiveSets map[archiveSet]*roaring64.Bitmap

// of is the set, which is made when it is not there.
func (a archiveSets) of(user, kind string) *roaring64.Bitmap {
	set := a[archiveSet{user, kind}]
	if set == nil {
		set = roaring64.New()
		a[archiveSet{user, kind}] = set
	}
	return set
}

// marks are the sets that have anything, in the order of user and kind.
func (a archiveSets) marks() (list []storage.Mark) {
	for name, set := range a {
		if !set.IsEmpty() {
			list = append(list, storage.Mark{User: name.user, Reaction: name.kind, Seqs: set.ToArray()})
		}
	}
	slices.SortFunc(list, func(a, b storage.Mark) int {
		if c := strings.Compare(a.User, b.User); c != 0 {
			return c
		}
		return strings.Compare(a.Reaction, b.Reaction)
	})
	return list
}

// eachBucket calls f for the buckets of a conversation that hold its messages, in their order, until it returns false.
func (s *Store) eachBucket(ctx context.Context, conversation string, from uint64, projection bson.D, f func(*bucket) (bool, error)) error {
	h, err := s.loadHome(ctx, conversation)
	if err != nil {
		return err
	}
	n, _ := h.now.bucket(from)
	filter := bson.D{{Key: "conv", Value: conversation}, {Key: "move", Value: h.now.move}, {Key: "n", Value: bson.D{{Key: "$gte", Value: n}}}, notSealed()}
	o := options.Find().SetSort(bson.D{{Key: "n", Value: 1}})
	if projection != nil {
		o.SetProjection(projection)
	}
	cursor, err := s.buckets.Find(ctx, filter, o)
	if err != nil {
		return err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }() // of what was read
	for cursor.Next(ctx) {
		var b bucket
		if err := cursor.Decode(&b); err != nil {
			return damaged("a bucket of "+conversation, err)
		}
		if more, err := f(&b); err != nil || !more {
			return err
		}
	}
	return cursor.Err()
}

// archiveDelLists takes who deleted messages, as far as the slots say.
func (s *Store) archiveDelLists(ctx context.Context, conversation string, sets archiveSets) error {
	projection := bson.D{{Key: "n", Value: 1}, {Key: "layout", Value: 1}, {Key: "move", Value: 1}, {Key: "slots.del_list", Value: 1}}
	return s.eachBucket(ctx, conversation, 1, projection, func(b *bucket) (bool, error) {
		for i := range b.Slots {
			for _, user := range b.Slots[i].DelList {
				sets.of(user, "").Add(b.place().first(b.N) + uint64(i))
			}
		}
		return true, nil
	})
}

// besides is the filter for the bitmaps of a conversation.
func besides(conversation string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: conversation + "\n"}, {Key: "$lt", Value: conversation + "\v"}}}}
}

// archiveBits takes the bitmaps of a conversation.
func (s *Store) archiveBits(ctx context.Context, in *mongo.Collection, conversation string, sets archiveSets) error {
	var docs []bitmap
	if err := all(ctx, in, besides(conversation), nil, &docs); err != nil {
		return err
	}
	for i := range docs {
		_, user, kind, chunk, ok := parseBits(docs[i].ID)
		set, err := docs[i].set()
		if err != nil || !ok {
			return damaged("the bitmap "+docs[i].ID, err)
		}
		into := sets.of(user, kind)
		for it := set.Iterator(); it.HasNext(); {
			into.Add(chunk<<chunkBits + uint64(it.Next()))
		}
	}
	return nil
}

// ArchivedSlots implements storage.Source.
func (s *Store) ArchivedSlots(ctx context.Context, conversation string, from uint64, yield func(*storage.ArchivedSlot) bool) error {
	if from == 0 {
		return storage.ErrInvalidSeq
	}
	if from > math.MaxInt64 {
		return nil
	}
	return s.eachBucket(ctx, conversation, from, nil, func(b *bucket) (more bool, err error) {
		first := b.place().first(b.N)
		for seq := max(from, first); seq <= b.Tail; seq++ {
			if seq-first >= uint64(len(b.Slots)) {
				return false, damaged("the bucket "+b.ID, nil)
			}
			slot, err := archiveSlot(conversation, seq, &b.Slots[seq-first])
			if err != nil {
				return false, damaged("a slot of the bucket "+b.ID, err)
			}
			if !yield(slot) {
				return false, nil
			}
		}
		return true, nil
	})
}

// archiveSlot reads a slot.
func archiveSlot(conversation string, seq uint64, s *slot) (*storage.ArchivedSlot, error) {
	out := &storage.ArchivedSlot{Slot: storage.Slot{LogTimeMS: s.Time, Counts: s.Counts}}
	out.Labels, _, _ = s.forViewer("")
	if copy(out.ID[:], s.ID) != len(out.ID) {
		return nil, errBody
	}
	if s.Gone {
		out.Message = protocol.Message{ConversationID: conversation, Seq: seq}
		out.Labels = storage.Labels{Gone: true}
		return out, nil
	}
	return out, parseStored(s.Msg, &out.Message)
}

// SignOuts implements storage.Source.
func (s *Store) SignOuts(ctx context.Context, yield func(storage.SignOut) bool) error {
	cursor, err := s.devices.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }() // of what was read
	for cursor.Next(ctx) {
		var d struct {
			ID    string        `bson:"_id"`
			Stamp bson.DateTime `bson:"stamp"`
		}
		if err := cursor.Decode(&d); err != nil {
			return damaged("a device", err)
		}
		user, device, ok := strings.Cut(d.ID, "\n")
		if !ok {
			return damaged("the device "+d.ID, nil)
		}
		if !yield(storage.SignOut{User: user, Device: device, Stamp: stampOf(d.Stamp)}) {
			return nil
		}
	}
	return cursor.Err()
}
