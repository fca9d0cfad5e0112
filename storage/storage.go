package storage

import (
	"context"

	"github.com/parley-im/parley/protocol"
)

// Origin is the request that a record came from. It means something only to the process that appended it.
type Origin struct {
	Session   protocol.SessionID
	RequestID uint32
	Command   protocol.Command // 0: CmdSend
	Reply     []byte           // the body of the reply once the record is durable, when it is not SEND_ACK or known only behind the log
}

// Record is an accepted message on its way to its place, or an accepted change of one that has its place. Its Message has no Seq yet.
type Record struct {
	Message   protocol.Message
	ID        protocol.MessageID // Message.ServerMsgID before it was text
	Origin    Origin
	LogTimeMS int64 // set by the log; never falls within a partition
	Held      int   // bytes of the request whose memory it shares; 0 when it shares none

	// Intent is set when the record is a change that everybody sees. Of Message only ConversationID and Sender are then set.
	Intent *Intent
}

// Log puts records into a durable order. Records of one conversation lie in one partition, so it is also the order of each
// conversation.
type Log interface {
	// Append queues a record. nil means that Consume will see it, after everything of its conversation that was appended before; the
	// record is the log's from then on. ErrFull when the queue's bound in bytes is reached or the store takes no writes, ErrClosed after
	// Close: the record is then nobody's, and will never be seen. It does not block. Safe from any goroutine.
	Append(rec *Record) error
	// Consume hands the records to c, a batch at a time, each partition from a goroutine of its own, until Close. It
	// returns after the last Process did. A log that is in line with its store keeps the records' Origins: the consumer
	// answers each once it is durable.
	Consume(c Consumer) error
	// Ready is nil while Append takes records.
	Ready() error
	// Close refuses new records, lets Consume finish with what is queued, and waits for it.
	Close() error
}

// Consumer takes the records of a partition in their order.
type Consumer interface {
	// Process owns recs' elements from then on, but not the slice. Calls for one partition do not overlap.
	Process(partition int, recs []*Record)
}

// Counts are running counts of the messages that count as unread, one for each side of a direct conversation: of
// those sent by the user whose id comes first in byte order, and by the other.
type Counts [2]uint64

// State is where a conversation stands, read from its newest messages.
type State struct {
	Tail     uint64 // the highest seq; 0 when there is no such conversation
	Counts   Counts // at Tail
	ActiveMS int64  // send time of the last message that is not the server's
	Stamp    Stamp  // of the last append
}

// Stamp orders the writes of a store: of two changes of one thing the later has the higher stamp. It comes from the store, at the
// write, and never falls, also not across restarts.
type Stamp uint64

// Run is consecutive messages of one conversation: the unit of writing.
type Run struct {
	Conversation string
	First        uint64 // the seq of Messages[0]
	Messages     []*protocol.Message
	Wire         []byte // the messages as they are pushed: protocol.AppendBody of each, one after the other
	LogTimeMS    int64  // of each of the run's records
	Before       Counts // the running counts before First
	After        Counts // and after the last message
	ActiveMS     int64  // State.ActiveMS after this run
	// Members are the users on whose lists the conversation is from now on; set with First == 1. Their rows are stored with the
	// messages, in one step or so that a repeat makes them good.
	Members []string

	// Err is set by the store by the time Commit.Wait returns: ErrStale when this run, and only this one, was refused. A run that is stored
	// already, with the same ids, may be taken for a repeat of itself, and has none.
	Err error
}

// Slot is a stored message and what is kept beside it. Of one that was purged the Message has nothing but ConversationID and Seq.
type Slot struct {
	Message   protocol.Message
	LogTimeMS int64
	Counts    Counts // after this message
	Labels    Labels
}

// RecentID is what de-duplication keeps of a message.
type RecentID struct {
	Seq       uint64
	ID        protocol.MessageID
	LogTimeMS int64
}

// Commit is a write that was started.
type Commit interface {
	// Wait returns nil when every run without an Err is durable and readable. An error means that any of them may or may not be stored. It is
	// called once.
	Wait() error
}

