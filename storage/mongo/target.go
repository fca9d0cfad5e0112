package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/storage"
)

// Target is a database that another store is copied into. It implements storage.Target. Stamps are taken over as they are: those of a folder
// are small numbers, far below any clock, so that devices go on from the tokens that they have, and what changes from now on is above all of
// them.
//
// Until the copy is finished meta has a document instead of the store's own, and Open refuses the database:
//
//	_id    "copy"
//	epoch  of the store that is copied
//	last   its last stamp: when it has another, it was used meanwhile, and the copy begins anew
//	after  the last conversation that is whole
type Target struct {
	*Store
	db      *mongo.Database
	replace bool // there may be parts of conversations from an earlier run
}

var _ storage.Target = (*Target)(nil)

const copyID = "copy"

type copyDocument struct {
	ID    string `bson:"_id"`
	Epoch string `bson:"epoch"`
	Last  uint64 `bson:"last"`
	After string `bson:"after"`
}

// ErrCopying is in the chain of the error of Open when a copy into the database was begun and not finished.
var ErrCopying = errors.New("a copy into the database is not finished: run parley migrate again, with the same folder")

// OpenTarget connects to a database that nothing is in yet, or a part of a copy. Whoever opens it closes it.
func OpenTarget(ctx context.Context, o Options) (*Target, error) {
	o.defaults()
	s := &Store{o: o, log: o.Logger, settle: settle, homes: newHomes()}
	name, err := s.connect()
	if err != nil {
		return nil, err
	}
	t := &Target{Store: s, db: s.client.Database(name)}
	if s.metrics, err = newMetrics(nil); err == nil {
		err = s.Ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mongo: the primary does not answer: %w", err), s.disconnect())
	}
	s.use(t.db)
	return t, nil
}

// Close disconnects.
func (t *Target) Close() error { return t.disconnect() }

// Begin implements storage.Target.
func (t *Target) Begin(ctx context.Context, epoch string, last storage.Stamp) (after string, err error) {
	var c copyDocument
	err = t.meta.FindOne(ctx, bson.D{{Key: "_id", Value: copyID}}).Decode(&c)
	switch {
	case noDocument(err):
		if err := t.empty(ctx); err != nil {
			return "", err
		}
	case err != nil:
		return "", err
	case c.Epoch != epoch:
		return "", fmt.Errorf("mongo: the database has an unfinished copy of another store, %s: go on with that one, or give an empty database", c.Epoch)
	}
	t.epoch, t.replace = epoch, c.Epoch != ""
	if c.Last != uint64(last) {
		c.After = ""
	}
	for name, list := range indices() {
		if err := ensureIndices(ctx, t.db.Collection(name), list); err != nil {
			return "", err
		}
	}
	c = copyDocument{ID: copyID, Epoch: epoch, Last: uint64(last), After: c.After}
	_, err = t.meta.ReplaceOne(ctx, bson.D{{Key: "_id", Value: copyID}}, c, options.Replace().SetUpsert(true))
	return c.After, err
}

// empty refuses a database that has any document.
func (t *Target) empty(ctx context.Context) error {
	names, err := t.db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("mongo: list the collections: %w", err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "system.") {
			continue
		}
		err := t.db.Collection(name).FindOne(ctx, bson.D{}).Err()
		switch {
		case err == nil:
			return fmt.Errorf("mongo: the database %s is not empty: there is something in its collection %s; give another name in the URI's path",
				t.db.Name(), name)
		case !noDocument(err):
			return fmt.Errorf("mongo: look into the collection %s: %w", name, err)
		}
	}
	return nil
}

// PutSignOuts implements storage.Target.
func (t *Target) PutSignOuts(ctx context.Context, list []storage.SignOut) error {
	if _, err := t.devices.DeleteMany(ctx, bson.D{}); err != nil {
		return err
	}
	docs := make([]any, len(list))
	for i, o := range list {
		docs[i] = bson.D{{Key: "_id", Value: deviceID(o.User, o.Device)}, {Key: "stamp", Value: bson.DateTime(o.Stamp)}}
	}
	return insertAll(ctx, t.devices, docs)
}

// Finish implements storage.Target.
func (t *Target) Finish(ctx context.Context) error {
	meta := bson.D{{Key: "_id", Value: metaID}, {Key: "epoch", Value: t.epoch}, {Key: "format", Value: format}}
	if _, err := t.meta.ReplaceOne(ctx, bson.D{{Key: "_id", Value: metaID}}, meta, options.Replace().SetUpsert(true)); err != nil {
		return err
	}
	_, err := t.meta.DeleteOne(ctx, bson.D{{Key: "_id", Value: copyID}})
	return err
}

// insertedAtOnce is how many small documents go into one command.
const insertedAtOnce = 1000

func insertAll(ctx context.Context, into *mongo.Collection, docs []any) error {
	for len(docs) > 0 {
		n := min(len(docs), insertedAtOnce)
		if _, err := into.InsertMany(ctx, docs[:n], options.InsertMany().SetOrdered(false)); err != nil {
			return err
		}
		docs = docs[n:]
	}
	return nil
}
