package mongo

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// queriesAtOnce is how many buckets of one request are asked for at the same time.
const queriesAtOnce = 4

// load reads messages, wherever they lie: one query for each bucket. slots are in the order of seqs, nil for one that is not stored. whole is false when
// a bucket was not there.
func (s *Store) load(ctx context.Context, conversation, viewer string, seqs []uint64) (slots []*storage.Slot, whole bool, err error) {
	slots = make([]*storage.Slot, len(seqs))
	left := make([]int, 0, len(seqs))
	for i, seq := range seqs {
		if seq <= protocol.MaxInt {
			left = append(left, i)
		}
	}
	whole = len(left) == len(seqs)
	err = s.again(ctx, func() (bool, error) {
		f := fetching{s: s, conversation: conversation, viewer: viewer, seqs: seqs, slots: slots}
		var ok bool
		ok, left, err = f.buckets(ctx, left)
		whole = whole && ok
		return len(left) == 0, err
	})
	return slots, whole, err
}

// fetching is one try of load.
type fetching struct {
	s                    *Store
	conversation, viewer string
	seqs                 []uint64
	slots                []*storage.Slot

	mu      sync.Mutex
	again   []int // these were moved
	missing bool
}

// wanted is what is wanted of one bucket.
type wanted struct {
	id     string
	of     []int // in fetching.seqs
	slots  []int // and their slots
	bodies [][]byte
	need   []int // in of: those without a body
}

// buckets reads those of seqs. What turns out to lie elsewhere meanwhile is left.
func (f *fetching) buckets(ctx context.Context, of []int) (whole bool, left []int, err error) {
	var group errgroup.Group
	group.SetLimit(queriesAtOnce)
	for _, w := range f.divide(of) {
		group.Go(func() error { return f.bucket(ctx, w) })
	}
	err = group.Wait()
	return !f.missing, f.again, err
}

// divide groups seqs by their buckets.
func (f *fetching) divide(of []int) []*wanted {
	byID := make(map[string]*wanted)
	var list []*wanted
	for _, i := range of {
		id, slot := f.s.place(f.conversation, f.seqs[i])
		w := byID[id]
		if w == nil {
			w = &wanted{id: id}
			byID[id], list = w, append(list, w)
		}
		w.of, w.slots = append(w.of, i), append(w.slots, slot)
	}
	return list
}

// bucket reads what is wanted of one bucket.
func (f *fetching) bucket(ctx context.Context, w *wanted) error {
	f.cached(ctx, w)
	b, err := f.s.query(ctx, w)
	missing := errors.Is(err, mongo.ErrNoDocuments)
	if err != nil && !missing {
		return err
	}
	if missing || b.Sealed {
		moved, err := f.s.moved(ctx, f.conversation, f.seqs[w.of[0]], w.id)
		f.mu.Lock()
		defer f.mu.Unlock()
		if moved || !missing {
			f.again = append(f.again, w.of...)
		} else {
			f.missing = true
		}
		return err
	}
	return f.take(ctx, w, b)
}

// take makes slots of what was read.
func (f *fetching) take(ctx context.Context, w *wanted, b *bucket) error {
	if len(b.Slots) != len(w.of) {
		return damaged(fmt.Sprintf("the bucket %s with %d of %d slots", w.id, len(b.Slots), len(w.of)), nil)
	}
	ask := asking{}
	for k, i := range w.of {
		seq, from := f.seqs[i], &b.Slots[k]
		if seq > b.Tail {
			continue
		}
		slot, err := f.slot(seq, from, w.bodies[k])
		if err != nil {
			return err
		}
		ask.take(slot, from, f.viewer)
		f.slots[i] = slot
	}
	if err := ask.answer(ctx, f.s, f.conversation, f.viewer); err != nil {
		return err
	}
	f.remember(ctx, w, b)
	return nil
}

// slot decodes one. A cached body stands in for the stored one, which was then not asked for.
func (f *fetching) slot(seq uint64, from *slot, cached []byte) (*storage.Slot, error) {
	if len(from.ID) == 0 {
		return nil, f.s.hole(f.conversation, seq)
	}
	slot := &storage.Slot{LogTimeMS: from.Time, Counts: from.Counts}
	slot.Message.ConversationID, slot.Message.Seq = f.conversation, seq
	if from.Gone {
		return slot, nil
	}
	stored := from.Msg
	if cached != nil {
		stored = cached
	}
	err := parseStored(stored, &slot.Message)
	if err == nil && (slot.Message.Seq != seq || slot.Message.ConversationID != f.conversation) {
		err = errBody
	}
	if err != nil {
		return nil, damaged(fmt.Sprintf("the message %d of %s", seq, f.conversation), err)
	}
	return slot, nil
}

