package mongo

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// A change bucket says which messages 100 consecutive changes of a conversation were of. Its position is the same arithmetic as a message's:
//
//	_id     "<conversation>:<n>", change 1 to 100 in n = 0
//	conv, n, layout: 100
//	tail    the highest number in it; what notes are compared and set by
//	slots   100 × {seq, time}, empty where no change is yet
//	newest  true in the highest n of a conversation. After the insert of a bucket the one below it has it too, until the next write
//	stamp, rev
type changeBucketDoc struct {
	ID     string        `bson:"_id"`
	Conv   string        `bson:"conv"`
	N      uint64        `bson:"n"`
	Layout int           `bson:"layout"`
	Tail   uint64        `bson:"tail"`
	Stamp  bson.DateTime `bson:"stamp"`
	Rev    int64         `bson:"rev"`
	Newest bool          `bson:"newest"`
	Slots  []noteSlot    `bson:"slots"`
}

type noteSlot struct {
	Seq  uint64 `bson:"seq,omitempty"`
	Time int64  `bson:"time,omitempty"`
}

// changeBucket is the id of the document with a change's note.
func changeBucket(conversation string, changeSeq uint64) string {
	return conversation + ":" + strconv.FormatUint((changeSeq-1)/storage.BucketSize, 10)
}

// noteModel stores a change's note if it is the next: the number picks what to do, an insert of a new bucket or an update of the one that is there.
func noteModel(c *storage.Change) mongo.WriteModel {
	id, n, slot := changeBucket(c.Conversation, c.ChangeSeq), (c.ChangeSeq-1)/storage.BucketSize, (c.ChangeSeq-1)%storage.BucketSize
	note := noteSlot{Seq: c.Seq, Time: c.TimeMS}
	if slot > 0 {
		return mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}, {Key: "tail", Value: c.ChangeSeq - 1}}).SetUpdate(bson.D{
			{Key: "$set", Value: bson.D{{Key: "slots." + strconv.FormatUint(slot, 10), Value: note}, {Key: "tail", Value: c.ChangeSeq}}},
			stamping(), raised(),
		})
	}
	slots := make([]noteSlot, storage.BucketSize)
	slots[0] = note
	// An upsert, so that the server stamps it; its filter matches no bucket that exists, so that one is a duplicate key.
	return mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: id}, {Key: "tail", Value: bson.D{{Key: "$lt", Value: 0}}}}).
		SetUpdate(bson.D{{Key: "$setOnInsert", Value: bson.D{
			{Key: "conv", Value: c.Conversation}, {Key: "n", Value: n}, {Key: "layout", Value: storage.BucketSize}, {Key: "tail", Value: c.ChangeSeq},
			{Key: "rev", Value: int64(1)}, {Key: "newest", Value: true}, {Key: "slots", Value: slots},
		}}, stamping()})
}

// changeHead is a conversation's newest change bucket, without its slots.
type changeHead struct {
	ID    string        `bson:"_id"`
	Conv  string        `bson:"conv"`
	N     uint64        `bson:"n"`
	Tail  uint64        `bson:"tail"`
	Stamp bson.DateTime `bson:"stamp"`
	old   string        // the id of the one below, when it is still flagged as the newest
}

// changeHeads reads those of the conversations that have changes.
func (s *Store) changeHeads(ctx context.Context, conversations []string) (map[string]changeHead, error) {
	heads := make(map[string]changeHead, len(conversations))
	for part := range slices.Chunk(conversations, idsPerQuery) {
		var found []changeHead
		filter := bson.D{{Key: "conv", Value: bson.D{{Key: "$in", Value: part}}}, {Key: "newest", Value: true}}
		if err := all(ctx, s.changes, filter, bson.D{{Key: "slots", Value: 0}}, &found); err != nil {
			return nil, err
		}
		for _, h := range found {
			other, two := heads[h.Conv]
			if two && other.N > h.N {
				h, other = other, h
			}
			if two {
				h.old = other.ID
			}
			heads[h.Conv] = h
		}
	}
	return heads, nil
}

// ChangeSeq implements storage.Changes.
func (s *Store) ChangeSeq(ctx context.Context, conversation string) (uint64, error) {
	heads, err := s.changeHeads(ctx, []string{conversation})
	return heads[conversation].Tail, s.fault(err)
}

// notes reads a change bucket from a slot on: one query, and nothing of it when there is none.
func (s *Store) notes(ctx context.Context, id string, slot, n int) ([]noteSlot, error) {
	var b changeBucketDoc
	slice := bson.D{{Key: "slots", Value: bson.D{{Key: "$slice", Value: bson.A{slot, n}}}}}
	err := s.changes.FindOne(ctx, bson.D{{Key: "_id", Value: id}}, options.FindOne().SetProjection(slice)).Decode(&b)
	if noDocument(err) {
		return nil, nil
	}
	return b.Slots, err
}

// Notes implements storage.Changes: one query for each 100 changes.
func (s *Store) Notes(ctx context.Context, conversation string, since uint64, yield func(storage.Note) bool) error {
	for since < protocol.MaxInt {
		slot := int(since % storage.BucketSize)
		notes, err := s.notes(ctx, changeBucket(conversation, since+1), slot, storage.BucketSize-slot)
		if err != nil || len(notes) == 0 {
			return s.fault(err)
		}
		for _, n := range notes {
			since++
			if n.Seq == 0 || !yield(storage.Note{ChangeSeq: since, Seq: n.Seq, TimeMS: n.Time}) {
				return nil
			}
		}
	}
	return nil
}

// isNoted tells whether the change is stored, with its number.
func (s *Store) isNoted(ctx context.Context, c *storage.Change) (bool, error) {
	notes, err := s.notes(ctx, changeBucket(c.Conversation, c.ChangeSeq), int((c.ChangeSeq-1)%storage.BucketSize), 1)
	return len(notes) == 1 && notes[0] == noteSlot{Seq: c.Seq, Time: c.TimeMS}, err
}

// errStored is what takes a change out of those that are left to do without an error. It is not returned to callers.
var errStored = errors.New("mongo: the change is stored")

// stripes make what is done to one conversation's changes one after the other.
type stripes [256]sync.Mutex

// lock takes those of the changes' conversations, in their order, and returns what gives them back.
func (l *stripes) lock(changes []*storage.Change) (unlock func()) {
	var taken []int
	for _, c := range changes {
		h := fnv.New32a()
		h.Write([]byte(c.Conversation))
		taken = append(taken, int(h.Sum32()%uint32(len(l))))
	}
	slices.Sort(taken)
	taken = slices.Compact(taken)
	for _, i := range taken {
		l[i].Lock()
	}
	return func() {
		for _, i := range taken {
			l[i].Unlock()
		}
	}
}
