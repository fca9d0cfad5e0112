package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Apply implements storage.Changes. A change takes three steps, and each can be done again:
//
//  1. who reacted, if the slot has no room for it, into the user's bitmap, which keeps the number of its latest change;
//  2. the label, by position, where none of this number or a higher one is yet:
//     {_id, tail ≥, not sealed, no slots.5.gone, slots.5.change_seq not ≥ 7}  $set slots.5.revoke … slots.5.change_seq: 7  $inc rev
//  3. the note, by compare-and-set on the tail of the change bucket, which is the conversation's ChangeSeq.
//
// What this process does to one conversation's changes is done one after the other, so a change that is refused has left nothing behind. Of several
// processes one has the conversation. One that had it, and does not know better, decides from the same log: its change of a number is the same, and
// one that is older than the label changes nothing. After a crash between 2 and 3 the same change is applied again, and finds its label there.
func (s *Store) Apply(ctx context.Context, changes []*storage.Change) error {
	defer s.changing.lock(changes)()
	a := &applying{s: s, open: slices.Clone(changes)}
	seen := make(map[string]bool, len(changes))
	for _, c := range changes {
		if seen[c.Conversation] {
			return fmt.Errorf("mongo: two changes of %s at once", c.Conversation)
		}
		seen[c.Conversation], c.Err = true, nil
	}
	a.refuse(func(c *storage.Change) error {
		if c.Seq == 0 || c.Seq > protocol.MaxInt {
			return storage.ErrNotFound
		}
		return nil
	})
	began := time.Now()
	err := s.again(ctx, func() (bool, error) { return a.step(ctx) })
	if err == nil && len(a.noted) > 0 {
		err = s.restamp(ctx, s.changes, began, a.noted...)
	}
	return s.fault(err)
}

// applying is a batch of changes on its way.
type applying struct {
	s     *Store
	open  []*storage.Change // neither refused nor found to be stored
	again bool              // a step was done before, of which not everything is known
	noted []string          // the change buckets that have the notes
}

// step does all that is left to do. It is not done when something was not as it had been read.
func (a *applying) step(ctx context.Context) (done bool, err error) {
	if len(a.open) == 0 {
		return true, nil
	}
	heads, err := a.start(ctx)
	if err != nil {
		return false, err
	}
	at, unmoved, err := a.find(ctx)
	if err != nil || !unmoved {
		return false, err
	}
	a.again = true
	a.refuse(func(c *storage.Change) error {
		if heads[c.Conversation].Tail+1 != c.ChangeSeq {
			return storage.ErrStale
		}
		return nil
	})
	if len(a.open) == 0 {
		return true, nil
	}
	if err := a.react(ctx); err != nil {
		return false, err
	}
	a.dropRevoked(ctx)
	if models := a.labels(at); len(models) > 0 {
		if all, err := writeAll(ctx, a.s.buckets, models); err != nil || !all {
			return false, err
		}
	}
	return a.note(ctx, heads)
}

// refuse takes the changes that refused gives an error out of open, with it; those that it gives errStored, without.
func (a *applying) refuse(refused func(*storage.Change) error) {
	a.open = slices.DeleteFunc(a.open, func(c *storage.Change) bool {
		err := refused(c)
		if !errors.Is(err, errStored) {
			c.Err = err
		}
		return err != nil
	})
}

// start reads the conversations' ChangeSeqs. A change that is noted with its number, when a step was done before, was stored by that: its reply
// was lost.
func (a *applying) start(ctx context.Context) (map[string]changeHead, error) {
	conversations := make([]string, len(a.open))
	for i, c := range a.open {
		conversations[i] = c.Conversation
	}
	heads, err := a.s.changeHeads(ctx, conversations)
	if err != nil {
		return nil, err
	}
	var failed error
	a.refuse(func(c *storage.Change) error {
		if !a.again || heads[c.Conversation].Tail < c.ChangeSeq {
			return nil
		}
		stored, err := a.s.isNoted(ctx, c)
		if failed = cmp.Or(failed, err); stored {
			return errStored
		}
		return nil
	})
	return heads, failed
}

// labelAt is where a change's label goes.
type labelAt struct {
	bucket string
	slot   int
	there  bool // it is there
}

// marks is a bucket without its messages.
type marks struct {
	ID     string `bson:"_id"`
	Tail   uint64 `bson:"tail"`
	Sealed bool   `bson:"sealed"`
	Slots  []mark `bson:"slots"`
}

// mark is what a slot says of changes.
type mark struct {
	Gone      bool   `bson:"gone"`
	ChangeSeq uint64 `bson:"change_seq"`
}

