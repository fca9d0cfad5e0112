package mongo

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Changed implements storage.Directory. The list is joined here, in this order: the store's clock, the user's rows, the rows of the other
// sides, the newest buckets, the newest change buckets; so no mark is ahead of its conversation, and what is written meanwhile has a stamp above
// upTo. That is five queries, and four more for every idsPerQuery conversations above the first.
func (s *Store) Changed(ctx context.Context, user string, since storage.Stamp) (entries []storage.Entry, upTo storage.Stamp, err error) {
	if upTo, err = s.upTo(ctx); err != nil {
		return nil, 0, s.fault(err)
	}
	var rows []row
	if err := all(ctx, s.rows, bson.D{{Key: "user", Value: user}}, nil, &rows); err != nil {
		return nil, 0, s.fault(err)
	}
	if entries, err = s.join(ctx, user, rows); err != nil {
		return nil, 0, s.fault(err)
	}
	return slices.DeleteFunc(entries, func(e storage.Entry) bool { return e.Changed <= since }), upTo, nil
}

// Entries implements storage.Directory.
func (s *Store) Entries(ctx context.Context, user string, conversations []string) ([]storage.Entry, error) {
	ids := make([]string, len(conversations))
	for i, conversation := range conversations {
		ids[i] = rowID(user, conversation)
	}
	byID, err := s.rowsByID(ctx, ids)
	if err != nil {
		return nil, s.fault(err)
	}
	var rows []row
	for _, id := range ids {
		if r, ok := byID[id]; ok {
			rows = append(rows, r)
		}
	}
	entries, err := s.join(ctx, user, rows)
	return entries, s.fault(err)
}

// join makes entries of the user's rows, in their order. A row whose conversation has no message yet makes none.
func (s *Store) join(ctx context.Context, user string, rows []row) ([]storage.Entry, error) {
	conversations, peers := make([]string, len(rows)), make([]string, len(rows))
	var peerIDs []string
	for i := range rows {
		conversations[i] = rows[i].Conv
		if kind, a, b := protocol.ParseConversation(rows[i].Conv); kind == protocol.KindDirect {
			if a == user {
				a = b
			}
			peers[i] = rowID(a, rows[i].Conv)
			peerIDs = append(peerIDs, peers[i])
		}
	}
	peerRows, err := s.rowsByID(ctx, peerIDs)
	if err != nil {
		return nil, err
	}
	states, err := s.states(ctx, conversations)
	if err != nil {
		return nil, err
	}
	changes, err := s.changeHeads(ctx, conversations)
	if err != nil {
		return nil, err
	}
	var entries []storage.Entry
	for i := range rows {
		if states[conversations[i]].Tail > 0 {
			entries = append(entries, entry(&rows[i], peerRows[peers[i]], states[conversations[i]], changes[conversations[i]]))
		}
	}
	return entries, nil
}

// entry joins one.
func entry(r *row, peer row, state storage.State, changes changeHead) storage.Entry {
	e := storage.Entry{View: r.view(), State: state, PeerReadSeq: peer.ReadSeq, ChangeSeq: changes.Tail}
	e.Changed = max(e.Stamp, state.Stamp, stampOf(peer.Stamp), stampOf(changes.Stamp))
	return e
}

// rowsByID reads rows, as many as there are.
func (s *Store) rowsByID(ctx context.Context, ids []string) (map[string]row, error) {
	found := make(map[string]row, len(ids))
	for part := range slices.Chunk(ids, idsPerQuery) {
		var rows []row
		if err := all(ctx, s.rows, withIDs(part), nil, &rows); err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[r.ID] = r
		}
	}
	return found, nil
}

// over gives what a cursor has to look, one document after the other, until that fails, and closes it.
func over(ctx context.Context, cursor *mongo.Cursor, look func() error) (err error) {
	for err == nil && cursor.Next(ctx) {
		err = look()
	}
	return cmp.Or(err, cursor.Err(), cursor.Close(ctx))
}

// all reads everything that a query finds into the slice that into points to.
func all(ctx context.Context, in *mongo.Collection, filter, projection bson.D, into any) error {
	o := options.Find()
	if projection != nil {
		o.SetProjection(projection)
	}
	cursor, err := in.Find(ctx, filter, o)
	if err != nil {
		return err
	}
	return cursor.All(ctx, into)
}
