package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Recent implements storage.Buckets. Each bucket is one query, which returns ids and times alone.
func (s *Store) Recent(ctx context.Context, conversation string, yield func(storage.RecentID) bool) error {
	head, err := s.newest(ctx, conversation)
	if err != nil || head == nil {
		return s.fault(err)
	}
	for seq := head.Tail; seq > 0; {
		ids, err := s.ids(ctx, conversation, seq)
		if err != nil {
			return s.fault(err)
		}
		for i := range ids {
			if !yield(ids[i]) {
				return nil
			}
		}
		seq -= uint64(len(ids))
	}
	return nil
}

// ids are the ids from seq, which is stored, down to the first of its bucket.
func (s *Store) ids(ctx context.Context, conversation string, seq uint64) (ids []storage.RecentID, err error) {
	err = s.again(ctx, func() (bool, error) {
		id, last := s.place(conversation, seq)
		only := options.FindOne().SetProjection(bson.D{
			{Key: "tail", Value: 1}, {Key: "sealed", Value: 1}, {Key: "slots.id", Value: 1}, {Key: "slots.time", Value: 1},
		})
		var b bucket
		err := s.buckets.FindOne(ctx, bson.D{{Key: "_id", Value: id}}, only).Decode(&b)
		if missing := errors.Is(err, mongo.ErrNoDocuments); missing || err == nil && b.Sealed {
			moved, err := s.moved(ctx, conversation, seq, id)
			if err == nil && missing && !moved {
				err = s.hole(conversation, seq)
			}
			return false, err
		}
		if err != nil {
			return false, err
		}
		ids, err = s.idsIn(conversation, b.Slots, seq, last)
		return true, err
	})
	return ids, err
}

func (s *Store) idsIn(conversation string, slots []slot, seq uint64, last int) (ids []storage.RecentID, err error) {
	for i := last; i >= 0; i, seq = i-1, seq-1 {
		if i >= len(slots) || len(slots[i].ID) != len(protocol.MessageID{}) {
			return nil, s.hole(conversation, seq)
		}
		ids = append(ids, storage.RecentID{Seq: seq, ID: protocol.MessageID(slots[i].ID), LogTimeMS: slots[i].Time})
	}
	return ids, nil
}

// hole counts, and says, that a message at or below the tail is not there.
func (s *Store) hole(conversation string, seq uint64) error {
	s.metrics.holes.Inc()
	return damaged(fmt.Sprintf("%s at seq %d", conversation, seq), nil)
}
