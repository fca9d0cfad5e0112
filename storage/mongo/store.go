package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Options of a Store. Only URI has no useful zero.
type Options struct {
	// URI is where MongoDB is: mongodb://… or mongodb+srv://…. Its path names the database; "parley" when it has none. It is a secret
	// when it has a password: it is never logged, and no error has it.
	URI string
	// MaxBody is the limit of a request's body in bytes; protocol.DefaultMaxBody when 0. Open refuses one with which a bucket might
	// pass what MongoDB takes as one document.
	MaxBody int
	// Timeout bounds each operation, the search for a primary included; 5 s when 0.
	Timeout time.Duration
	// RetryFor bounds how long an operation that may be repeated is tried again after errors that pass; 15 s when 0.
	RetryFor time.Duration
	// QueueBytes bounds the messages in Appends that are not durable yet; 64 MiB when 0. Append returns storage.ErrFull beyond it.
	QueueBytes int
	// Existing refuses a database that has no store yet, instead of making one.
	Existing bool
	// Cache holds bodies; nil: every read fetches them.
	Cache storage.BodyCache

	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: no metrics
	// Monitor sees every command that is sent; nil: nobody does.
	Monitor *event.CommandMonitor
}

const (
	defaultDatabase   = "parley"
	defaultTimeout    = 5 * time.Second
	defaultRetryFor   = 15 * time.Second
	defaultQueueBytes = 64 << 20
)

func (o *Options) defaults() {
	if o.MaxBody == 0 {
		o.MaxBody = protocol.DefaultMaxBody
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.RetryFor == 0 {
		o.RetryFor = defaultRetryFor
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = defaultQueueBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Store is a database. It implements storage.Buckets, storage.Directory, storage.Changes and storage.Operator. All methods are safe from any
// goroutine.
type Store struct {
	o        Options
	log      *slog.Logger
	client   *mongo.Client
	metrics  *metrics
	homes    homes
	writer   *writer
	epoch    string
	settle   time.Duration // see stamp.go
	changing stripes       // by conversation: see Apply

	buckets  *mongo.Collection
	changes  *mongo.Collection
	rows     *mongo.Collection
	hidden   *mongo.Collection
	reactors *mongo.Collection
	devices  *mongo.Collection
	layouts  *mongo.Collection
	meta     *mongo.Collection
}

// Open connects, makes what is missing in the database and checks what is there. Whoever opens a Store closes it.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.defaults()
	if largest := bucketBytes(storage.BucketSize, o.MaxBody); largest > maxDocument {
		return nil, fmt.Errorf("mongo: with bodies of %d bytes a bucket may take %d bytes, and MongoDB takes %d: set a body limit of at most %d",
			o.MaxBody, largest, maxDocument, maxBody(storage.BucketSize))
	}
	s := &Store{o: o, log: o.Logger, homes: newHomes(), settle: settle}
	database, err := s.connect()
	if err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(o.Registerer); err == nil {
		err = s.prepare(ctx, database)
	}
	if err != nil {
		return nil, errors.Join(err, s.disconnect())
	}
	s.writer = startWriter(s)
	return s, nil
}

// connect makes the client. Nothing is sent yet.
func (s *Store) connect() (database string, err error) {
	uri, err := connstring.ParseAndValidate(s.o.URI)
	if err != nil {
		return "", errors.New("mongo: the URI is not valid; it must be like mongodb://user:password@host:27017/database")
	}
	c := options.Client().ApplyURI(s.o.URI).SetAppName("parley").
		SetWriteConcern(acknowledged()).SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()).
		SetTimeout(s.o.Timeout).SetServerSelectionTimeout(s.o.Timeout).SetMonitor(s.o.Monitor)
	if s.client, err = mongo.Connect(c); err != nil {
		return "", fmt.Errorf("mongo: connect: %w", err)
	}
	if uri.Database == "" {
		return defaultDatabase, nil
	}
	return uri.Database, nil
}

// acknowledged is the write concern of every write: a majority has it in its journal.
func acknowledged() *writeconcern.WriteConcern {
	journal := true
	return &writeconcern.WriteConcern{W: "majority", Journal: &journal}
}

// Close refuses new writes, waits for those that were started, and disconnects.
func (s *Store) Close() error {
	s.writer.close()
	return s.disconnect()
}

func (s *Store) disconnect() error {
	if s.metrics != nil {
		s.metrics.unregister(s.o.Registerer)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
	defer cancel()
	return s.client.Disconnect(ctx)
}

// Ready is nil while the primary answers. It is for health checks.
func (s *Store) Ready(ctx context.Context) error { return s.client.Ping(ctx, readpref.Primary()) }
