package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/parley-im/parley/protocol"
)

var (
	// ErrClosed is returned by calls after the client was stopped.
	ErrClosed = errors.New("client: closed")
	// ErrOutboxFull is returned by Queue and Send when Options.OutboxLimit or OutboxBytes is reached.
	ErrOutboxFull = errors.New("client: the outbox is full")
	// ErrTimeout says that a reply did not come in time. The request may have been carried out.
	ErrTimeout = errors.New("client: no reply in time")
	// ErrWrongUser ends a client whose token is of another user than its State.
	ErrWrongUser = errors.New("client: the state belongs to another user")

	errRetired = errors.New("client: connection was replaced")
	errDead    = errors.New("client: no sign of life from the server")
)

// KickError ends a client that the server does not want back by itself: another device of the class signed in, the token was
// revoked, and the like. Its fields are those of KICK.
type KickError struct {
	protocol.Kick
}

// Error implements error.
func (e *KickError) Error() string {
	return fmt.Sprintf("client: kicked, reason %d: %s", e.Reason, e.Message)
}

// RefusedError ends a client whose sign-in the server refuses for good. Unwrap gives the *protocol.Error.
type RefusedError struct {
	err *protocol.Error
}

// Error implements error.
func (e *RefusedError) Error() string { return "client: sign-in refused: " + e.err.Error() }

// Unwrap gives the server's error.
func (e *RefusedError) Unwrap() error { return e.err }

// lostError says that the connection ended before the reply came.
type lostError struct {
	cause error
}

func (e *lostError) Error() string { return "client: connection lost: " + e.cause.Error() }
func (e *lostError) Unwrap() error { return e.cause }

func isLost(err error) bool {
	var lost *lostError
	return errors.As(err, &lost)
}

// storeError says that the app's State or Outbox failed.
type storeError struct {
	cause error
}

func (e *storeError) Error() string { return "client: store: " + e.cause.Error() }
func (e *storeError) Unwrap() error { return e.cause }

// handlerError says that a handler of the app's failed.
type handlerError struct {
	cause error
}

func (e *handlerError) Error() string { return "client: handler: " + e.cause.Error() }
func (e *handlerError) Unwrap() error { return e.cause }

// retryable tells whether a request that ended with err may be repeated, and the delay that the server asked for.
func retryable(err error) (after time.Duration, ok bool) {
	if isLost(err) || errors.Is(err, ErrTimeout) {
		return 0, true
	}
	var e *protocol.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	switch e.Code {
	case protocol.CodeRateLimited, protocol.CodeUnavailable, protocol.CodeInternal:
		return millis(e.RetryAfterMS), true
	case protocol.CodeUnauthenticated, protocol.CodeTokenExpired: // of the connection, not of the request
		return 0, true
	}
	unknown := e.Code == 0 || e.Code > protocol.CodeTokenExpired
	return millis(e.RetryAfterMS), unknown && e.RetryAfterMS > 0
}
