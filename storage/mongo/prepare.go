package mongo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// index is one that a collection must have.
type index struct {
	name string
	keys bson.D
	only bson.D // partialFilterExpression; nil: all documents
}

// The indices, beside those of the _ids, which are all that positions need:
//
//	buckets   place   the buckets of a conversation in their order: the newest when no flag says, the oldest, all conversations
//	buckets   newest  the newest buckets of many conversations in one query: one entry for a conversation
//	changes   place, newest  the same, of the change buckets
//	rows      user    a user's list
//	rows      conv    the members of a conversation, for operators
func indices() map[string][]index {
	flagged := bson.D{{Key: "newest", Value: true}}
	place := index{name: "place", keys: bson.D{{Key: "conv", Value: 1}, {Key: "move", Value: 1}, {Key: "n", Value: -1}}}
	newest := index{name: "newest", keys: bson.D{{Key: "conv", Value: 1}, {Key: "newest", Value: 1}}, only: flagged}
	return map[string][]index{
		"buckets": {place, newest},
		"changes": {{name: "place", keys: bson.D{{Key: "conv", Value: 1}, {Key: "n", Value: -1}}}, newest},
		"rows": {
			{name: "user", keys: bson.D{{Key: "user", Value: 1}, {Key: "stamp", Value: 1}}},
			{name: "conv", keys: bson.D{{Key: "conv", Value: 1}}},
		},
	}
}

// prepare makes what is missing in the database, and checks what is there.
func (s *Store) prepare(ctx context.Context, database string) error {
	if err := s.Ready(ctx); err != nil {
		return fmt.Errorf("mongo: the primary does not answer: %w", err)
	}
	db := s.client.Database(database)
	s.use(db)
	if err := s.loadMeta(ctx); err != nil {
		return err
	}
	for name, list := range indices() {
		if err := ensureIndices(ctx, db.Collection(name), list); err != nil {
			return err
		}
	}
	return nil
}

// use names the collections.
func (s *Store) use(db *mongo.Database) {
	s.buckets, s.changes, s.rows = db.Collection("buckets"), db.Collection("changes"), db.Collection("rows")
	s.hidden, s.reactors, s.devices = db.Collection("hidden"), db.Collection("reactors"), db.Collection("devices")
	s.layouts, s.meta = db.Collection("layouts"), db.Collection("meta")
}

const (
	metaID = "parley"
	format = 1 // of the documents in this package
)

var errNoMeta = errors.New("mongo: the document in meta is gone: the database was dropped, or is being restored")

// loadMeta makes the document that names the store, once, and reads it.
func (s *Store) loadMeta(ctx context.Context) error {
	if err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: copyID}}).Err(); !noDocument(err) {
		if err == nil {
			err = ErrCopying
		}
		return fmt.Errorf("mongo: meta: %w", err)
	}
	one := bson.D{{Key: "_id", Value: metaID}}
	fresh := bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "epoch", Value: rand.Text()}, {Key: "format", Value: format}}}}
	var meta struct {
		Epoch  string `bson:"epoch"`
		Format int    `bson:"format"`
	}
	err := s.again(ctx, func() (bool, error) {
		var err error
		if !s.o.Existing {
			_, err = s.meta.UpdateOne(ctx, one, fresh, options.UpdateOne().SetUpsert(true))
		}
		if err == nil || mongo.IsDuplicateKeyError(err) {
			err = s.meta.FindOne(ctx, one).Decode(&meta)
		}
		return true, err
	})
	switch {
	case noDocument(err):
		return fmt.Errorf("mongo: there is no store of Parley in the database %s", s.meta.Database().Name())
	case err != nil:
		return fmt.Errorf("mongo: meta: %w", err)
	case meta.Format != format || meta.Epoch == "":
		return fmt.Errorf("mongo: the database is in format %d, this parley reads %d: use the version that wrote it, or another database", meta.Format, format)
	}
	s.epoch = meta.Epoch
	return nil
}

// ensureIndices makes the missing ones, and refuses those that are not what they should be.
func ensureIndices(ctx context.Context, in *mongo.Collection, want []index) error {
	there, err := in.Indexes().ListSpecifications(ctx)
	if err != nil && !hasCode(err, codeNamespaceNotFound) {
		return fmt.Errorf("mongo: indices of %s: %w", in.Name(), err)
	}
	byName := make(map[string]mongo.IndexSpecification)
	for _, spec := range there {
		byName[spec.Name] = spec
	}
	for _, w := range want {
		if spec, ok := byName[w.name]; ok {
			if err := w.check(in.Name(), spec); err != nil {
				return err
			}
			continue
		}
		o := options.Index().SetName(w.name)
		if w.only != nil {
			o.SetPartialFilterExpression(w.only)
		}
		if _, err := in.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: w.keys, Options: o}); err != nil {
			return fmt.Errorf("mongo: make index %s of %s: %w", w.name, in.Name(), err)
		}
	}
	return nil
}

// check compares an index that is there, by its keys and their order.
func (w index) check(collection string, there mongo.IndexSpecification) error {
	wrong := func(what string) error {
		return fmt.Errorf("mongo: index %s of %s %s: drop it with db.%s.dropIndex(%q) and start again", w.name, collection, what, collection, w.name)
	}
	if there.Unique != nil && *there.Unique {
		return wrong("is unique and must not be")
	}
	elements, err := there.KeysDocument.Elements()
	if err != nil || len(elements) != len(w.keys) {
		return wrong(fmt.Sprintf("is on %s instead of %v", there.KeysDocument, w.keys))
	}
	for i, e := range elements {
		direction, ok := e.Value().AsInt64OK()
		if e.Key() != w.keys[i].Key || !ok || direction != int64(w.keys[i].Value.(int)) {
			return wrong(fmt.Sprintf("is on %s instead of %v", there.KeysDocument, w.keys))
		}
	}
	return nil
}
