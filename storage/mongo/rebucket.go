package mongo

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/storage"
)

// The size of a bucket is in every address, so it cannot be changed in place. Rebucket moves a conversation into buckets of another size, which are
// documents of their own (place.go), while messages and labels arrive. It goes from the oldest bucket up, and for each:
//
//  1. reads the revs of the new buckets that its messages go to,
//  2. reads the bucket, at some rev,
//  3. copies its slots, as they are, with labels and marks, to their new places, each new bucket by a compare-and-set on the rev of 1,
//  4. reads the copies back, and compares their number and hash,
//  5. seals the bucket by a compare-and-set on the rev of 2.
//
// Whatever was written to the bucket between 2 and 5 has raised its rev, so 5 fails and all of it is done again. Until 5 the bucket is the truth, and nobody
// reads or writes its copy. From 5 on the copy is, and the bucket is never read or written again: every writer's filter has "not sealed", and
// whoever meets a sealed bucket looks where the conversation is now. A label on the copy is later than 5, and raises the copy's rev; so a second
// copier that read the bucket before 5 fails at 3, because it read the rev of 1 before that. So any number of copiers can run, and none needs a lock.
//
// The state of the conversation is in its newest bucket, which comes last. When that has room, a message that arrives is a write to the bucket, and meets
// the seal like any other. When it is full, the next message would make the next old bucket, which no seal prevents: so then, before 5, the next
// old bucket is made, sealed from birth and empty. From that moment on the next message goes to the new layout, whose newest bucket has the same
// tail: the copy is there since 3. Tail, counts, times and stamp only rise ($max), so if a label has the bucket copied once more, messages that came
// meanwhile stay counted.
//
// A new bucket is flagged newest with the copy of one that is. Both are then, with one tail, or the old one with a higher: the highest tail counts, so each
// moment has its state. The seal takes the old flag off.
//
// A kill anywhere leaves some buckets sealed and the others not; the same command goes on with the lowest that is not. At the end layouts says
// that the move is over, and the sealed buckets give up their slots. They stay for ever without: a writer that slept through it all must not make
// a bucket anew that was moved.
//
// Tried and dropped: a lock for the copier (what its holder sent before it lost it still arrives); deleting old buckets (the insert of a sleeper
// succeeds); one flag for the conversation instead of a seal on each bucket (no write to a bucket can look at it in the same step).

// Rebucket moves a conversation into buckets of size messages, while it is in use. progress, if not nil, is told after each bucket up to which seq
// messages were moved, and the tail. What was interrupted is gone on with when it is called again with the same size. storage.ErrNotFound when
// there is no such conversation. Safe from any goroutine and process, more than once at a time, too.
func (s *Store) Rebucket(ctx context.Context, conversation string, size int, progress func(done, total uint64)) error {
	if size < 1 || bucketBytes(size, s.o.MaxBody) > maxDocument {
		return fmt.Errorf("mongo: buckets of %d may pass what MongoDB takes as one document, with bodies of %d bytes: at most %d are possible",
			size, s.o.MaxBody, (maxDocument-documentBytes)/slotLimit(s.o.MaxBody))
	}
	head, err := s.newest(ctx, conversation)
	if err == nil && head == nil {
		err = storage.ErrNotFound
	}
	if err != nil {
		return s.fault(err)
	}
	d, err := s.beginMove(ctx, conversation, size)
	if err != nil || d == nil {
		return s.fault(err)
	}
	m := &moving{s: s, conversation: conversation, d: d, old: d.old(), now: d.now()}
	for {
		b, err := s.oneBucket(ctx, bson.D{{Key: "conv", Value: conversation}, {Key: "move", Value: m.old.move}, notSealed()}, 1)
		if err != nil {
			return s.fault(err)
		}
		if b == nil {
			return s.fault(m.finish(ctx))
		}
		if err := m.bucket(ctx, b.N); err != nil {
			return s.fault(err)
		}
		if progress != nil {
			if head, err = s.newest(ctx, conversation); err != nil {
				return s.fault(err)
			}
			progress(min(m.old.last(b.N), head.Tail), head.Tail)
		}
	}
}

