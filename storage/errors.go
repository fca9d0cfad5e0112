package storage

import "errors"

// Errors that every backend uses with the same meaning. Others are faults of the backend.
var (
	// ErrInvalidSeq: a seq is 0, or a range is empty or reversed.
	ErrInvalidSeq = errors.New("storage: invalid seq")
	// ErrStale: a Run does not start right above its conversation's tail. Nothing of it was stored.
	ErrStale = errors.New("storage: the tail is not the one that the writer saw")
	// ErrNotFound: there is no such message.
	ErrNotFound = errors.New("storage: no such message")
	// ErrGone: the message was purged.
	ErrGone = errors.New("storage: the message is gone")
	// ErrFull: the disk's free space is below the reserve, or the queue's bound is reached. Reads go on; try again later.
	ErrFull = errors.New("storage: no space left for writes")
	// ErrUnavailable is in the chain of every error of a store that cannot be reached, or did not answer in time: a write may or may not be
	// stored. Try again later.
	ErrUnavailable = errors.New("storage: the store cannot be reached")
	// ErrClosed: the store or log was closed.
	ErrClosed = errors.New("storage: closed")
)
