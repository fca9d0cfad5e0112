package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// conversationsPerQuery is how many ids Conversations reads at a time. No cursor stays open while the caller has them.
const conversationsPerQuery = 1000

// Conversations implements storage.Operator: from the index of the newest buckets.
func (s *Store) Conversations(ctx context.Context, after string, yield func(conversation string) bool) error {
	page := options.Find().SetSort(bson.D{{Key: "conv", Value: 1}}).SetLimit(conversationsPerQuery).
		SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "conv", Value: 1}})
	for {
		var found []struct {
			Conv string `bson:"conv"`
		}
		cursor, err := s.buckets.Find(ctx, bson.D{{Key: "newest", Value: true}, {Key: "conv", Value: bson.D{{Key: "$gt", Value: after}}}}, page)
		if err == nil {
			err = cursor.All(ctx, &found)
		}
		if err != nil || len(found) == 0 {
			return s.fault(err)
		}
		for _, f := range found {
			if f.Conv == after { // a second bucket of it is still flagged
				continue
			}
			if after = f.Conv; !yield(after) {
				return nil
			}
		}
	}
}

// LastBefore implements storage.Operator. Log times never fall, so it halves what is left until it has the seq: one query of one slot each time.
func (s *Store) LastBefore(ctx context.Context, conversation string, timeMS int64) (uint64, error) {
	state, err := s.State(ctx, conversation)
	if err != nil || state.Tail == 0 {
		return 0, err
	}
	before, err := s.isBefore(ctx, conversation, state.Tail, timeMS)
	if before {
		return state.Tail, nil
	}
	if err != nil {
		return 0, err
	}
	if before, err = s.isBefore(ctx, conversation, 1, timeMS); err != nil || !before {
		return 0, err
	}
	low, high := uint64(1), state.Tail // low is before, high is not
	for low+1 < high {
		middle := low + (high-low)/2
		before, err := s.isBefore(ctx, conversation, middle, timeMS)
		if err != nil {
			return 0, err
		}
		if before {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

// isBefore tells whether the log time of a message, which there is, is below timeMS.
func (s *Store) isBefore(ctx context.Context, conversation string, seq uint64, timeMS int64) (before bool, err error) {
	err = s.again(ctx, func() (bool, error) {
		bucket, slot := s.place(conversation, seq)
		var found []struct {
			Time int64 `bson:"time"`
		}
		head, err := s.pick(ctx, bucket, []int{slot}, fieldsOf("time"), &found)
		if noDocument(err) || err == nil && head.Sealed {
			moved, err := s.moved(ctx, conversation, seq, bucket)
			if err == nil && !moved && !head.Sealed {
				err = damaged("bucket "+bucket, nil)
			}
			return false, err
		}
		if err == nil {
			before = len(found) == 1 && found[0].Time < timeMS
		}
		return true, err
	})
	return before, s.fault(err)
}