// Buckets holds the messages of conversations. All methods are safe from any goroutine. What a read returns is durable: a
// message that was written but may still be lost in a crash is not there yet.
type Buckets interface {
	// State of a conversation; the zero State when there is none.
	State(ctx context.Context, conversation string) (State, error)
	// Recent calls yield for the messages of a conversation, newest first, until it returns false or there are no more.
	Recent(ctx context.Context, conversation string, yield func(RecentID) bool) error
	// Append starts to store runs, at most one of a conversation. Each is a compare-and-set: its First must be the tail + 1,
	// where messages of earlier Appends that are still waited for count. Appends become durable in the order of the
	// calls; Wait of an earlier one returns first or at the same time. ErrFull and ErrClosed mean that nothing was stored. The store
	// does not keep runs, or what they point to, after Wait.
	Append(ctx context.Context, runs []*Run) (Commit, error)
	// Read calls yield for each seq of the range that is stored, ascending, or descending with NewestFirst, until it
	// returns false. From 0 or From > To is ErrInvalidSeq. The slot is the callee's to keep.
	Read(ctx context.Context, r Range, yield func(*Slot) bool) error
	// Slots is Read for a list of seqs, which may be in any order and lie anywhere: those that are stored come in the order of the
	// list. A seq of 0 is ErrInvalidSeq, and then nothing was yielded.
	Slots(ctx context.Context, conversation, viewer string, seqs []uint64, yield func(*Slot) bool) error
}

// Range is what a Read reads.
type Range struct {
	Conversation string
	Viewer       string // for whom Labels.Hidden and Reaction.Mine are; "": for nobody
	From, To     uint64
	NewestFirst  bool
	Expect       int // how many slots are likely wanted, to be fetched at once; 0: not known. No bound: yield decides
}

// View is a user's row of a conversation: what is theirs alone.
type View struct {
	Conversation string
	ReadSeq      uint64
	ReadCount    uint64 // the running count of the other side's messages at ReadSeq
	MinSeq       uint64 // the lowest seq that the user may read; at least 1
	Stamp        Stamp  // of the row's last change
}

// Entry is a conversation on a user's list: the row, joined with the conversation when it is read.
type Entry struct {
	View
	State       State
	PeerReadSeq uint64 // direct: the other side's ReadSeq
	ChangeSeq   uint64 // of the conversation: its latest change that everybody sees
	Changed     Stamp  // the highest stamp of anything in the entry
}

// Directory holds slow-changing facts of users. All methods are safe from any goroutine; what a read returns is durable, and a write
// returns when it is.
type Directory interface {
	// Changed returns the entries of the user's list that changed after since (0: all), in no order. upTo is for the next call: whatever
	// changes from before this call on has a higher stamp, so that it comes again rather than being missed.
	Changed(ctx context.Context, user string, since Stamp) (entries []Entry, upTo Stamp, err error)
	// Entries returns those of the conversations that are on the user's list, in the order asked for.
	Entries(ctx context.Context, user string, conversations []string) ([]Entry, error)
	// RaiseRead raises the user's watermark to seq, where the other side's count is count. It never lowers it: raised tells
	// whether it changed. view is the row as it is now. The row must exist.
	RaiseRead(ctx context.Context, user, conversation string, seq, count uint64) (view View, raised bool, err error)
	// ApplyOwn applies changes of users' own views. Applying one again changes nothing. One whose row does not exist is left out. When it returns
	// nil, all are durable. After an error any of them may be stored, or a part of one: applying it again makes it whole.
	ApplyOwn(ctx context.Context, changes []*Own) error
	// SignedOut tells whether the device was signed out and has not signed in since.
	SignedOut(ctx context.Context, user, device string) (bool, error)
	// SetSignedOut notes it, or forgets it.
	SetSignedOut(ctx context.Context, user, device string, out bool) error
	// Epoch names the history that this store holds; made with the store, and the same for ever.
	Epoch(ctx context.Context) (string, error)
}

// Route is where a device that is online can be reached.
type Route struct {
	User     string
	DeviceID string
	Platform protocol.Platform
	Class    string // one device of each class at a time; "" has no such limit
	Gateway  string
	Session  protocol.SessionID
	SinceMS  int64
}

// Registration is what became of Register.
type Registration struct {
	Admitted  bool
	Displaced []Route // routes that were removed for it; their sessions are to be kicked
	Holder    Route   // when not admitted for the class: who has its place
	TooMany   bool    // not admitted because the user has too many devices online
}

// Routes knows where devices are. It may forget all of it at any time, and must forget those of a gateway that died. All methods
// are safe from any goroutine.
type Routes interface {
	// Register adds a route. The device's own older route is always displaced. One of another device of the same class is
	// displaced when takeOver is set; otherwise the new route is not admitted.
	Register(ctx context.Context, r Route, takeOver bool) (Registration, error)
	// Remove removes the route of one session; another session of the same device is left alone.
	Remove(ctx context.Context, r Route) error
	// Online appends to out, for each of the users, the routes of their devices: a slice that must not be changed, and is
	// never changed.
	Online(ctx context.Context, users []string, out [][]Route) ([][]Route, error)
}
