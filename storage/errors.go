package storage

import "errors"

// Errors that every backend uses with the same meaning. Others are faults of the backend.
var (
	// ErrInvalidSeq: a seq is 0, or a range is empty or reversed.
	ErrInvalidSeq = errors.New("storage: invalid seq")
	// ErrStale: a Run does not start right above its conversation's tail. Nothing of it was stored.
	ErrStale = errors.New("storage: the tail is not the one that the writer saw")
	// ErrFull: the disk's free space is below the reserve, or the queue's bound is reached. Reads go on; try again later.
	ErrFull = errors.New("storage: no space left for writes")
	// ErrClosed: the store or log was closed.
	ErrClosed = errors.New("storage: closed")
)
