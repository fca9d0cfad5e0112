package storage

import "context"

// Operator is what those who run the server do to a whole store. All methods are safe from any goroutine, while the store is in
// use, too.
type Operator interface {
	// Conversations calls yield for the ids of all conversations that sort after after, in byte order, until it returns false.
	Conversations(ctx context.Context, after string, yield func(conversation string) bool) error
	// Purge removes the bodies and labels of the messages of [from, to] for everyone and for ever, as far as there are such: their seqs stay, as
	// gone. Counts, log times and the hashes of ids are kept. It returns how many were purged that were not gone yet, and when that is
	// durable. Doing it again changes nothing. from 0 or from > to is ErrInvalidSeq.
	Purge(ctx context.Context, conversation string, from, to uint64) (purged uint64, err error)
	// LastBefore is the highest seq of the conversation whose log time is below timeMS; 0 when there is none.
	LastBefore(ctx context.Context, conversation string, timeMS int64) (uint64, error)
	// Inspect describes how a conversation is stored. Without seqs its slots are left out.
	Inspect(ctx context.Context, conversation string, seqs []uint64) (*Inspection, error)
	// Verify reads everything and calls fault for each thing that cannot be; progress, if not nil, after each conversation. It ends with an
	// error only when it could not go on.
	Verify(ctx context.Context, fault func(Fault), progress func(Verified)) (Verified, error)
}

// Inspection describes how a conversation is stored.
type Inspection struct {
	Conversation string
	State        State
	ChangeSeq    uint64
	Rows         []InspectedRow
	Buckets      []InspectedBucket
	Slots        []InspectedSlot // in the order asked for; one that is not stored is left out
}

// InspectedRow is a user's row.
type InspectedRow struct {
	User string
	View
	Hidden uint64 // how many messages the user has deleted
}

// InspectedBucket is a unit in which messages are stored: a bucket's document, or a run of the embedded store.
type InspectedBucket struct {
	ID     string // as the store names it
	First  uint64 // seq
	Last   uint64 // the highest that is stored
	Slots  int    // how many there are, empty ones too
	Layout int    // slots of a whole bucket; 0: it has no fixed number
	Rev    uint64 // 0: not counted
	Bytes  int
	Sealed bool // it was moved to another layout
}

// InspectedSlot is a slot with everything that is on it. A body that was revoked is not in it.
type InspectedSlot struct {
	Slot
	Bucket  string   // ID of the bucket
	DelList []string // who deleted it for themselves, as far as the slot says
	DelMore bool     // more did than the slot has room for
	Bytes   int
}

// Fault is something in a store that cannot be.
type Fault struct {
	Conversation string
	Seq          uint64 // 0: of the conversation as a whole
	What         string
}

// Verified is what Verify has looked at.
type Verified struct {
	Conversations uint64
	Messages      uint64
	Gone          uint64 // of the messages
	Buckets       uint64
	Changes       uint64
	Rows          uint64
	Faults        uint64
}
