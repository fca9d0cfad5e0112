package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// pickedHead is what pick says of the bucket.
type pickedHead struct {
	Tail   uint64 `bson:"tail"`
	Sealed bool   `bson:"sealed"`
}

// fieldsOf is what pick makes of a slot: some of its fields.
func fieldsOf(names ...string) bson.D {
	var slot bson.D
	for _, f := range names {
		slot = append(slot, bson.E{Key: f, Value: "$$s." + f})
	}
	return slot
}

// pick reads what slot makes of some slots of a bucket, $$s being each, into the slice that into points to, in the order of slots: one query,
// which returns nothing else. mongo.ErrNoDocuments when there is no such bucket.
func (s *Store) pick(ctx context.Context, bucket string, slots []int, slot bson.D, into any) (pickedHead, error) {
	element := bson.D{{Key: "$let", Value: bson.D{
		{Key: "vars", Value: bson.D{{Key: "s", Value: bson.D{{Key: "$arrayElemAt", Value: bson.A{"$slots", "$$i"}}}}}}, {Key: "in", Value: slot},
	}}}
	picked := bson.D{{Key: "$map", Value: bson.D{{Key: "input", Value: slots}, {Key: "as", Value: "i"}, {Key: "in", Value: element}}}}
	cursor, err := s.buckets.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "_id", Value: bucket}}}},
		{{Key: "$project", Value: bson.D{{Key: "tail", Value: 1}, {Key: "sealed", Value: 1}, {Key: "picked", Value: picked}}}},
	})
	if err != nil {
		return pickedHead{}, err
	}
	var found []struct {
		Head   pickedHead    `bson:",inline"`
		Picked bson.RawValue `bson:"picked"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return pickedHead{}, err
	}
	if len(found) == 0 {
		return pickedHead{}, mongo.ErrNoDocuments
	}
	return found[0].Head, found[0].Picked.Unmarshal(into)
}

// absent is the filter for a field of a slot that is not there. A filter on null does not do: it also looks for a field of that number in each slot.
func absent(field string) bson.E {
	return bson.E{Key: field, Value: bson.D{{Key: "$exists", Value: false}}}
}

// raised is the part of an update that every write of a document with a rev has.
func raised() bson.E { return bson.E{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}} }

// noDocument tells whether err is that a query for one document found none.
func noDocument(err error) bool { return errors.Is(err, mongo.ErrNoDocuments) }
