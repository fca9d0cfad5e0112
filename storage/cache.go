package storage

import "context"

// BodyKey names a message's body.
type BodyKey struct {
	Conversation string
	Seq          uint64
}

// BodyCache holds bodies of messages, which never change; labels are never in it. It may forget any body at any time, and forgets each
// within a day. All methods are safe from any goroutine. An error is no more than a miss: the caller counts it and reads the store.
type BodyCache interface {
	// Get appends to out, for each key, the body: nil when it is not there, or was dropped. The bytes must not be changed.
	Get(ctx context.Context, keys []BodyKey, out [][]byte) ([][]byte, error)
	// Add puts in the bodies of those keys that are neither there nor dropped. The bytes must not be changed afterwards.
	Add(ctx context.Context, keys []BodyKey, bodies [][]byte) error
	// Drop removes bodies that must not be shown any more, and has Add refuse them for a day: so a reader that had read a body before it was revoked
	// does not leave it behind.
	Drop(ctx context.Context, keys []BodyKey) error
}
