package mongo

import (
	"context"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// ApplyOwn implements storage.Directory. What clears a history is one update of a row. What hides messages is, when their slots have room, one
// update of each bucket that they lie in:
//
//	{_id, tail ≥, no slots.5.del_list.63, no slots.5.gone}  $addToSet slots.5.del_list  $inc rev
//
// A bucket that this did not match is read, and what did not fit goes into the users' bitmaps; slots.5.del_more is set after that, so that whoever
// sees the flag finds the bit. Each step can be done again, and changes nothing then. After an error a part of a change may be
// stored; doing it again makes it whole.
func (s *Store) ApplyOwn(ctx context.Context, changes []*storage.Own) error {
	var models []mongo.WriteModel
	var ids []string
	h := hiding{s: s, wanted: make(map[string]map[uint64][]string)}
	for _, c := range changes {
		if slices.Contains(c.Hide, 0) {
			return storage.ErrInvalidSeq
		}
		if c.MinSeq > 0 && c.MinSeq <= protocol.MaxInt {
			id := rowID(c.User, c.Conversation)
			lower := bson.D{{Key: "_id", Value: id}, {Key: "min_seq", Value: bson.D{{Key: "$lt", Value: c.MinSeq}}}}
			raise := bson.D{{Key: "$set", Value: bson.D{{Key: "min_seq", Value: c.MinSeq}}}, stamping()}
			models, ids = append(models, mongo.NewUpdateOneModel().SetFilter(lower).SetUpdate(raise)), append(ids, id)
		}
	}
	err := h.want(ctx, changes)
	if err == nil {
		err = s.again(ctx, func() (bool, error) { return h.step(ctx) })
	}
	if err == nil && len(models) > 0 {
		err = s.raiseMinSeqs(ctx, models, ids)
	}
	return s.fault(err)
}

// raiseMinSeqs writes rows.
func (s *Store) raiseMinSeqs(ctx context.Context, models []mongo.WriteModel, ids []string) error {
	began := time.Now()
	err := s.again(ctx, func() (bool, error) {
		_, err := writeAll(ctx, s.rows, models) // what does not match is as high, or not there
		return true, err
	})
	if err != nil {
		return err
	}
	return s.restamp(ctx, s.rows, began, ids...)
}

// hiding is who is to see which messages no more.
type hiding struct {
	s       *Store
	wanted  map[string]map[uint64][]string // users by conversation and seq
	careful bool                           // the buckets are to be read first
}

// want takes in what the changes hide from users who have a row.
func (h *hiding) want(ctx context.Context, changes []*storage.Own) error {
	var ids []string
	for _, c := range changes {
		if len(c.Hide) > 0 {
			ids = append(ids, rowID(c.User, c.Conversation))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var rows map[string]row
	err := h.s.again(ctx, func() (done bool, err error) {
		rows, err = h.s.rowsByID(ctx, ids)
		return true, err
	})
	if err != nil {
		return err
	}
	for _, c := range changes {
		if _, ok := rows[rowID(c.User, c.Conversation)]; !ok {
			continue
		}
		users := h.wanted[c.Conversation]
		if users == nil {
			users = make(map[uint64][]string)
			h.wanted[c.Conversation] = users
		}
		for _, seq := range c.Hide {
			if seq <= protocol.MaxInt {
				users[seq] = append(users[seq], c.User)
			}
		}
	}
	return nil
}

// hidingIn is the part of it that lies in one bucket: users by slot.
type hidingIn struct {
	conversation string
	bucket       string
	slots        map[int][]string
	seqs         map[int]uint64
}

// step does all that is left to do. It is not done when a bucket was changed, or moved, under its hands.
func (h *hiding) step(ctx context.Context) (done bool, err error) {
	buckets := h.buckets()
	if len(buckets) == 0 {
		return true, nil
	}
	if !h.careful {
		h.careful = true
		if slices.ContainsFunc(buckets, func(b *hidingIn) bool { return !b.fits() }) {
			return false, nil
		}
		models := make([]mongo.WriteModel, len(buckets))
		for i, b := range buckets {
			models[i] = b.update(b.slots, nil)
		}
		return writeAll(ctx, h.s.buckets, models)
	}
	return h.carefully(ctx, buckets)
}

// buckets groups what is wanted by where it lies.
func (h *hiding) buckets() []*hidingIn {
	var list []*hidingIn
	for conversation, users := range h.wanted {
		byID := make(map[string]*hidingIn)
		for seq, who := range users {
			slices.Sort(who)
			who = slices.Compact(who)
			users[seq] = who
			id, slot := h.s.place(conversation, seq)
			b := byID[id]
			if b == nil {
				b = &hidingIn{conversation, id, make(map[int][]string), make(map[int]uint64)}
				byID[id] = b
				list = append(list, b)
			}
			b.slots[slot], b.seqs[slot] = who, seq
		}
	}
	return list
}

// fits tells whether the slots of the bucket, were they empty, had room.
func (b *hidingIn) fits() bool {
	for _, users := range b.slots {
		if len(users) > storage.MaxDeleters {
			return false
		}
	}
	return true
}

// update adds users to slots' lists, which must have room for them, and flags slots.
func (b *hidingIn) update(add map[int][]string, flag []int) mongo.WriteModel {
	filter := bson.D{{Key: "_id", Value: b.bucket}, notSealed()}
	var lists, flags bson.D
	var tail uint64
	for slot, users := range add {
		at := "slots." + strconv.Itoa(slot)
		filter = append(filter, absent(at+".del_list."+strconv.Itoa(storage.MaxDeleters-len(users))), absent(at+".gone"))
		lists = append(lists, bson.E{Key: at + ".del_list", Value: bson.D{{Key: "$each", Value: users}}})
		tail = max(tail, b.seqs[slot])
	}
	for _, slot := range flag {
		at := "slots." + strconv.Itoa(slot)
		if _, listed := add[slot]; !listed {
			filter = append(filter, absent(at+".gone"))
		}
		flags = append(flags, bson.E{Key: at + ".del_more", Value: true})
		tail = max(tail, b.seqs[slot])
	}
	filter = append(filter, bson.E{Key: "tail", Value: bson.D{{Key: "$gte", Value: tail}}})
	update := bson.D{raised()}
	if len(lists) > 0 {
		update = append(update, bson.E{Key: "$addToSet", Value: lists})
	}
	if len(flags) > 0 {
		update = append(update, bson.E{Key: "$set", Value: flags})
	}
	return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(update)
}

// carefully reads the slots, and divides the users between lists and bitmaps.
func (h *hiding) carefully(ctx context.Context, buckets []*hidingIn) (done bool, err error) {
	var models []mongo.WriteModel
	edits := make(map[string]bitEdit)
	done = true
	for _, b := range buckets {
		model, ok, err := h.divide(ctx, b, edits)
		if err != nil {
			return false, err
		}
		if model != nil {
			models = append(models, model)
		}
		done = done && ok
	}
	if err := h.s.changeBits(ctx, h.s.hidden, edits); err != nil {
		return false, err
	}
	if len(models) == 0 {
		return done, nil
	}
	all, err := writeAll(ctx, h.s.buckets, models)
	return all && done, err
}

// deleters is what a slot says of who deleted it.
type deleters struct {
	List []string `bson:"del_list"`
	More bool     `bson:"del_more"`
	Gone bool     `bson:"gone"`
}

// divide is the update of a bucket that is left to do, nil for none; what goes into bitmaps it adds to edits. It is not ok when the bucket was moved
// to another layout.
func (h *hiding) divide(ctx context.Context, b *hidingIn, edits map[string]bitEdit) (model mongo.WriteModel, ok bool, err error) {
	asked := make([]int, 0, len(b.slots))
	for slot := range b.slots {
		asked = append(asked, slot)
	}
	var found []deleters
	head, err := h.s.pick(ctx, b.bucket, asked, fieldsOf("del_list", "del_more", "gone"), &found)
	if noDocument(err) || err == nil && head.Sealed {
		moved, err := h.s.moved(ctx, b.conversation, b.seqs[asked[0]], b.bucket)
		return nil, !moved && !head.Sealed, err
	}
	if err != nil {
		return nil, false, err
	}
	add, flag := make(map[int][]string), []int(nil)
	for i, slot := range asked {
		if seq, was := b.seqs[slot], found[i]; seq <= head.Tail && !was.Gone {
			listed, rest := was.divide(b.slots[slot])
			if len(listed) > 0 {
				add[slot] = listed
			}
			for _, user := range rest {
				id := hiddenFrom(user, b.conversation).id(seq)
				edits[id] = bitEdit{add: append(edits[id].add, uint32(seq&chunkMask))}
			}
			if len(rest) > 0 && !was.More {
				flag = append(flag, slot)
			}
		}
	}
	if len(add)+len(flag) > 0 {
		model = b.update(add, flag)
	}
	return model, true, nil
}

// divide splits users into those whom the list has room for, and the rest; those whom it names already are in neither.
func (d *deleters) divide(users []string) (listed, rest []string) {
	for _, user := range users {
		switch {
		case slices.Contains(d.List, user):
		case len(d.List)+len(listed) < storage.MaxDeleters:
			listed = append(listed, user)
		default:
			rest = append(rest, user)
		}
	}
	return listed, rest
}
