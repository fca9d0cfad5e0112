package storage

// Own is a change of a user's own view of a conversation, in absolute values, so that it can be applied again.
type Own struct {
	User         string
	Conversation string
	Hide         []uint64 // these messages are hidden from the user; those that are not stored are left out. 0 among them is ErrInvalidSeq
	MinSeq       uint64   // everything below is out of the user's sight; 0: as it was. It is never lowered
}