// beginMove writes into layouts that the conversation is on its way, or finds that it is; nil when it has that size already.
func (s *Store) beginMove(ctx context.Context, conversation string, size int) (d *layoutDocument, err error) {
	one := bson.E{Key: "_id", Value: conversation}
	err = s.again(ctx, func() (bool, error) {
		d = &layoutDocument{ID: conversation, To: storage.BucketSize}
		err := s.layouts.FindOne(ctx, bson.D{one}).Decode(d)
		never := errors.Is(err, mongo.ErrNoDocuments)
		switch {
		case err != nil && !never:
			return false, err
		case d.From != 0 && d.To != size:
			return false, fmt.Errorf("mongo: %s is on its way to buckets of %d: let that end first, with the same command and that size", conversation, d.To)
		case d.From != 0:
			return true, nil
		case d.To == size:
			d = nil
			return true, nil
		}
		next := layoutDocument{ID: conversation, Move: d.Move + 1, From: d.To, To: size}
		if never {
			_, err = s.layouts.InsertOne(ctx, next)
			return false, ignoreDuplicate(err)
		}
		_, err = s.layouts.ReplaceOne(ctx, bson.D{one, {Key: "move", Value: d.Move}, {Key: "from", Value: 0}}, next)
		return false, err // once more: it says what is there now
	})
	return d, err
}

// moving is a Rebucket under way.
type moving struct {
	s            *Store
	conversation string
	d            *layoutDocument
	old, now     place
}

