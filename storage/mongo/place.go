package mongo

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/hashicorp/golang-lru/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/storage"
)

// Where a message lies is arithmetic on its seq and the conversation's layout. Nearly all are in layout 100 and were never moved; of the others,
// layouts says where they are:
//
//	_id    the conversation
//	move   how often it was moved, the move that is under way included
//	from   the layout that this move leaves, 0 when the move is over
//	to     the layout that it goes to
//
// Documents of different moves have different _ids, so one who comes with what was true before never reads or writes what is true now:
//
//	never moved          <conversation>:<n>
//	the first move       <conversation>:<n>/<layout>
//	the m-th             <conversation>:<n>/<layout>.<m>
//
// During a move the messages up to sealedTo lie in the new layout, because their old buckets are sealed, and those above in the old one, but for
// what follows a full newest bucket, once its successor is sealed (rebucket.go). A sealed bucket stays for ever, without its slots: it tells
// whoever comes with the old address.

// place is one numbering of a conversation's buckets.
type place struct {
	layout int
	move   int
}

// plain is the place of a conversation that was never moved.
func plain() place { return place{layout: storage.BucketSize} }

// bucket is the number of the bucket with seq, and its slot; seq is not 0.
func (p place) bucket(seq uint64) (n uint64, slot int) {
	size := uint64(p.layout)
	return (seq - 1) / size, int((seq - 1) % size)
}

// first is the seq of slot 0 of bucket n.
func (p place) first(n uint64) uint64 { return n*uint64(p.layout) + 1 }

// last is the seq of bucket n's last slot.
func (p place) last(n uint64) uint64 { return (n + 1) * uint64(p.layout) }

// id is the _id of bucket n.
func (p place) id(conversation string, n uint64) string {
	id := conversation + ":" + strconv.FormatUint(n, 10)
	if p.move > 0 {
		id += "/" + strconv.Itoa(p.layout)
	}
	if p.move > 1 {
		id += "." + strconv.Itoa(p.move)
	}
	return id
}

// home says where a conversation's messages lie: those of (sealedTo, openTo] in old, all others in now. A conversation that is not being moved
// has old the same as now.
type home struct {
	now, old         place
	sealedTo, openTo uint64
}

func settled(p place) home { return home{now: p, old: p} }

// at is the place of the message with seq.
func (h home) at(seq uint64) place {
	if seq > h.sealedTo && seq <= h.openTo {
		return h.old
	}
	return h.now
}

// last is the highest seq that surely lies in the place of seq, and in its bucket.
func (h home) last(seq uint64) uint64 {
	p := h.at(seq)
	n, _ := p.bucket(seq)
	last := p.last(n)
	if seq <= h.sealedTo {
		return min(last, h.sealedTo)
	}
	return last
}

// homes remembers where conversations are. What it says may be out of date, and is then found out: the bucket is sealed, or not there.
type homes struct {
	known *lru.Cache[string, home]
}

// homesKept is how many conversations are remembered: about 200 bytes each.
const homesKept = 100_000

func newHomes() homes {
	known, err := lru.New[string, home](homesKept)
	if err != nil {
		panic(err) // for a size below 1
	}
	return homes{known: known}
}

// home is where the conversation most likely is. It asks nobody.
func (s *Store) home(conversation string) home {
	if h, ok := s.homes.known.Get(conversation); ok {
		return h
	}
	return settled(plain())
}

// place is the bucket's _id and the slot where the message most likely is. A bucket that is sealed was moved: call moved, and try again. So it may
// be with one that is not there.
func (s *Store) place(conversation string, seq uint64) (bucket string, slot int) {
	p := s.home(conversation).at(seq)
	n, slot := p.bucket(seq)
	return p.id(conversation, n), slot
}

// moved looks where the conversation is now, and tells whether the message is somewhere else than in bucket. When it is not, the bucket that is not there
// will not be found anywhere; one that is sealed is on its way, and a later look will tell.
func (s *Store) moved(ctx context.Context, conversation string, seq uint64, bucket string) (bool, error) {
	h, err := s.loadHome(ctx, conversation)
	if err != nil {
		return false, err
	}
	n, _ := h.at(seq).bucket(seq)
	return h.at(seq).id(conversation, n) != bucket, nil
}

// layoutDocument is a document of layouts.
type layoutDocument struct {
	ID   string `bson:"_id"`
	Move int    `bson:"move"`
	From int    `bson:"from"`
	To   int    `bson:"to"`
}

// old is the place that the move leaves.
func (d *layoutDocument) old() place { return place{layout: d.From, move: d.Move - 1} }

// now is the place that it goes to.
func (d *layoutDocument) now() place { return place{layout: d.To, move: d.Move} }

// loadHome reads where the conversation is, and remembers it.
func (s *Store) loadHome(ctx context.Context, conversation string) (home, error) {
	h, err := s.readHome(ctx, conversation)
	if err == nil {
		s.homes.known.Add(conversation, h)
	}
	return h, err
}

func (s *Store) readHome(ctx context.Context, conversation string) (home, error) {
	var d layoutDocument
	err := s.layouts.FindOne(ctx, bson.D{{Key: "_id", Value: conversation}}).Decode(&d)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return settled(plain()), nil
	case err != nil:
		return home{}, err
	case d.From == 0:
		return settled(d.now()), nil
	}
	return s.movingHome(ctx, conversation, &d)
}

// movingHome finds out how far a move has come. Buckets are sealed from the oldest up, and never opened again.
func (s *Store) movingHome(ctx context.Context, conversation string, d *layoutDocument) (home, error) {
	old := d.old()
	in := bson.D{{Key: "conv", Value: conversation}, {Key: "move", Value: old.move}}
	first, err := s.oneBucket(ctx, append(in[:2:2], notSealed()), 1)
	if err != nil {
		return home{}, err
	}
	if first == nil { // the newest, too, is sealed
		return settled(d.now()), nil
	}
	h := home{now: d.now(), old: old, sealedTo: first.N * uint64(old.layout), openTo: math.MaxUint64}
	top, err := s.oneBucket(ctx, in, -1)
	if err == nil && top != nil && top.Sealed && top.N > first.N {
		h.openTo = old.last(top.N - 1)
	}
	return h, err
}

// oneBucket is the first bucket that the filter finds in the order of n, up or down, without its slots; nil when there is none.
func (s *Store) oneBucket(ctx context.Context, filter bson.D, order int) (*bucket, error) {
	o := options.FindOne().SetSort(bson.D{{Key: "n", Value: order}}).SetProjection(withoutSlots())
	var b bucket
	err := s.buckets.FindOne(ctx, filter, o).Decode(&b)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	return &b, err
}

// notSealed is the part of every filter of a write to a bucket.
func notSealed() bson.E { return bson.E{Key: "sealed", Value: bson.D{{Key: "$exists", Value: false}}} }

// first is the lowest seq that surely lies in the place of seq, and in its bucket.
func (h home) first(seq uint64) uint64 {
	p := h.at(seq)
	n, _ := p.bucket(seq)
	first := p.first(n)
	if seq > h.openTo && h.openTo >= first {
		return h.openTo + 1
	}
	return first
}
