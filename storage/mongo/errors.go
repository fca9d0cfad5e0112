package mongo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// Codes of MongoDB's errors.
const (
	codeDuplicateKey      = 11000
	codeNamespaceNotFound = 26
)

// passing are codes of errors that a later try need not meet: elections, shutdowns, timeouts, conflicts. The write may have been applied.
var passing = []int{
	6, 7, 89, 9001, // host unreachable, host not found, network timeout, socket
	24, 50, 262, // lock timeout, time limit
	64, 91, 100, // write concern timed out, shutting down, cannot satisfy the write concern now
	112, 134, 189, // write conflict, read concern majority not available yet, primary stepped down
	10058, 10107, 11600, 11602, 13435, 13436, // not primary, interrupted by a shutdown or a step-down
}

// transient tells whether trying again may help. Whether the operation was applied is not known.
func transient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var connection topology.ConnectionError
	var network net.Error
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) || errors.As(err, &connection) || errors.As(err, &network) {
		return true
	}
	var server mongo.ServerError
	return errors.As(err, &server) && hasAny(server)
}

func hasAny(server mongo.ServerError) bool {
	return server.HasErrorLabel("RetryableWriteError") || server.HasErrorLabel("TransientTransactionError") ||
		slices.ContainsFunc(passing, server.HasErrorCode)
}

// hasCode tells whether the server answered with that code.
func hasCode(err error, code int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorCode(code)
}

var (
	// errDamaged is in the chain of every error that says that the documents are not what was written.
	errDamaged = errors.New("damaged")
	// errBusy ends tries against other writers, or against a server that is not itself.
	errBusy = errors.New("mongo: gave up: another writer, or the server, was in the way all the time")
)

// damaged says what is not as it was written.
func damaged(what string, err error) error {
	if err == nil {
		return fmt.Errorf("mongo: %s is %w", what, errDamaged)
	}
	return fmt.Errorf("mongo: %s is %w: %w", what, errDamaged, err)
}

// unordered is for bulks whose writes are of different documents.
func unordered() *options.BulkWriteOptionsBuilder { return options.BulkWrite().SetOrdered(false) }

// pause is the time between tries: it doubles, with jitter, so that writers who met do not meet again.
type pause struct{ next time.Duration }

const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

// wait returns false when ctx is done.
func (p *pause) wait(ctx context.Context) bool {
	p.next = min(max(p.next, firstPause), longestPause)
	t := time.NewTimer(p.next/2 + rand.N(p.next))
	defer t.Stop()
	p.next *= 2
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// again calls try until it is done, or fails with an error that does not pass, for at most Options.RetryFor. What try does must be good to do
// again when its reply was lost.
func (s *Store) again(ctx context.Context, try func() (done bool, err error)) error {
	var p pause
	for began := time.Now(); ; {
		done, err := try()
		switch {
		case err != nil && !transient(err):
			return err
		case err == nil && done:
			return nil
		case time.Since(began) > s.o.RetryFor:
			return errors.Join(errBusy, err)
		}
		s.metrics.retries.Inc()
		if !p.wait(ctx) {
			return errors.Join(ctx.Err(), err)
		}
	}
}
