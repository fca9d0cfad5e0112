package mongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parley-im/parley/storage"
)

// Stamps order the changes of what is on users' lists: rows, and the newest bucket of each conversation's messages and of its changes. A stamp is
// the primary's clock in milliseconds when it applied the write ($currentDate); the clocks of clients and of parley's processes play no
// part. A stamp may be that of another change too, and after a failover the new primary's clock may lag a little behind the old one's: both are
// made up for by what follows, as long as the set's clocks agree within half of settle, which any time service keeps.
//
// A write may be seen some time after it took its stamp: when a majority has it. So a reader that looked at the list at 12:00:00 may meet, a moment
// later, a change that was stamped 11:59:59. Two things together make up for it:
//
//   - upTo, from which a device goes on, is the store's clock less settle: whatever was written in the last seconds comes again.
//   - A write whose acknowledgement took longer than half of settle may have been seen later than that, so it is stamped again (restamp), until
//     one write of the stamp was quick enough.
//
// A process that dies before it stamped again leaves a change that a device may miss until the next one in that conversation. The worker that takes
// over repeats the effects of what was not acknowledged, and stamps with them.
//
// A BSON timestamp of the set's logical clock would be unique, but servers other than MongoDB's own give it a resolution of a second.

// settle is how long a write may take from its stamp to the moment at which readers see it.
const settle = 4 * time.Second

// stamping is the part of an update that stamps the document.
func stamping() bson.E {
	return bson.E{Key: "$currentDate", Value: bson.D{{Key: "stamp", Value: true}}}
}

// stampOf is a stamp as everybody else knows it.
func stampOf(t bson.DateTime) storage.Stamp { return storage.Stamp(max(t, 0)) }

// upTo is a stamp that is below that of everything that readers do not see yet.
func (s *Store) upTo(ctx context.Context) (storage.Stamp, error) {
	now, err := s.clock(ctx)
	if err != nil {
		return 0, err
	}
	return storage.Stamp(max(now.Add(-s.settle).UnixMilli(), 0)), nil
}

// clock is the time of the primary.
func (s *Store) clock(ctx context.Context) (time.Time, error) {
	var at []struct {
		Now bson.DateTime `bson:"now"`
	}
	one, project := bson.D{{Key: "_id", Value: metaID}}, bson.D{{Key: "now", Value: "$$NOW"}}
	cursor, err := s.meta.Aggregate(ctx, mongo.Pipeline{{{Key: "$match", Value: one}}, {{Key: "$project", Value: project}}})
	if err == nil {
		err = cursor.All(ctx, &at)
	}
	if err == nil && len(at) != 1 {
		err = errNoMeta
	}
	if err != nil {
		return time.Time{}, err
	}
	return at[0].Now.Time(), nil
}

// restamp stamps documents that exist again, when the write of them that began at began took so long that it may have been seen late. The
// caller returns to its own caller after that.
func (s *Store) restamp(ctx context.Context, in *mongo.Collection, began time.Time, ids ...string) error {
	if time.Since(began) <= s.settle/2 {
		return nil
	}
	for part := range slices.Chunk(ids, writesPerBulk) {
		err := s.again(ctx, func() (quick bool, err error) {
			s.metrics.restamped.Add(float64(len(part)))
			began := time.Now()
			_, err = in.UpdateMany(ctx, withIDs(part), bson.D{stamping()})
			return time.Since(began) <= s.settle/2, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
