package mongo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/storage"
)

// A server that is one process keeps others off its database by a document in meta, which it renews:
//
//	_id      "lease"
//	server   which server holds it: the same before and after a restart
//	run      which start of it: every renewal is a compare-and-set on it
//	host     for people
//	renewed  the store's clock at the last renewal
//
// It is free when it is not there, or was not renewed for leaseTime by the store's clock. A server takes over from its own earlier run before that:
// that one is dead, since both use one data folder, which is locked. Who takes over waits for leaseGrace, in which what the dead run had sent is
// applied: a message that came after the first devices asked what they missed would not be pushed to them. The lease keeps people from starting
// two servers; what keeps two writers apart is the compare-and-set of every write.
const leaseID = "lease"

const (
	leaseTime  = 15 * time.Second
	leaseEvery = 2 * time.Second // between renewals, and how long one may take
	leaseGrace = 2 * time.Second
)

// ErrHeld is in the chain of the error of Lease when another server uses the database.
var ErrHeld = errors.New("another server uses the database")

// LeaseOptions for Lease. Server is required.
type LeaseOptions struct {
	Server string        // names the server: the same at each start
	Host   string        // where it runs, for people
	Every  time.Duration // between renewals; 0: 2 s
}

// Lease is held until Close, or until it is Lost.
type Lease struct {
	s    *Store
	o    LeaseOptions
	run  string
	stop context.CancelFunc
	done sync.WaitGroup

	grace <-chan time.Time // when there is no more to wait for

	mu   sync.Mutex
	why  error // the last renewal's
	lost chan struct{}
}

type leaseDocument struct {
	ID      string        `bson:"_id"`
	Server  string        `bson:"server"`
	Run     string        `bson:"run"`
	Host    string        `bson:"host"`
	Renewed bson.DateTime `bson:"renewed"`
}

// Lease takes the lease, or says who has it, and renews it from then on.
func (s *Store) Lease(ctx context.Context, o LeaseOptions) (*Lease, error) {
	o.Every = cmp.Or(o.Every, leaseEvery)
	l := &Lease{s: s, o: o, run: rand.Text(), lost: make(chan struct{})}
	if err := l.take(ctx); err != nil {
		return nil, err
	}
	keeping, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.done.Go(func() { l.keep(keeping) })
	select {
	case <-l.grace:
		return l, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), l.Close())
	}
}

func (l *Lease) take(ctx context.Context) error {
	now, err := l.s.clock(ctx)
	if err != nil {
		return err
	}
	var held leaseDocument
	err = l.s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: leaseID}}).Decode(&held)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return unavailable(err)
	}
	age := now.Sub(held.Renewed.Time())
	if err == nil && held.Server != l.o.Server && age < leaseTime {
		return fmt.Errorf("mongo: %w: it runs on %s and was there %s ago. Stop it first; if it is dead, the database is free in %s",
			ErrHeld, held.Host, max(age, 0).Round(time.Second), (leaseTime - age).Round(time.Second))
	}
	return l.takeFrom(ctx, &held)
}

// takeFrom takes the lease from the run that has it, if it still has it as it was read; from nobody when held is zero.
func (l *Lease) takeFrom(ctx context.Context, held *leaseDocument) error {
	from := bson.D{{Key: "_id", Value: leaseID}, {Key: "run", Value: held.Run}, {Key: "renewed", Value: held.Renewed}}
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "server", Value: l.o.Server}, {Key: "run", Value: l.run}, {Key: "host", Value: l.o.Host}}}, renewing()}
	if held.Run == "" {
		from = bson.D{{Key: "_id", Value: leaseID}, {Key: "run", Value: l.run}}
	}
	r, err := l.s.meta.UpdateOne(ctx, from, set, options.UpdateOne().SetUpsert(held.Run == ""))
	switch {
	case mongo.IsDuplicateKeyError(err), err == nil && r.MatchedCount+r.UpsertedCount == 0:
		return fmt.Errorf("mongo: %w: it took it at the same moment", ErrHeld)
	case err != nil:
		return unavailable(err)
	}
	if l.grace = time.After(0); held.Run != "" {
		l.grace = time.After(leaseGrace)
	}
	return nil
}

func renewing() bson.E {
	return bson.E{Key: "$currentDate", Value: bson.D{{Key: "renewed", Value: true}}}
}

// keep renews until ctx ends or the lease is lost.
func (l *Lease) keep(ctx context.Context) {
	tick := time.NewTicker(l.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := l.renew(ctx)
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.why = err
		l.mu.Unlock()
		if errors.Is(err, ErrHeld) {
			close(l.lost)
			return
		}
	}
}

func (l *Lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseEvery)
	defer cancel()
	r, err := l.s.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: leaseID}, {Key: "run", Value: l.run}}, bson.D{renewing()})
	switch {
	case err != nil:
		return unavailable(err)
	case r.MatchedCount == 0:
		return fmt.Errorf("mongo: %w: it took over from this one", ErrHeld)
	}
	return nil
}

// unavailable puts ErrUnavailable into the chain.
func unavailable(err error) error {
	return fmt.Errorf("mongo: %w: %w", storage.ErrUnavailable, err)
}

// Ready is nil while the database can be reached and the lease is held: it is how the last renewal ended. Safe from any goroutine.
func (l *Lease) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// Lost is closed when another server took the lease; Ready then says so.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Close gives the lease back, so that another server can start at once.
func (l *Lease) Close() error {
	l.stop()
	l.done.Wait()
	if errors.Is(l.Ready(), ErrHeld) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseEvery)
	defer cancel()
	if _, err := l.s.meta.DeleteOne(ctx, bson.D{{Key: "_id", Value: leaseID}, {Key: "run", Value: l.run}}); err != nil {
		return unavailable(err)
	}
	return nil
}
