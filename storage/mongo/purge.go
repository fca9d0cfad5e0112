package mongo

import (
	"context"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/storage"
)

// purgeStep is how many seqs are looked at, and purged, before the next are.
const purgeStep = 5000

// Purge implements storage.Operator. It goes up in steps; each reads the marks of its buckets in one query and then changes each bucket that has
// something left by one update, which takes the bodies and labels out of their slots and leaves id, time, counts and gone: true. A bucket's document stays,
// so messages go on filling the newest one meanwhile, and labels find gone. The first bucket keeps how far up from seq 1 nothing is left, in gone_to,
// so that a retention that comes by every hour does not look at everything again.
func (s *Store) Purge(ctx context.Context, conversation string, from, to uint64) (purged uint64, err error) {
	if from == 0 || from > to {
		return 0, storage.ErrInvalidSeq
	}
	state, err := s.State(ctx, conversation)
	if err != nil || state.Tail == 0 {
		return 0, err
	}
	to = min(to, state.Tail)
	before, err := s.goneTo(ctx, conversation)
	if err != nil {
		return 0, s.fault(err)
	}
	upward := from <= before+1
	if upward {
		from = max(from, before+1)
	}
	for ; from <= to; from += purgeStep {
		last := min(from+purgeStep-1, to)
		n, err := s.purgeStep(ctx, conversation, from, last)
		purged += n
		if err == nil && upward {
			err = s.raiseGoneTo(ctx, conversation, last)
		}
		if err != nil {
			return purged, s.fault(err)
		}
	}
	return purged, nil
}

// goneTo is a seq up to which everything was purged.
func (s *Store) goneTo(ctx context.Context, conversation string) (uint64, error) {
	var first struct {
		GoneTo uint64 `bson:"gone_to"`
	}
	bucket, _ := s.place(conversation, 1)
	only := options.FindOne().SetProjection(bson.D{{Key: "gone_to", Value: 1}})
	err := s.buckets.FindOne(ctx, bson.D{{Key: "_id", Value: bucket}, notSealed()}, only).Decode(&first)
	if noDocument(err) {
		err = nil
	}
	return first.GoneTo, err
}

// raiseGoneTo notes it. When the bucket is being moved it is not noted: that costs time at the next purge, nothing else.
func (s *Store) raiseGoneTo(ctx context.Context, conversation string, seq uint64) error {
	return s.again(ctx, func() (bool, error) {
		bucket, _ := s.place(conversation, 1)
		_, err := s.buckets.UpdateOne(ctx, bson.D{{Key: "_id", Value: bucket}, notSealed()},
			bson.D{{Key: "$max", Value: bson.D{{Key: "gone_to", Value: seq}}}, raised()})
		return true, err
	})
}

// purging is what is left of a bucket to purge.
type purging struct {
	bucket string
	slots  []int
	seqs   []uint64
	beside bool // something of these slots lies in bitmaps
}

// purgeStep purges [from, to], which are at or below the tail.
func (s *Store) purgeStep(ctx context.Context, conversation string, from, to uint64) (purged uint64, err error) {
	err = s.again(ctx, func() (bool, error) {
		left, unmoved, err := s.leftToPurge(ctx, conversation, from, to)
		if err != nil {
			return false, err
		}
		if err := s.purgeBeside(ctx, conversation, from, to, left); err != nil {
			return false, err
		}
		for _, p := range left {
			s.dropBodies(ctx, keysOf(conversation, p.seqs))
			r, err := s.buckets.UpdateOne(ctx, p.filter(), p.update())
			if err != nil {
				return false, err
			}
			if r.MatchedCount == 0 {
				unmoved = false
				continue
			}
			purged += uint64(len(p.seqs))
		}
		return unmoved, nil
	})
	return purged, err
}

// dropBodies has the cache forget bodies that must not be shown any more. That it fails is counted: labels, which are never cached, still say so.
func (s *Store) dropBodies(ctx context.Context, keys []storage.BodyKey) {
	if s.o.Cache == nil || len(keys) == 0 {
		return
	}
	if err := s.o.Cache.Drop(ctx, keys); err != nil {
		s.metrics.cache.WithLabelValues("error").Inc()
	}
}

func keysOf(conversation string, seqs []uint64) []storage.BodyKey {
	keys := make([]storage.BodyKey, len(seqs))
	for i, seq := range seqs {
		keys[i] = storage.BodyKey{Conversation: conversation, Seq: seq}
	}
	return keys
}

// purgeable is what a bucket says of what is left in it.
type purgeable struct {
	ID     string `bson:"_id"`
	Sealed bool   `bson:"sealed"`
	Slots  []struct {
		Gone      bool `bson:"gone"`
		DelMore   bool `bson:"del_more"`
		Reactions []struct {
			Count uint32   `bson:"count"`
			Users []string `bson:"users"`
		} `bson:"reactions"`
	} `bson:"slots"`
}

