package mongo

import (
	"cmp"
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Put implements storage.Target. What is left of an earlier run is removed first; the note that the conversation is whole comes last.
func (t *Target) Put(ctx context.Context, from storage.Source, a *storage.Archive) error {
	p := put{t: t, a: a, deleters: newDeleters(a.Hidden)}
	steps := []func(context.Context) error{p.messages(from), p.bitmaps, p.rows, p.notes(from), p.done}
	if t.replace {
		steps = append([]func(context.Context) error{p.remove}, steps...)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// put is one conversation on its way in.
type put struct {
	t        *Target
	a        *storage.Archive
	deleters *deleterSets

	bucket  bucket // being filled
	active  int64  // time of the last message that is not the server's
	waiting []any  // buckets to insert
	bytes   int    // of the messages in them
	err     error  // of an insert
}

func (p *put) remove(ctx context.Context) error {
	conv := bson.D{{Key: "conv", Value: p.a.Conversation}}
	beside := besides(p.a.Conversation)
	_, err := p.t.buckets.DeleteMany(ctx, conv)
	if err == nil {
		_, err = p.t.changes.DeleteMany(ctx, conv)
	}
	if err == nil {
		_, err = p.t.Store.rows.DeleteMany(ctx, conv)
	}
	if err == nil {
		_, err = p.t.hidden.DeleteMany(ctx, beside)
	}
	if err == nil {
		_, err = p.t.reactors.DeleteMany(ctx, beside)
	}
	return err
}

// putBytes is about how many bytes of messages go into one command.
const putBytes = 4 << 20

// messages copies the slots, a bucket at a time.
func (p *put) messages(from storage.Source) func(context.Context) error {
	return func(ctx context.Context) error {
		err := from.ArchivedSlots(ctx, p.a.Conversation, 1, func(slot *storage.ArchivedSlot) bool {
			p.err = p.slot(ctx, slot)
			return p.err == nil
		})
		if err == nil {
			err = p.err
		}
		if err == nil && p.bucket.Tail != p.a.State.Tail {
			err = damaged("the conversation", nil)
		}
		if err != nil {
			return err
		}
		p.bucket.Newest, p.bucket.Counts, p.bucket.ActiveMS = true, p.a.State.Counts, p.a.State.ActiveMS
		p.finishBucket()
		return p.insert(ctx)
	}
}

// slot puts a message into its place.
func (p *put) slot(ctx context.Context, s *storage.ArchivedSlot) error {
	n, at := plain().bucket(s.Message.Seq)
	if at == 0 {
		if s.Message.Seq > 1 {
			p.finishBucket()
		}
		if p.bytes > putBytes {
			if err := p.insert(ctx); err != nil {
				return err
			}
		}
		p.bucket = bucket{
			ID: plain().id(p.a.Conversation, n), Conv: p.a.Conversation, N: n, Layout: storage.BucketSize,
			Slots: make([]slot, storage.BucketSize),
		}
	}
	if s.Message.ContentType < protocol.ContentServer && !s.Labels.Gone {
		p.active = s.Message.SendTimeMS
	}
	b := &p.bucket
	b.Tail, b.Counts, b.ActiveMS = s.Message.Seq, s.Counts, p.active
	b.Slots[at] = p.stored(s)
	p.bytes += len(b.Slots[at].Msg)
	return nil
}

// stored is a slot as it lies in a bucket.
func (p *put) stored(s *storage.ArchivedSlot) slot {
	out := slot{ID: s.ID[:], Time: s.LogTimeMS, Counts: s.Counts}
	if s.Labels.Gone {
		out.Gone = true
		return out
	}
	out.Msg = appendStored(nil, protocol.AppendBody(nil, &s.Message))
	l := &s.Labels
	out.ChangeSeq = l.ChangeSeq
	if r := l.Revoke; r != nil {
		out.Revoke = &revoke{User: r.User, Role: r.Role, Time: r.TimeMS}
	}
	if e := l.Edit; e != nil {
		out.Edit = &edit{Type: e.ContentType, Content: e.Content, Time: e.TimeMS}
	}
	for _, r := range l.Reactions {
		out.Reactions = append(out.Reactions, reaction{Kind: r.Kind, Count: r.Count, Users: append([]string{}, r.Users...)})
	}
	out.DelList, out.DelMore = p.deleters.of(s.Message.Seq)
	return out
}

// finishBucket is done with the bucket that was filled.
func (p *put) finishBucket() {
	b := &p.bucket
	slots := make(bson.A, storage.BucketSize)
	for i := range slots {
		slots[i] = bson.D{}
		if b.Slots[i].ID != nil {
			slots[i] = &b.Slots[i]
		}
	}
	doc := bson.D{
		{Key: "_id", Value: b.ID}, {Key: "conv", Value: b.Conv}, {Key: "n", Value: b.N}, {Key: "layout", Value: b.Layout}, {Key: "move", Value: b.Move},
		{Key: "tail", Value: b.Tail}, {Key: "counts", Value: b.Counts}, {Key: "active_ms", Value: b.ActiveMS},
		{Key: "stamp", Value: stampAs(p.a.State.Stamp)}, {Key: "rev", Value: int64(1)}, {Key: "slots", Value: slots},
	}
	if b.Newest {
		doc = append(doc, bson.E{Key: "newest", Value: true})
	}
	p.waiting = append(p.waiting, doc)
}

func (p *put) insert(ctx context.Context) error {
	_, err := p.t.buckets.InsertMany(ctx, p.waiting)
	p.waiting, p.bytes = p.waiting[:0], 0
	return err
}

// bitmaps stores what has no room in the slots.
func (p *put) bitmaps(ctx context.Context) error {
	var docs []any
	for user, set := range p.deleters.beside {
		docs = appendBitmaps(docs, hiddenFrom(user, p.a.Conversation), set.ToArray(), 0)
	}
	if err := insertAll(ctx, p.t.hidden, docs); err != nil {
		return err
	}
	docs = nil
	for _, m := range p.a.Reacted {
		docs = appendBitmaps(docs, reactedBy(m.User, p.a.Conversation, m.Reaction), m.Seqs, p.a.ChangeSeq)
	}
	return insertAll(ctx, p.t.reactors, docs)
}

// appendBitmaps appends the documents of a set.
func appendBitmaps(docs []any, of bitsOf, seqs []uint64, at uint64) []any {
	for len(seqs) > 0 {
		id := of.id(seqs[0])
		var e bitEdit
		for len(seqs) > 0 && of.id(seqs[0]) == id {
			e.add = append(e.add, uint32(seqs[0]&chunkMask))
			seqs = seqs[1:]
		}
		bits, _, _ := e.apply(&bitmap{}) // fails only on a bitmap that is damaged
		docs = append(docs, bitmap{ID: id, Bits: bits, Rev: 1, At: at})
	}
	return docs
}

func (p *put) rows(ctx context.Context) error {
	docs := make([]any, len(p.a.Rows))
	for i, r := range p.a.Rows {
		docs[i] = row{
			ID: rowID(r.User, p.a.Conversation), User: r.User, Conv: p.a.Conversation,
			ReadSeq: r.ReadSeq, ReadCount: r.ReadCount, MinSeq: r.MinSeq, Stamp: stampAs(r.Stamp),
		}
	}
	return insertAll(ctx, p.t.Store.rows, docs)
}

// notes stores the change buckets. A note that the other store left out, because its message was changed again, becomes one more of the message whose
// note comes next: readers look at what a message is now, and pass over a note that is not of its latest change.
func (p *put) notes(from storage.Source) func(context.Context) error {
	return func(ctx context.Context) error {
		var docs []any
		var b changeBucketDoc
		err := from.Notes(ctx, p.a.Conversation, 0, func(n storage.Note) bool {
			for b.Tail < n.ChangeSeq {
				if b.Tail%storage.BucketSize == 0 {
					if b.Tail > 0 {
						docs = append(docs, b)
					}
					b = p.changeBucket(b.Tail)
				}
				b.Slots[b.Tail%storage.BucketSize] = noteSlot{Seq: n.Seq, Time: n.TimeMS}
				b.Tail++
			}
			return true
		})
		if err != nil || b.Tail == 0 && p.a.ChangeSeq == 0 {
			return err
		}
		if b.Tail != p.a.ChangeSeq {
			return damaged("the conversation's changes", nil)
		}
		b.Newest = true
		return insertAll(ctx, p.t.changes, append(docs, b))
	}
}

// changeBucket is an empty one, for the changes above tail.
func (p *put) changeBucket(tail uint64) changeBucketDoc {
	return changeBucketDoc{
		ID: changeBucket(p.a.Conversation, tail+1), Conv: p.a.Conversation, N: tail / storage.BucketSize, Layout: storage.BucketSize, Tail: tail,
		Stamp: stampAs(p.a.ChangeStamp), Rev: 1, Slots: make([]noteSlot, storage.BucketSize),
	}
}

// done notes that the conversation is whole.
func (p *put) done(ctx context.Context) error {
	_, err := p.t.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: copyID}}, bson.D{{Key: "$set", Value: bson.D{{Key: "after", Value: p.a.Conversation}}}})
	return err
}

// stampAs is a stamp as documents have it.
func stampAs(s storage.Stamp) bson.DateTime { return bson.DateTime(s) }

// deleterSets is who deleted which messages, cut into what slots name and what lies beside them. Messages are asked for in their order.
type deleterSets struct {
	users  []string
	sets   map[string]*roaring64.Bitmap
	beside map[string]*roaring64.Bitmap
}

func newDeleters(hidden []storage.Mark) *deleterSets {
	d := &deleterSets{sets: make(map[string]*roaring64.Bitmap), beside: make(map[string]*roaring64.Bitmap)}
	for _, m := range hidden {
		d.users = append(d.users, m.User)
		d.sets[m.User] = roaring64.BitmapOf(m.Seqs...)
	}
	slices.SortFunc(d.users, cmp.Compare[string])
	return d
}

// of divides the users who deleted a message.
func (d *deleterSets) of(seq uint64) (list []string, more bool) {
	for _, user := range d.users {
		switch {
		case !d.sets[user].Contains(seq):
		case len(list) < storage.MaxDeleters:
			list = append(list, user)
		default:
			more = true
			if d.beside[user] == nil {
				d.beside[user] = roaring64.New()
			}
			d.beside[user].Add(seq)
		}
	}
	return list, more
}
