package mongo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/storage"
)

// row is a user's row of a conversation:
//
//	_id         "<user>\n<conversation>"
//	user, conv
//	read_seq    the user's watermark, and
//	read_count  the other side's count at it
//	min_seq     the lowest seq that the user may read; at least 1
//	stamp       of the last change of any of these
type row struct {
	ID        string        `bson:"_id"`
	User      string        `bson:"user"`
	Conv      string        `bson:"conv"`
	ReadSeq   uint64        `bson:"read_seq"`
	ReadCount uint64        `bson:"read_count"`
	MinSeq    uint64        `bson:"min_seq"`
	Stamp     bson.DateTime `bson:"stamp"`
}

func rowID(user, conversation string) string { return user + "\n" + conversation }

// splitRowID takes one apart.
func splitRowID(id string) (user, conversation string) {
	user, conversation, _ = strings.Cut(id, "\n")
	return user, conversation
}

func (r *row) view() storage.View {
	return storage.View{Conversation: r.Conv, ReadSeq: r.ReadSeq, ReadCount: r.ReadCount, MinSeq: r.MinSeq, Stamp: stampOf(r.Stamp)}
}

// newRow writes the row of a user who has none in the conversation, and leaves one that there is as it is, but for its stamp.
func newRow(user, conversation string) mongo.WriteModel {
	fields := bson.D{
		{Key: "user", Value: user}, {Key: "conv", Value: conversation},
		{Key: "read_seq", Value: int64(0)}, {Key: "read_count", Value: int64(0)}, {Key: "min_seq", Value: int64(1)},
	}
	return mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: rowID(user, conversation)}}).
		SetUpdate(bson.D{{Key: "$setOnInsert", Value: fields}, stamping()})
}

// RaiseRead implements storage.Directory. It is one command: the row is raised if it is lower.
func (s *Store) RaiseRead(ctx context.Context, user, conversation string, seq, count uint64) (view storage.View, raised bool, err error) {
	id := rowID(user, conversation)
	lower := bson.D{{Key: "_id", Value: id}, {Key: "read_seq", Value: bson.D{{Key: "$lt", Value: seq}}}}
	raise := bson.D{{Key: "$set", Value: bson.D{{Key: "read_seq", Value: seq}, {Key: "read_count", Value: count}}}, stamping()}
	var now row
	began, tries := time.Now(), 0
	err = s.again(ctx, func() (bool, error) {
		tries++
		err := s.rows.FindOneAndUpdate(ctx, lower, raise, options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&now)
		raised = err == nil
		if noDocument(err) {
			err = s.rows.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&now)
			// A reply that was lost: what stands there now is most likely ours.
			raised = err == nil && tries > 1 && now.ReadSeq == seq && now.ReadCount == count
		}
		return true, err
	})
	if noDocument(err) {
		err = fmt.Errorf("mongo: the user has no row in %s", conversation)
	}
	if err == nil && raised {
		err = s.restampRow(ctx, began, &now)
	}
	if err != nil {
		return storage.View{}, false, s.fault(err)
	}
	return now.view(), raised, nil
}

// restampRow stamps the row again when the write of it took long.
func (s *Store) restampRow(ctx context.Context, began time.Time, r *row) error {
	if time.Since(began) <= s.settle/2 {
		return nil
	}
	if err := s.restamp(ctx, s.rows, began, r.ID); err != nil {
		return err
	}
	return s.rows.FindOne(ctx, bson.D{{Key: "_id", Value: r.ID}}).Decode(r)
}

// SignedOut implements storage.Directory.
func (s *Store) SignedOut(ctx context.Context, user, device string) (bool, error) {
	err := s.devices.FindOne(ctx, bson.D{{Key: "_id", Value: deviceID(user, device)}}).Err()
	if noDocument(err) {
		return false, nil
	}
	return err == nil, s.fault(err)
}

// SetSignedOut implements storage.Directory. A device that is signed out has a document {_id "<user>\n<device>", stamp}.
func (s *Store) SetSignedOut(ctx context.Context, user, device string, out bool) error {
	one := bson.D{{Key: "_id", Value: deviceID(user, device)}}
	err := s.again(ctx, func() (bool, error) {
		if !out {
			_, err := s.devices.DeleteOne(ctx, one)
			return true, err
		}
		_, err := s.devices.UpdateOne(ctx, one, bson.D{stamping()}, options.UpdateOne().SetUpsert(true))
		return !mongo.IsDuplicateKeyError(err), ignoreDuplicate(err)
	})
	return s.fault(err)
}

func deviceID(user, device string) string { return user + "\n" + device }

// ignoreDuplicate is err without a duplicate key: two upserts of one document met, and the loser tries again.
func ignoreDuplicate(err error) error {
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}

// Epoch implements storage.Directory.
func (s *Store) Epoch(context.Context) (string, error) { return s.epoch, nil }