// leftToPurge finds what of [from, to] is not gone. unmoved is false when some of it is being moved to another layout.
func (s *Store) leftToPurge(ctx context.Context, conversation string, from, to uint64) (left []*purging, unmoved bool, err error) {
	byID := make(map[string]*purging)
	var ids []string
	for seq := from; seq <= to; seq++ {
		bucket, slot := s.place(conversation, seq)
		p := byID[bucket]
		if p == nil {
			p = &purging{bucket: bucket}
			byID[bucket], ids = p, append(ids, bucket)
		}
		p.slots, p.seqs = append(p.slots, slot), append(p.seqs, seq)
	}
	project := bson.D{{Key: "sealed", Value: 1}, {Key: "slots.gone", Value: 1}, {Key: "slots.del_more", Value: 1}, {Key: "slots.reactions", Value: 1}}
	var found []purgeable
	if err := all(ctx, s.buckets, withIDs(ids), project, &found); err != nil {
		return nil, false, err
	}
	there := make(map[string]*purgeable, len(found))
	for i := range found {
		there[found[i].ID] = &found[i]
	}
	unmoved = true
	for _, id := range ids {
		b, p := there[id], byID[id]
		if b == nil || b.Sealed {
			moved, err := s.moved(ctx, conversation, p.seqs[0], id)
			if err == nil && !moved && b == nil {
				err = damaged("bucket "+id, nil)
			}
			if err != nil {
				return nil, false, err
			}
			unmoved = false
			continue
		}
		if p.keep(b) {
			left = append(left, p)
		}
	}
	return left, unmoved, nil
}

// keep takes out of p what is gone already, and tells whether anything is left.
func (p *purging) keep(there *purgeable) bool {
	n := 0
	for i, slot := range p.slots {
		if slot >= len(there.Slots) || there.Slots[slot].Gone {
			continue
		}
		p.slots[n], p.seqs[n] = slot, p.seqs[i]
		n++
		p.beside = p.beside || there.Slots[slot].DelMore
		for _, r := range there.Slots[slot].Reactions {
			p.beside = p.beside || int(r.Count) > len(r.Users)
		}
	}
	p.slots, p.seqs = p.slots[:n], p.seqs[:n]
	return n > 0
}

func (p *purging) filter() bson.D {
	filter := bson.D{{Key: "_id", Value: p.bucket}, notSealed()}
	for _, slot := range p.slots {
		filter = append(filter, absent("slots."+strconv.Itoa(slot)+".gone"))
	}
	return filter
}

func (p *purging) update() bson.D {
	var set, unset bson.D
	for _, slot := range p.slots {
		at := "slots." + strconv.Itoa(slot) + "."
		set = append(set, bson.E{Key: at + "gone", Value: true})
		for _, field := range []string{"msg", "revoke", "edit", "reactions", "change_seq", "del_list", "del_more"} {
			unset = append(unset, bson.E{Key: at + field, Value: ""})
		}
	}
	return bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: unset}, raised()}
}

// purgeBeside takes the seqs of [from, to] out of the conversation's bitmaps, if one of the slots that are left says that there is something. It comes
// before the slots' own flags are gone, so that it is done again if this ends between.
func (s *Store) purgeBeside(ctx context.Context, conversation string, from, to uint64, left []*purging) error {
	if !slices.ContainsFunc(left, func(p *purging) bool { return p.beside }) {
		return nil
	}
	for _, in := range []*mongo.Collection{s.hidden, s.reactors} {
		if err := s.clearBits(ctx, in, conversation, from, to); err != nil {
			return err
		}
	}
	return nil
}

// clearBits goes over the conversation's bitmaps by their ids. One that is empty then is deleted.
func (s *Store) clearBits(ctx context.Context, in *mongo.Collection, conversation string, from, to uint64) error {
	cursor, err := in.Find(ctx, besideOf(conversation), options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	return over(ctx, cursor, func() error {
		id := cursor.Current.Lookup("_id").StringValue()
		_, _, _, chunk, ok := parseBits(id)
		if low, high := chunk<<chunkBits, chunk<<chunkBits|chunkMask; !ok || high < from || low > to {
			return nil
		}
		return s.again(ctx, func() (bool, error) { return clearBitmap(ctx, in, id, chunk, from, to) })
	})
}

// clearBitmap takes [from, to] out of one document. It is not done when another writer was there first.
func clearBitmap(ctx context.Context, in *mongo.Collection, id string, chunk, from, to uint64) (done bool, err error) {
	var was bitmap
	err = in.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&was)
	if noDocument(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	set, err := was.set()
	if err != nil {
		return false, err
	}
	low := chunk << chunkBits
	before := set.GetCardinality()
	set.RemoveRange(max(from, low)-low, min(to-low, chunkMask)+1)
	seen := bson.D{{Key: "_id", Value: id}, {Key: "rev", Value: was.Rev}}
	switch {
	case set.GetCardinality() == before:
		return true, nil
	case set.IsEmpty():
		r, err := in.DeleteOne(ctx, seen)
		return err == nil && r.DeletedCount == 1, err
	}
	bits, err := set.ToBytes()
	if err != nil {
		return false, err
	}
	r, err := in.UpdateOne(ctx, seen, bson.D{{Key: "$set", Value: bson.D{{Key: "bits", Value: bits}}}, raised()})
	return err == nil && r.MatchedCount == 1, err
}
