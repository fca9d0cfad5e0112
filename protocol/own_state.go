package protocol

// What OwnState.Op says. An op that is not known is of a later version: it is passed over.
const (
	// OwnDelete: the messages Seqs of ConversationID are hidden from the user.
	OwnDelete = "delete"
	// OwnClear: everything of ConversationID up to UpToSeq is out of the user's sight.
	OwnClear = "clear"
)

// OwnState is the content of a message of type ContentOwnState, in a user's own stream: what the user's other devices must learn.
type OwnState struct {
	Op             string
	ConversationID string
	Seqs           []uint64
	UpToSeq        uint64
}

func (m *OwnState) encode(w *writer) {
	w.array(4)
	w.str(m.Op)
	w.str(m.ConversationID)
	w.uints(m.Seqs)
	w.uint(m.UpToSeq)
}

func (m *OwnState) decode(r *reader) {
	end := r.open("own state")
	m.Op = r.str("op", maxText)
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Seqs = r.uints("seqs", MaxSeqs)
	m.UpToSeq = r.u64("up_to_seq")
	r.close(end)
}

// DeletedData is the data of an EventDeleted: the messages that were deleted.
type DeletedData struct {
	Seqs []uint64
}

func (m *DeletedData) encode(w *writer) {
	w.array(1)
	w.uints(m.Seqs)
}

func (m *DeletedData) decode(r *reader) {
	end := r.open("deleted data")
	m.Seqs = r.uints("seqs", MaxSeqs)
	r.close(end)
}
