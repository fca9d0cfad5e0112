package storage

import (
	"context"

	"github.com/parley-im/parley/protocol"
)

// Op is a kind of change that everybody sees.
type Op uint8

// The kinds. Their numbers are stored.
const (
	OpRevoke Op = 1
	OpEdit   Op = 2
	OpReact  Op = 3
)

// String is the kind's name, for metrics and people.
func (o Op) String() string {
	switch o {
	case OpRevoke:
		return "revoke"
	case OpEdit:
		return "edit"
	case OpReact:
		return "react"
	}
	return "unknown"
}

// Intent is an accepted request to change a message, on its way through the log. What comes of it is decided behind the log, in log order, from what is
// stored and from nothing else: a revoke of what is revoked already, for one, changes nothing.
type Intent struct {
	Op     Op
	Seq    uint64
	User   string
	TimeMS int64 // when it was accepted

	Role protocol.Role // OpRevoke

	ContentType uint16 // OpEdit
	Content     []byte

	Reaction string // OpReact
	On       bool
}

// Change is a change that everybody sees, decided and numbered.
type Change struct {
	Conversation string
	Seq          uint64 // of the message
	ChangeSeq    uint64 // the conversation's ChangeSeq + 1
	TimeMS       int64  // of the log
	// Labels has Revoke, Edit and Reactions as they are from now on, whole. The rest of it is not looked at.
	Labels Labels
	// Reactor is a change of who reacted that does not fit into the slot, so that it is kept beside it.
	Reactor *Reactor

	// Err is set by Apply: ErrStale when the change did not start right above the conversation's ChangeSeq, ErrGone when the
	// message is purged, ErrNotFound when there is none. Nothing of it was stored then.
	Err error
}

// Reactor says whether a user reacted in a way.
type Reactor struct {
	User     string
	Reaction string
	On       bool
}

// Note says that the message at Seq got its change of that number.
type Note struct {
	ChangeSeq uint64
	Seq       uint64
	TimeMS    int64
}

// Changes holds the changes that everybody sees: the labels, and in what order they came. All methods are safe from any goroutine; what
// a read returns is durable.
type Changes interface {
	// ChangeSeq is the number of the conversation's latest change; 0 when there is none.
	ChangeSeq(ctx context.Context, conversation string) (uint64, error)
	// Apply stores changes, at most one of a conversation, and returns when they are durable. Each is a compare-and-set on the
	// conversation's ChangeSeq. The label is there before the note of it. After an error, or a crash, any of them may be stored, or its label
	// without its note: then Labels.ChangeSeq of the message is the number that the conversation's next change gets, and applying the same
	// change again makes it whole.
	Apply(ctx context.Context, changes []*Change) error
	// Notes calls yield for the changes with numbers above since, in their order, until it returns false. Those of messages that were changed
	// again later may be left out.
	Notes(ctx context.Context, conversation string, since uint64, yield func(Note) bool) error
}