// asking is what the bitmaps are asked for.
type asking struct {
	hidden map[uint64]*storage.Slot
	mine   map[reactedTo]*storage.Reaction
}

// take puts the labels on a slot.
func (a *asking) take(slot *storage.Slot, from *slot, viewer string) {
	labels, askHidden, askMine := from.forViewer(viewer)
	slot.Labels = labels
	if askHidden {
		if a.hidden == nil {
			a.hidden = make(map[uint64]*storage.Slot)
		}
		a.hidden[slot.Message.Seq] = slot
	}
	for _, kind := range askMine {
		if a.mine == nil {
			a.mine = make(map[reactedTo]*storage.Reaction)
		}
		for i := range labels.Reactions {
			if labels.Reactions[i].Kind == kind {
				a.mine[reactedTo{slot.Message.Seq, kind}] = &labels.Reactions[i]
			}
		}
	}
}

// answer asks the bitmaps, if there is anything to ask.
func (a *asking) answer(ctx context.Context, s *Store, conversation, viewer string) error {
	if len(a.hidden) > 0 {
		seqs := make([]uint64, 0, len(a.hidden))
		for seq := range a.hidden {
			seqs = append(seqs, seq)
		}
		hidden, err := s.hiddenSeqs(ctx, conversation, viewer, seqs)
		if err != nil {
			return err
		}
		for seq, slot := range a.hidden {
			slot.Labels.Hidden = hidden[seq]
		}
	}
	if len(a.mine) == 0 {
		return nil
	}
	to := make([]reactedTo, 0, len(a.mine))
	for r := range a.mine {
		to = append(to, r)
	}
	mine, err := s.reactedSeqs(ctx, conversation, viewer, to)
	for r, reaction := range a.mine {
		reaction.Mine = mine[r]
	}
	return err
}

// query reads the slots of a bucket that are wanted, in their order, and nothing else of it. Bodies that are there already are left out.
func (s *Store) query(ctx context.Context, w *wanted) (*bucket, error) {
	project := bson.D{{Key: "tail", Value: 1}, {Key: "sealed", Value: 1}}
	if len(w.need) == len(w.of) && consecutive(w.slots) {
		slice := bson.D{{Key: "$slice", Value: bson.A{"$slots", w.slots[0], len(w.slots)}}}
		project = append(project, bson.E{Key: "slots", Value: slice})
	} else {
		project = append(project, bson.E{Key: "slots", Value: elements(w.slots, slotWithoutBody())})
		if len(w.need) > 0 {
			project = append(project, bson.E{Key: "bodies", Value: elements(w.needed(), "$$s.msg")})
		}
	}
	cursor, err := s.buckets.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "_id", Value: w.id}}}}, {{Key: "$project", Value: project}},
	})
	if err != nil {
		return nil, err
	}
	var found []struct {
		Bucket bucket   `bson:",inline"`
		Bodies [][]byte `bson:"bodies"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, mongo.ErrNoDocuments
	}
	b := &found[0].Bucket
	for i, body := range found[0].Bodies {
		if k := w.need[i]; k < len(b.Slots) {
			b.Slots[k].Msg = body
		}
	}
	return b, nil
}

// needed are the slots of the bodies that are wanted.
func (w *wanted) needed() []int {
	slots := make([]int, len(w.need))
	for i, k := range w.need {
		slots[i] = w.slots[k]
	}
	return slots
}

func consecutive(slots []int) bool {
	for i := range slots {
		if slots[i] != slots[0]+i {
			return false
		}
	}
	return true
}

// elements is the expression for some elements of slots, of each what the expression in makes of $$s.
func elements(slots []int, in any) bson.D {
	s := bson.D{{Key: "$arrayElemAt", Value: bson.A{"$slots", "$$i"}}}
	of := bson.D{{Key: "$let", Value: bson.D{{Key: "vars", Value: bson.D{{Key: "s", Value: s}}}, {Key: "in", Value: in}}}}
	return bson.D{{Key: "$map", Value: bson.D{{Key: "input", Value: slots}, {Key: "as", Value: "i"}, {Key: "in", Value: of}}}}
}

func slotWithoutBody() bson.D {
	var d bson.D
	for _, field := range append([]string{"id", "time", "counts"}, labelFields()...) {
		d = append(d, bson.E{Key: field, Value: "$$s." + field})
	}
	return d
}
