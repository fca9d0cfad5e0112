package mongo

import (
	"context"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// pick chooses the talk's next write. The first bucket of a conversation, and any update, find out by themselves when the conversation was moved; the
// insert of a later one does not, so where the conversation is must then be known.
func (t *talk) pick(ctx context.Context, s *Store) error {
	h := s.home(t.id)
	if n, slot := h.at(t.next).bucket(t.next); slot == 0 && n > 0 && !s.homes.known.Contains(t.id) {
		var err error
		if h, err = s.loadHome(ctx, t.id); err != nil {
			return err
		}
	}
	p := h.at(t.next)
	n, slot := p.bucket(t.next)
	t.spot = written{id: p.id(t.id, n), n: n, place: p, insert: slot == 0 && t.what != duplicate, to: min(p.last(n), t.end())}
	return nil
}

// end is the last seq of the runs that follow each other without a hole, from next.
func (t *talk) end() uint64 {
	end := t.runs[t.done].last()
	for i := t.done + 1; i < len(t.runs) && t.runs[i].First == end+1; i++ {
		end = t.runs[i].last()
	}
	return end
}

// each calls f for the messages of [from, to], and returns the run that the last of them is in, and its index there.
func (t *talk) each(from, to uint64, f func(seq uint64, q *queued, i int)) (q *queued, i int) {
	run := t.done
	for seq := from; seq <= to; seq++ {
		for seq > t.runs[run].last() {
			run++
		}
		q = &t.runs[run]
		i = int(seq - q.First)
		f(seq, q, i)
	}
	return q, i
}

// model is the write.
func (t *talk) model() mongo.WriteModel {
	if t.spot.insert {
		return t.insertModel()
	}
	return t.updateModel()
}

// insertModel makes the bucket, whole: the empty slots, too. Its filter matches no bucket, so one that is there is a duplicate key. An upsert and
// not an insert, because only an update can have the store put in its clock.
func (t *talk) insertModel() mongo.WriteModel {
	slots := make([][]byte, t.spot.place.layout)
	q, i := t.each(t.next, t.spot.to, func(seq uint64, q *queued, i int) {
		_, slot := t.spot.place.bucket(seq)
		slots[slot] = q.slot(i)
	})
	at, array := bsoncore.AppendArrayStart(nil)
	for n, slot := range slots {
		if slot == nil {
			slot = emptySlot
		}
		array = bsoncore.AppendDocumentElement(array, strconv.Itoa(n), slot)
	}
	array, _ = bsoncore.AppendArrayEnd(array, at)
	fields := bson.D{
		{Key: "conv", Value: t.id}, {Key: "n", Value: int64(t.spot.n)}, {Key: "layout", Value: t.spot.place.layout}, {Key: "move", Value: t.spot.place.move},
		{Key: "tail", Value: int64(t.spot.to)}, {Key: "counts", Value: q.counts[i]}, {Key: "active_ms", Value: q.ActiveMS},
		{Key: "rev", Value: int64(1)}, {Key: "newest", Value: true}, {Key: "slots", Value: bson.RawValue{Type: bson.TypeArray, Value: array}},
	}
	return newBucketModel(t.spot.id, fields)
}

// newBucketModel makes a bucket that is not there. One that is there is a duplicate key.
func newBucketModel(id string, fields bson.D) mongo.WriteModel {
	none := bson.D{{Key: "_id", Value: id}, {Key: "tail", Value: bson.D{{Key: "$lt", Value: 0}}}}
	return mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(none).SetUpdate(bson.D{{Key: "$setOnInsert", Value: fields}, stamping()})
}

var emptySlot = []byte{5, 0, 0, 0, 0} // {}

// updateModel fills slots of a bucket that is there, if its tail is the one that the writer saw.
func (t *talk) updateModel() mongo.WriteModel {
	set := make(bson.D, 0, 8)
	q, i := t.each(t.next, t.spot.to, func(seq uint64, q *queued, i int) {
		_, slot := t.spot.place.bucket(seq)
		set = append(set, bson.E{Key: "slots." + strconv.Itoa(slot), Value: bson.Raw(q.slot(i))})
	})
	set = append(set, bson.E{Key: "tail", Value: int64(t.spot.to)}, bson.E{Key: "counts", Value: q.counts[i]}, bson.E{Key: "active_ms", Value: q.ActiveMS})
	seen := bson.D{{Key: "_id", Value: t.spot.id}, {Key: "tail", Value: int64(t.next - 1)}, notSealed()}
	return mongo.NewUpdateOneModel().SetFilter(seen).SetUpdate(bson.D{{Key: "$set", Value: set}, stamping(), raised()})
}

// slot is a message's slot, as BSON. The id's text was made of its 16 bytes.
func (q *queued) slot(i int) []byte {
	m := q.Messages[i]
	id, ok := protocol.ParseMessageID(m.ServerMsgID)
	if !ok {
		id = protocol.NewMessageID(m.ConversationID, m.Sender, m.ClientMsgID)
	}
	start, b := bsoncore.AppendDocumentStart(make([]byte, 0, len(q.wire[i])+128))
	b = bsoncore.AppendBinaryElement(b, "id", bson.TypeBinaryGeneric, id[:])
	b = bsoncore.AppendInt64Element(b, "time", q.LogTimeMS)
	at, b := bsoncore.AppendArrayElementStart(b, "counts")
	b = bsoncore.AppendInt64Element(b, "0", int64(q.counts[i][0]))
	b = bsoncore.AppendInt64Element(b, "1", int64(q.counts[i][1]))
	b, _ = bsoncore.AppendArrayEnd(b, at)
	b = bsoncore.AppendBinaryElement(b, "msg", bson.TypeBinaryGeneric, appendStored(make([]byte, 0, len(q.wire[i])+1), q.wire[i]))
	b, _ = bsoncore.AppendDocumentEnd(b, start)
	return b
}

// matches tells whether the message has that id.
func (q *queued) matches(i int, r storage.RecentID) bool {
	return r.ID.String() == q.Messages[i].ServerMsgID
}
