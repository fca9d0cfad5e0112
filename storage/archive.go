package storage

// What it takes to copy one store into another: the parts in which a store is read whole, and written whole. copy.go does it.

import (
	"context"

	"github.com/parley-im/parley/protocol"
)

// Source is a store of which everything can be read, to be copied into another or held against it. Nobody writes to it meanwhile. All
// methods are safe from any goroutine.
type Source interface {
	// Conversations is Operator's.
	Conversations(ctx context.Context, after string, yield func(conversation string) bool) error
	// State is Buckets'.
	State(ctx context.Context, conversation string) (State, error)
	// Epoch is Directory's.
	Epoch(ctx context.Context) (string, error)
	// LastStamp is the highest that the store has given out.
	LastStamp(ctx context.Context) (Stamp, error)
	// Archive returns what there is of a conversation beside its slots and notes.
	Archive(ctx context.Context, conversation string) (*Archive, error)
	// ArchivedSlots calls yield for the slots from seq from on, ascending, until it returns false.
	ArchivedSlots(ctx context.Context, conversation string, from uint64, yield func(*ArchivedSlot) bool) error
	// Notes is Changes'.
	Notes(ctx context.Context, conversation string, since uint64, yield func(Note) bool) error
	// SignOuts calls yield for the devices that were signed out, by user and device in byte order, until it returns false.
	SignOuts(ctx context.Context, yield func(SignOut) bool) error
}

// Archive is what a store has of a conversation beside its slots and notes.
type Archive struct {
	Conversation string
	State        State
	ChangeSeq    uint64
	ChangeStamp  Stamp // of the latest change; 0: there is none
	Rows         []ArchivedRow
	Hidden       []Mark // by user
	Reacted      []Mark // of those whom the slots do not name; by user and reaction
}

// ArchivedRow is a user's row.
type ArchivedRow struct {
	User string
	View
}

// Mark is what a user did to messages.
type Mark struct {
	User     string
	Reaction string   // "" when they are hidden
	Seqs     []uint64 // ascending
}

// ArchivedSlot is a slot as it is stored: with its body though it was revoked, and as nobody sees it (Labels.Hidden and Reaction.Mine are
// false).
type ArchivedSlot struct {
	Slot
	ID protocol.MessageID // that of a purged message, too
}

// SignOut is a device that was signed out.
type SignOut struct {
	User, Device string
	Stamp        Stamp
}

// Target is a store that takes over what a Source has.
type Target interface {
	Source
	// Begin prepares for the content of the store of that epoch, as it was when its last stamp was last. A copy of the same that was begun
	// before goes on: after is the last conversation that is whole. An error when the target holds anything else.
	Begin(ctx context.Context, epoch string, last Stamp) (after string, err error)
	// Put copies a conversation. It is durable when Put returns. What there is of it already is replaced.
	Put(ctx context.Context, from Source, a *Archive) error
	// PutSignOuts replaces the devices that are signed out.
	PutSignOuts(ctx context.Context, list []SignOut) error
	// Finish makes it a store that can be used.
	Finish(ctx context.Context) error
}