// find reads what is on the changes' messages. unmoved is false when one of them is being moved to another layout.
func (a *applying) find(ctx context.Context) (at map[*storage.Change]labelAt, unmoved bool, err error) {
	at = make(map[*storage.Change]labelAt, len(a.open))
	ids := make([]string, len(a.open))
	for i, c := range a.open {
		bucket, slot := a.s.place(c.Conversation, c.Seq)
		at[c], ids[i] = labelAt{bucket: bucket, slot: slot}, bucket
	}
	found := make(map[string]marks, len(ids))
	for part := range slices.Chunk(ids, idsPerQuery) {
		var list []marks
		project := bson.D{{Key: "tail", Value: 1}, {Key: "sealed", Value: 1}, {Key: "slots.gone", Value: 1}, {Key: "slots.change_seq", Value: 1}}
		if err := all(ctx, a.s.buckets, withIDs(part), project, &list); err != nil {
			return nil, false, err
		}
		for _, m := range list {
			found[m.ID] = m
		}
	}
	unmoved = true
	var failed error
	a.refuse(func(c *storage.Change) error {
		l := at[c]
		m, ok := found[l.bucket]
		if !ok || m.Sealed {
			moved, err := a.s.moved(ctx, c.Conversation, c.Seq, l.bucket)
			if err != nil || moved || m.Sealed {
				failed, unmoved = cmp.Or(failed, err), false
				return nil
			}
		}
		if !ok || m.Tail < c.Seq || l.slot >= len(m.Slots) {
			return storage.ErrNotFound
		}
		switch slot := m.Slots[l.slot]; {
		case slot.Gone:
			return storage.ErrGone
		case slot.ChangeSeq > c.ChangeSeq:
			return storage.ErrStale
		default:
			l.there = slot.ChangeSeq == c.ChangeSeq
		}
		at[c] = l
		return nil
	})
	return at, unmoved, failed
}

// react notes who reacted, beside the slots.
func (a *applying) react(ctx context.Context) error {
	edits := make(map[string]bitEdit)
	for _, c := range a.open {
		if c.Reactor == nil {
			continue
		}
		bit := []uint32{uint32(c.Seq & chunkMask)}
		e := bitEdit{at: c.ChangeSeq, add: bit}
		if !c.Reactor.On {
			e = bitEdit{at: c.ChangeSeq, remove: bit}
		}
		edits[reactedBy(c.Reactor.User, c.Conversation, c.Reactor.Reaction).id(c.Seq)] = e
	}
	return a.s.changeBits(ctx, a.s.reactors, edits)
}

// dropRevoked has the cache forget what is revoked, and refuse it from readers who have just read it. It comes before the label, so
// that no crash leaves a body there.
func (a *applying) dropRevoked(ctx context.Context) {
	var keys []storage.BodyKey
	for _, c := range a.open {
		if c.Labels.Revoke != nil {
			keys = append(keys, storage.BodyKey{Conversation: c.Conversation, Seq: c.Seq})
		}
	}
	a.s.dropBodies(ctx, keys)
}

// labels are the updates for those that are not there.
func (a *applying) labels(at map[*storage.Change]labelAt) []mongo.WriteModel {
	var models []mongo.WriteModel
	for _, c := range a.open {
		l := at[c]
		if l.there {
			continue
		}
		slot := "slots." + strconv.Itoa(l.slot)
		filter := bson.D{
			{Key: "_id", Value: l.bucket}, {Key: "tail", Value: bson.D{{Key: "$gte", Value: c.Seq}}}, notSealed(), absent(slot + ".gone"),
			{Key: slot + ".change_seq", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: c.ChangeSeq}}}}},
		}
		set, unset := setLabels(slot, &c.Labels)
		set = append(set, bson.E{Key: slot + ".change_seq", Value: c.ChangeSeq})
		update := bson.D{{Key: "$set", Value: set}, raised()}
		if len(unset) > 0 {
			update = append(update, bson.E{Key: "$unset", Value: unset})
		}
		models = append(models, mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(update))
	}
	return models
}

// note stores the notes.
func (a *applying) note(ctx context.Context, heads map[string]changeHead) (done bool, err error) {
	var models []mongo.WriteModel
	a.noted = a.noted[:0]
	for _, c := range a.open {
		models = append(models, noteModel(c))
		a.noted = append(a.noted, changeBucket(c.Conversation, c.ChangeSeq))
		if old := heads[c.Conversation].old; old != "" {
			models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: old}}).SetUpdate(
				bson.D{{Key: "$unset", Value: bson.D{{Key: "newest", Value: ""}}}, raised()}))
		}
	}
	return writeAll(ctx, a.s.changes, models)
}
