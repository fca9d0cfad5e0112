package mongo

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parley-im/parley/storage"
)

// Inspect implements storage.Operator. It reads the heads and del_lists of all of the conversation's buckets, and no message but those that are asked
// for. What is written meanwhile may be in one part of it and not yet in another.
func (s *Store) Inspect(ctx context.Context, conversation string, seqs []uint64) (*storage.Inspection, error) {
	if slices.Contains(seqs, 0) {
		return nil, storage.ErrInvalidSeq
	}
	in, err := s.inspect(ctx, conversation, seqs)
	return in, s.fault(err)
}

func (s *Store) inspect(ctx context.Context, conversation string, seqs []uint64) (in *storage.Inspection, err error) {
	in = &storage.Inspection{Conversation: conversation}
	if in.State, err = s.State(ctx, conversation); err != nil {
		return nil, err
	}
	if in.ChangeSeq, err = s.ChangeSeq(ctx, conversation); err != nil {
		return nil, err
	}
	hidden := make(map[string]uint64)
	if in.Buckets, err = s.inspectBuckets(ctx, conversation, hidden); err != nil {
		return nil, err
	}
	if err := s.countHidden(ctx, conversation, hidden); err != nil {
		return nil, err
	}
	if in.Rows, err = s.inspectRows(ctx, conversation, hidden); err != nil {
		return nil, err
	}
	in.Slots, err = s.inspectSlots(ctx, conversation, seqs)
	return in, err
}

// inspectBuckets reads the buckets in the order of their seqs, and counts in hidden how many messages each user deleted, as far as the slots say.
func (s *Store) inspectBuckets(ctx context.Context, conversation string, hidden map[string]uint64) ([]storage.InspectedBucket, error) {
	slots := bson.D{{Key: "$ifNull", Value: bson.A{"$slots", bson.A{}}}} // a sealed one has none
	list := bson.D{{Key: "$map", Value: bson.D{{Key: "input", Value: slots}, {Key: "as", Value: "s"}, {Key: "in", Value: "$$s.del_list"}}}}
	cursor, err := s.buckets.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "conv", Value: conversation}}}},
		{{Key: "$project", Value: bson.D{
			{Key: "n", Value: 1}, {Key: "layout", Value: 1}, {Key: "tail", Value: 1}, {Key: "rev", Value: 1}, {Key: "sealed", Value: 1},
			{Key: "bytes", Value: bson.D{{Key: "$bsonSize", Value: "$$ROOT"}}}, {Key: "lists", Value: list},
			{Key: "size", Value: bson.D{{Key: "$size", Value: slots}}},
		}}},
	})
	if err != nil {
		return nil, err
	}
	var buckets []storage.InspectedBucket
	err = over(ctx, cursor, func() error {
		var b struct {
			ID     string     `bson:"_id"`
			N      uint64     `bson:"n"`
			Layout int        `bson:"layout"`
			Tail   uint64     `bson:"tail"`
			Rev    uint64     `bson:"rev"`
			Sealed bool       `bson:"sealed"`
			Bytes  int        `bson:"bytes"`
			Size   int        `bson:"size"`
			Lists  [][]string `bson:"lists"`
		}
		if err := cursor.Decode(&b); err != nil {
			return damaged("a bucket of "+conversation, err)
		}
		buckets = append(buckets, storage.InspectedBucket{
			ID: b.ID, First: b.N*uint64(b.Layout) + 1, Last: b.Tail, Slots: b.Size, Layout: b.Layout, Rev: b.Rev, Bytes: b.Bytes, Sealed: b.Sealed,
		})
		for _, users := range b.Lists {
			for _, user := range users {
				if !b.Sealed {
					hidden[user]++
				}
			}
		}
		return nil
	})
	slices.SortFunc(buckets, func(a, b storage.InspectedBucket) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.ID, b.ID))
	})
	return buckets, err
}

// countHidden adds what users deleted beyond the slots.
func (s *Store) countHidden(ctx context.Context, conversation string, hidden map[string]uint64) error {
	cursor, err := s.hidden.Find(ctx, besideOf(conversation))
	if err != nil {
		return err
	}
	return over(ctx, cursor, func() error {
		var b bitmap
		if err := cursor.Decode(&b); err != nil {
			return err
		}
		set, err := b.set()
		if err != nil {
			return err
		}
		_, user, _, _, _ := parseBits(b.ID)
		hidden[user] += set.GetCardinality()
		return nil
	})
}

// inspectRows reads the rows of the conversation, by user.
func (s *Store) inspectRows(ctx context.Context, conversation string, hidden map[string]uint64) ([]storage.InspectedRow, error) {
	var rows []row
	err := all(ctx, s.rows, bson.D{{Key: "conv", Value: conversation}}, nil, &rows)
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.User, b.User) })
	list := make([]storage.InspectedRow, len(rows))
	for i := range rows {
		list[i] = storage.InspectedRow{User: rows[i].User, View: rows[i].view(), Hidden: hidden[rows[i].User]}
	}
	return list, err
}

// inspectSlots reads slots with everything on them, but without what was revoked.
func (s *Store) inspectSlots(ctx context.Context, conversation string, seqs []uint64) ([]storage.InspectedSlot, error) {
	var list []storage.InspectedSlot
	err := s.Slots(ctx, conversation, "", seqs, func(slot *storage.Slot) bool {
		if slot.Labels.Revoke != nil {
			slot.Message.Content, slot.Message.Mentions = nil, nil
			slot.Labels.Edit = nil
		}
		list = append(list, storage.InspectedSlot{Slot: *slot})
		return true
	})
	expression := append(fieldsOf("del_list", "del_more"), bson.E{Key: "bytes", Value: bson.D{{Key: "$bsonSize", Value: "$$s"}}})
	for i := range list {
		if err != nil {
			break
		}
		var slot int
		list[i].Bucket, slot = s.place(conversation, list[i].Message.Seq)
		var found []struct {
			List  []string `bson:"del_list"`
			More  bool     `bson:"del_more"`
			Bytes int      `bson:"bytes"`
		}
		if _, err = s.pick(ctx, list[i].Bucket, []int{slot}, expression, &found); err == nil && len(found) == 1 {
			list[i].DelList, list[i].DelMore, list[i].Bytes = found[0].List, found[0].More, found[0].Bytes
		}
	}
	return list, err
}