// bucket moves one old bucket, and returns when it is sealed.
func (m *moving) bucket(ctx context.Context, n uint64) error {
	for p := (pause{}); ; {
		sealed, err := m.try(ctx, n)
		if sealed || err != nil && !transient(err) {
			return err
		}
		m.s.metrics.retries.Inc()
		if !p.wait(ctx) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// movedBucket is an old bucket as it was read, with its slots as they are.
type movedBucket struct {
	Bucket bucket     `bson:",inline"`
	Raw    []bson.Raw `bson:"-"`
}

// try goes through the steps once.
func (m *moving) try(ctx context.Context, n uint64) (sealed bool, err error) {
	first, last := m.old.first(n), m.old.last(n)
	low, _ := m.now.bucket(first)
	high, _ := m.now.bucket(last)
	revs, err := m.revs(ctx, low, high)
	if err != nil {
		return false, err
	}
	old, err := m.s.whole(ctx, m.old.id(m.conversation, n))
	if err != nil {
		return false, err
	}
	b := &old.Bucket
	if b.Sealed {
		return true, nil
	}
	if b.Tail < first || b.Tail > last || len(old.Raw) != m.old.layout {
		return false, damaged("the bucket "+b.ID, nil)
	}
	for to := low; to <= high && m.now.first(to) <= b.Tail; to++ {
		from, until := max(first, m.now.first(to)), min(b.Tail, m.now.last(to))
		rev, there := revs[m.now.id(m.conversation, to)]
		if ok, err := m.copy(ctx, old, to, from, until, rev, there); !ok || err != nil {
			return false, err
		}
	}
	if b.Tail == last {
		if err := m.guard(ctx, b); err != nil {
			return false, err
		}
	}
	r, err := m.s.buckets.UpdateOne(ctx, bson.D{{Key: "_id", Value: b.ID}, {Key: "rev", Value: b.Rev}, notSealed()}, bson.D{
		{Key: "$set", Value: bson.D{{Key: "sealed", Value: true}}}, {Key: "$unset", Value: bson.D{{Key: "newest", Value: ""}}}, raised(),
	})
	return err == nil && r.MatchedCount == 1, err
}

// revs are those of the new buckets from low to high that are there.
func (m *moving) revs(ctx context.Context, low, high uint64) (map[string]int64, error) {
	var ids []string
	for n := low; n <= high; n++ {
		ids = append(ids, m.now.id(m.conversation, n))
	}
	var list []bucket
	if err := all(ctx, m.s.buckets, withIDs(ids), bson.D{{Key: "rev", Value: 1}}, &list); err != nil {
		return nil, err
	}
	revs := make(map[string]int64, len(list))
	for _, b := range list {
		revs[b.ID] = b.Rev
	}
	return revs, nil
}

// whole reads a bucket with all its slots as they are.
func (s *Store) whole(ctx context.Context, id string) (*movedBucket, error) {
	raw, err := s.buckets.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
	if err != nil {
		return nil, err
	}
	var b movedBucket
	if err := bson.Unmarshal(raw, &b); err != nil {
		return nil, damaged("the bucket "+id, err)
	}
	list, err := slotsOf(raw)
	if err != nil {
		return nil, damaged("the bucket "+id, err)
	}
	b.Raw, b.Bucket.Slots = list, b.Bucket.Slots[:min(len(list), len(b.Bucket.Slots))]
	return &b, nil
}

// slotsOf are the slots of a bucket's document, none when it has none.
func slotsOf(document bson.Raw) ([]bson.Raw, error) {
	array, ok := document.Lookup("slots").ArrayOK()
	if !ok {
		return nil, nil
	}
	values, err := array.Values()
	if err != nil {
		return nil, err
	}
	slots := make([]bson.Raw, len(values))
	for i, v := range values {
		if slots[i], ok = v.DocumentOK(); !ok {
			return nil, errBody
		}
	}
	return slots, nil
}

// copy brings [from, until], which the old bucket has, into a new one, and compares. It is not ok when another writer was there.
func (m *moving) copy(ctx context.Context, old *movedBucket, to, from, until uint64, rev int64, there bool) (ok bool, err error) {
	id := m.now.id(m.conversation, to)
	at := int(from - m.old.first(old.Bucket.N))
	slots := old.Raw[at : at+int(until-from)+1]
	last := old.Bucket.Slots[at+len(slots)-1]
	_, slot := m.now.bucket(from)
	var model mongo.WriteModel
	if there {
		model = m.fill(id, &old.Bucket, &last, until, slot, slots, rev)
	} else {
		model = m.create(id, &old.Bucket, &last, to, until, slot, slots)
		rev = 0
	}
	r, err := m.s.buckets.BulkWrite(ctx, []mongo.WriteModel{model}, unordered())
	if err != nil || r.MatchedCount+r.UpsertedCount != 1 {
		return false, ignoreDuplicate(err)
	}
	return m.compare(ctx, id, slot, slots, rev+1)
}

// create is the new bucket with the slots in it, and with the state at the last of them.
func (m *moving) create(id string, b *bucket, last *slot, n, tail uint64, at int, slots []bson.Raw) mongo.WriteModel {
	all := make(bson.A, m.now.layout)
	for i := range all {
		all[i] = bson.D{}
		if i >= at && i < at+len(slots) {
			all[i] = slots[i-at]
		}
	}
	fields := bson.D{
		{Key: "conv", Value: m.conversation}, {Key: "n", Value: int64(n)}, {Key: "layout", Value: m.now.layout}, {Key: "move", Value: m.now.move},
		{Key: "tail", Value: int64(tail)}, {Key: "counts", Value: last.Counts}, {Key: "active_ms", Value: b.ActiveMS}, {Key: "stamp", Value: b.Stamp},
		{Key: "rev", Value: int64(1)}, {Key: "slots", Value: all},
	}
	if b.Newest && tail == b.Tail {
		fields = append(fields, bson.E{Key: "newest", Value: true})
	}
	none := bson.D{{Key: "_id", Value: id}, {Key: "tail", Value: bson.D{{Key: "$lt", Value: 0}}}}
	return mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(none).SetUpdate(bson.D{{Key: "$setOnInsert", Value: fields}})
}

// fill puts the slots into a new bucket that is there. Its state may be ahead of theirs.
func (m *moving) fill(id string, b *bucket, last *slot, tail uint64, at int, slots []bson.Raw, rev int64) mongo.WriteModel {
	set := make(bson.D, 0, len(slots)+1)
	for i, slot := range slots {
		set = append(set, bson.E{Key: fmt.Sprint("slots.", at+i), Value: slot})
	}
	if b.Newest && tail == b.Tail {
		set = append(set, bson.E{Key: "newest", Value: true})
	}
	most := bson.D{
		{Key: "tail", Value: int64(tail)}, {Key: "counts.0", Value: int64(last.Counts[0])}, {Key: "counts.1", Value: int64(last.Counts[1])},
		{Key: "active_ms", Value: b.ActiveMS}, {Key: "stamp", Value: b.Stamp},
	}
	seen := bson.D{{Key: "_id", Value: id}, {Key: "rev", Value: rev}, notSealed()}
	return mongo.NewUpdateOneModel().SetFilter(seen).SetUpdate(bson.D{{Key: "$set", Value: set}, {Key: "$max", Value: most}, raised()})
}

// compare reads back what was copied. It is not ok when the copy was written to meanwhile.
func (m *moving) compare(ctx context.Context, id string, at int, want []bson.Raw, rev int64) (ok bool, err error) {
	only := bson.D{{Key: "rev", Value: 1}, {Key: "slots", Value: bson.D{{Key: "$slice", Value: bson.A{at, len(want)}}}}}
	raw, err := m.s.buckets.FindOne(ctx, bson.D{{Key: "_id", Value: id}}, options.FindOne().SetProjection(only)).Raw()
	if err != nil {
		return false, err
	}
	if there, _ := raw.Lookup("rev").AsInt64OK(); there != rev {
		return false, nil
	}
	got, err := slotsOf(raw)
	if err != nil || len(got) != len(want) || hashOf(got) != hashOf(want) {
		return false, damaged("the copy "+id, err)
	}
	return true, nil
}

// guard makes the old bucket that follows a full one, sealed, if there is none.
func (m *moving) guard(ctx context.Context, b *bucket) error {
	fields := bson.D{
		{Key: "conv", Value: m.conversation}, {Key: "n", Value: int64(b.N + 1)}, {Key: "layout", Value: m.old.layout}, {Key: "move", Value: m.old.move},
		{Key: "tail", Value: int64(b.Tail)}, {Key: "counts", Value: b.Counts}, {Key: "active_ms", Value: b.ActiveMS},
		{Key: "rev", Value: int64(1)}, {Key: "sealed", Value: true},
	}
	_, err := m.s.buckets.BulkWrite(ctx, []mongo.WriteModel{newBucketModel(m.old.id(m.conversation, b.N+1), fields)}, unordered())
	return ignoreDuplicate(err)
}

// finish notes that the move is over, and takes the slots out of what was moved.
func (m *moving) finish(ctx context.Context) error {
	conv := bson.E{Key: "conv", Value: m.conversation}
	return m.s.again(ctx, func() (bool, error) {
		head, err := m.s.newest(ctx, m.conversation)
		if err != nil {
			return false, err
		}
		below := bson.D{conv, {Key: "newest", Value: true}, {Key: "tail", Value: bson.D{{Key: "$lt", Value: int64(head.Tail)}}}}
		if _, err := m.s.buckets.UpdateMany(ctx, below, bson.D{{Key: "$unset", Value: bson.D{{Key: "newest", Value: ""}}}, raised()}); err != nil {
			return false, err
		}
		one := bson.D{{Key: "_id", Value: m.conversation}, {Key: "move", Value: m.d.Move}}
		if _, err := m.s.layouts.UpdateOne(ctx, one, bson.D{{Key: "$set", Value: bson.D{{Key: "from", Value: 0}}}}); err != nil {
			return false, err
		}
		left := bson.D{conv, {Key: "move", Value: m.old.move}, {Key: "sealed", Value: true}}
		if _, err := m.s.buckets.UpdateMany(ctx, left, bson.D{{Key: "$unset", Value: bson.D{{Key: "slots", Value: ""}}}, raised()}); err != nil {
			return false, err
		}
		_, err = m.s.loadHome(ctx, m.conversation)
		return true, err
	})
}

// hashOf is a hash over slots as they are stored.
func hashOf(slots []bson.Raw) [sha256.Size]byte { return sha256.Sum256(slices.Concat(slots...)) }
