package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// verifier goes over the collections one after the other, each in the order of an index, and holds every document against itself, its neighbour, and
// what it points to. It keeps one batch of documents at a time.
//
// The store may be in use meanwhile. So what a document points to is read after it, and what a crash, or a write that is under way, may leave is
// no fault: rows that were made for a first message which never came, a bit in a bitmap without its slot's flag, the next change's label without its
// note, a second bucket that is still flagged as the newest, a move to another layout that has not ended.
type verifier struct {
	s        *Store
	report   func(storage.Fault)
	progress func(storage.Verified)
	done     storage.Verified
}

// Verify implements storage.Operator.
func (s *Store) Verify(ctx context.Context, fault func(storage.Fault), progress func(storage.Verified)) (storage.Verified, error) {
	if progress == nil {
		progress = func(storage.Verified) {}
	}
	v := &verifier{s: s, report: fault, progress: progress}
	for _, part := range []func(context.Context) error{v.buckets, v.changes, v.layouts, v.rows, v.hidden, v.reactors} {
		if err := part(ctx); err != nil {
			return v.done, s.fault(err)
		}
		progress(v.done)
	}
	return v.done, nil
}

// fault reports one; seq 0 is the conversation as a whole.
func (v *verifier) fault(conversation string, seq uint64, format string, args ...any) {
	v.done.Faults++
	v.report(storage.Fault{Conversation: conversation, Seq: seq, What: fmt.Sprintf(format, args...)})
}

// each decodes the documents of a collection in an order into new values of T, and gives them to look in slices of at most n. A document that cannot be
// decoded is a fault.
func each[T any](ctx context.Context, v *verifier, in *mongo.Collection, order bson.D, n int, look func(context.Context, []T) error) error {
	cursor, err := in.Find(ctx, bson.D{}, options.Find().SetSort(order))
	if err != nil {
		return err
	}
	batch := make([]T, 0, n)
	err = over(ctx, cursor, func() error {
		var doc T
		if err := cursor.Decode(&doc); err != nil {
			conversation, _ := cursor.Current.Lookup("conv").StringValueOK()
			v.fault(conversation, 0, "document %s of %s cannot be read: %v", cursor.Current.Lookup("_id"), in.Name(), err)
			return nil
		}
		if batch = append(batch, doc); len(batch) < n {
			return nil
		}
		err := look(ctx, batch)
		batch = batch[:0]
		return err
	})
	if err != nil || len(batch) == 0 {
		return err
	}
	return look(ctx, batch)
}

// states reads where conversations stand, by the highest bucket whatever its flags say.
func (v *verifier) states(ctx context.Context, conversations []string) (map[string]storage.State, error) {
	heads, err := v.s.heads(ctx, conversations)
	if unreadable(ctx, err) {
		heads, err = nil, nil // one of them; they are looked for one by one
	}
	if err != nil {
		return nil, err
	}
	states := make(map[string]storage.State, len(conversations))
	for _, conversation := range conversations {
		head := heads[conversation]
		if _, known := states[conversation]; head == nil && !known {
			head, err = v.s.oneBucket(ctx, bson.D{{Key: "conv", Value: conversation}, notSealed()}, -1)
			if err != nil && !unreadable(ctx, err) { // that it cannot be read is a fault of its own
				return nil, err
			}
		}
		if head != nil {
			states[conversation] = head.state()
		}
	}
	return states, nil
}

// unreadable tells whether err is of a document, and not of the server or the way to it.
func unreadable(ctx context.Context, err error) bool {
	var server mongo.ServerError
	return err != nil && ctx.Err() == nil && !transient(err) && !errors.As(err, &server) && !errors.Is(err, errBusy)
}

// verifyBatch is how many small documents are looked at together, with one query for each thing that they point to.
const verifyBatch = 500

// rows looks at the users' rows.
func (v *verifier) rows(ctx context.Context) error {
	return each(ctx, v, v.s.rows, bson.D{{Key: "_id", Value: 1}}, verifyBatch, func(ctx context.Context, rows []row) error {
		conversations := make([]string, len(rows))
		for i := range rows {
			conversations[i] = rows[i].Conv
		}
		states, err := v.states(ctx, conversations)
		if err != nil {
			return err
		}
		for i := range rows {
			v.row(&rows[i], states[rows[i].Conv])
		}
		v.done.Rows += uint64(len(rows))
		v.progress(v.done)
		return nil
	})
}

