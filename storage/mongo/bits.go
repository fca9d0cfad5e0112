package mongo

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// What has no room in a slot lies beside it: sets of seqs, as compressed bitmaps, one document for 2^20 seqs of what the set is of.
//
//	hidden    _id "<conversation>\n<user>\n<chunk>"          the user deleted these messages
//	reactors  _id "<conversation>\n<user>\n<kind>\n<chunk>"  the user reacted so to these messages
//	          bits  a roaring bitmap of seq & (2^20 - 1), in its portable form: at most 128 KiB
//	          rev   raised by every write; each is a compare-and-set on it, so two writers lose nothing. It starts anywhere, so that a document
//	                that was deleted and made anew is not taken for the old one
//	          at    reactors: the number of the latest change in it
//
// Conversations and users have no "\n"; a kind may, since a chunk has none.
const (
	chunkBits = 20
	chunkMask = 1<<chunkBits - 1
)

// bitmap is a document.
type bitmap struct {
	ID   string `bson:"_id"`
	Bits []byte `bson:"bits"`
	Rev  int64  `bson:"rev"`
	At   uint64 `bson:"at,omitempty"`
}

// set is the bitmap's content.
func (b *bitmap) set() (*roaring.Bitmap, error) {
	set := roaring.New()
	if len(b.Bits) == 0 {
		return set, nil
	}
	if _, err := set.FromBuffer(b.Bits); err != nil {
		return nil, damaged("the bitmap "+strconv.Quote(b.ID), err)
	}
	return set, nil
}

// bitsOf names a set: all of it but the chunk.
type bitsOf string

func hiddenFrom(user, conversation string) bitsOf { return bitsOf(conversation + "\n" + user + "\n") }

func reactedBy(user, conversation, kind string) bitsOf {
	return bitsOf(conversation + "\n" + user + "\n" + kind + "\n")
}

// id is that of the document with seq.
func (o bitsOf) id(seq uint64) string { return string(o) + strconv.FormatUint(seq>>chunkBits, 10) }

// parseBits takes an _id apart; kind is what stands between the user and the chunk.
func parseBits(id string) (conversation, user, kind string, chunk uint64, ok bool) {
	conversation, rest, _ := strings.Cut(id, "\n")
	user, rest, _ = strings.Cut(rest, "\n")
	if end := strings.LastIndexByte(rest, '\n'); end >= 0 {
		kind, rest = rest[:end], rest[end+1:]
	}
	chunk, err := strconv.ParseUint(rest, 10, 64-chunkBits)
	return conversation, user, kind, chunk, err == nil && conversation != "" && user != ""
}

// besideOf is the filter for all bitmaps of a conversation.
func besideOf(conversation string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: conversation + "\n"}, {Key: "$lt", Value: conversation + "\v"}}}}
}

// bitEdit changes one document.
type bitEdit struct {
	add    []uint32
	remove []uint32
	at     uint64 // of reactors
}

// changeBits makes the documents what the edits say, and returns when that is durable. An edit that changes nothing writes nothing, and
// so does one that is older than what is there.
func (s *Store) changeBits(ctx context.Context, in *mongo.Collection, edits map[string]bitEdit) error {
	ids := make([]string, 0, len(edits))
	for id := range edits {
		ids = append(ids, id)
	}
	for part := range slices.Chunk(ids, idsPerQuery) {
		err := s.again(ctx, func() (done bool, err error) {
			models, err := bitWrites(ctx, in, edits, part)
			if err != nil || len(models) == 0 {
				return true, err
			}
			return writeAll(ctx, in, models)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bitWrites are the writes that are left to do for some of the edits.
func bitWrites(ctx context.Context, in *mongo.Collection, edits map[string]bitEdit, ids []string) ([]mongo.WriteModel, error) {
	found, err := findBitmaps(ctx, in, ids)
	if err != nil {
		return nil, err
	}
	var models []mongo.WriteModel
	for _, id := range ids {
		was, exists := found[id]
		bits, changed, err := edits[id].apply(&was)
		if err != nil {
			return nil, err
		}
		switch {
		case !changed:
		case exists:
			models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}, {Key: "rev", Value: was.Rev}}).
				SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "bits", Value: bits}, {Key: "at", Value: max(was.At, edits[id].at)}}},
					raised()}))
		default:
			models = append(models, mongo.NewInsertOneModel().SetDocument(bitmap{ID: id, Bits: bits, Rev: rand.Int64N(1 << 53), At: edits[id].at}))
		}
	}
	return models, nil
}

// apply is what the edit makes of the bitmap.
func (e bitEdit) apply(was *bitmap) (bits []byte, changed bool, err error) {
	if e.at < was.At {
		return nil, false, nil
	}
	set, err := was.set()
	if err != nil {
		return nil, false, err
	}
	for _, x := range e.add {
		changed = set.CheckedAdd(x) || changed
	}
	for _, x := range e.remove {
		changed = set.CheckedRemove(x) || changed
	}
	if !changed && e.at == was.At {
		return nil, false, nil
	}
	set.RunOptimize()
	bits, err = set.ToBytes()
	return bits, true, err
}

// writesPerBulk is how many writes go into one command at most, so that each ends well within the time that it has.
const writesPerBulk = 500

// writeAll writes, and tells whether each model did something: inserted its document, or matched it.
func writeAll(ctx context.Context, in *mongo.Collection, models []mongo.WriteModel) (done bool, err error) {
	done = true
	for part := range slices.Chunk(models, writesPerBulk) {
		r, err := in.BulkWrite(ctx, part, unordered())
		var failed mongo.BulkWriteException
		if errors.As(err, &failed) && onlyDuplicates(failed) {
			done = false
			continue
		}
		if err != nil {
			return false, err
		}
		done = done && r.InsertedCount+r.UpsertedCount+r.MatchedCount == int64(len(part))
	}
	return done, nil
}

// onlyDuplicates tells whether nothing else went wrong than that others had inserted the same documents.
func onlyDuplicates(failed mongo.BulkWriteException) bool {
	for _, e := range failed.WriteErrors {
		if e.Code != codeDuplicateKey {
			return false
		}
	}
	return failed.WriteConcernError == nil
}

// findBitmaps reads documents by their ids, as many as there are.
func findBitmaps(ctx context.Context, in *mongo.Collection, ids []string) (map[string]bitmap, error) {
	found := make(map[string]bitmap, len(ids))
	for part := range slices.Chunk(ids, idsPerQuery) {
		var docs []bitmap
		cursor, err := in.Find(ctx, withIDs(part))
		if err == nil {
			err = cursor.All(ctx, &docs)
		}
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			found[d.ID] = d
		}
	}
	return found, nil
}

// idsPerQuery is how many documents are asked for by their ids in one query.
const idsPerQuery = 250

// withIDs is the filter for them.
func withIDs(ids []string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
}