func (v *verifier) row(r *row, state storage.State) {
	if r.ID != rowID(r.User, r.Conv) || !isMember(r.User, r.Conv) {
		v.fault(r.Conv, 0, "the row %q is of the user %q", r.ID, r.User)
	}
	fresh := r.ReadSeq == 0 && r.MinSeq == 1
	switch {
	case state.Tail == 0 && !fresh:
		v.fault(r.Conv, 0, "there is a row of %q, and no message", r.User)
	case r.ReadSeq > state.Tail:
		v.fault(r.Conv, 0, "%q has read up to %d, above the tail %d", r.User, r.ReadSeq, state.Tail)
	case r.MinSeq == 0 || r.MinSeq > state.Tail+1:
		v.fault(r.Conv, 0, "%q may read from %d, the tail is %d", r.User, r.MinSeq, state.Tail)
	case r.ReadCount > max(state.Counts[0], state.Counts[1]):
		v.fault(r.Conv, 0, "%q has read %d messages that count, of %v", r.User, r.ReadCount, state.Counts)
	}
}

// isMember tells whether the user can have a row of the conversation.
func isMember(user, conversation string) bool {
	switch kind, a, b := protocol.ParseConversation(conversation); kind {
	case protocol.KindDirect:
		return user == a || user == b
	case protocol.KindUser:
		return user == a
	case protocol.KindGroup:
		return protocol.ValidID(user)
	default:
		return false
	}
}

// hidden and reactors look at the bitmaps.
func (v *verifier) hidden(ctx context.Context) error { return v.bitmaps(ctx, v.s.hidden, false) }

func (v *verifier) reactors(ctx context.Context) error { return v.bitmaps(ctx, v.s.reactors, true) }

func (v *verifier) bitmaps(ctx context.Context, in *mongo.Collection, kinds bool) error {
	return each(ctx, v, in, bson.D{{Key: "_id", Value: 1}}, verifyBatch, func(ctx context.Context, docs []bitmap) error {
		var conversations, rowIDs []string
		for i := range docs {
			if conversation, user, _, _, ok := parseBits(docs[i].ID); ok {
				conversations, rowIDs = append(conversations, conversation), append(rowIDs, rowID(user, conversation))
			}
		}
		rows, err := v.s.rowsByID(ctx, rowIDs)
		if err != nil {
			return err
		}
		states, err := v.states(ctx, conversations)
		if err != nil {
			return err
		}
		for i := range docs {
			v.bitmap(&docs[i], in.Name(), kinds, rows, states)
		}
		v.progress(v.done)
		return nil
	})
}

func (v *verifier) bitmap(doc *bitmap, in string, kinds bool, rows map[string]row, states map[string]storage.State) {
	conversation, user, kind, chunk, ok := parseBits(doc.ID)
	if !ok || (kind != "") != kinds {
		v.fault(conversation, 0, "the name %q in %s is not one", doc.ID, in)
		return
	}
	set, err := doc.set()
	if err != nil {
		v.fault(conversation, 0, "%v", err)
		return
	}
	if _, ok := rows[rowID(user, conversation)]; !ok && !kinds {
		v.fault(conversation, 0, "%q has messages in %s, and no row", user, in)
	}
	tail := states[conversation].Tail
	if set.IsEmpty() {
		return
	}
	if highest := chunk<<chunkBits | uint64(set.Maximum()); highest > tail {
		v.fault(conversation, highest, "is in %s for %q, and the tail is %d", in, user, tail)
	}
	if set.Maximum() > chunkMask || chunk == 0 && set.Contains(0) {
		v.fault(conversation, 0, "the bitmap %q has what is not a seq of its chunk", doc.ID)
	}
}

// layouts looks for conversations that are noted to be in another layout, and are not there at all.
func (v *verifier) layouts(ctx context.Context) error {
	return each(ctx, v, v.s.layouts, bson.D{{Key: "_id", Value: 1}}, verifyBatch, func(ctx context.Context, docs []layoutDocument) error {
		conversations := make([]string, len(docs))
		for i := range docs {
			conversations[i] = docs[i].ID
		}
		states, err := v.states(ctx, conversations)
		if err != nil {
			return err
		}
		for i := range docs {
			if states[docs[i].ID].Tail == 0 {
				v.fault(docs[i].ID, 0, "its layout is noted, and there is no message")
			}
		}
		return nil
	})
}
