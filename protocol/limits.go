package protocol

// Bounds on what a body may hold. Frames are bounded as a whole before this; these hold for single fields.
const (
	// MaxClientMsgID is the longest client_msg_id in bytes.
	MaxClientMsgID = 64
	// MaxArray is the most elements of an array in a request, unless it is a list of seqs.
	MaxArray = 100
	// MaxSeqs is the most seqs in a request, and the most messages of a page.
	MaxSeqs = 200
	// MaxDeviceID is the longest device_id in bytes.
	MaxDeviceID = 128
	// MaxReactionLen is the longest reaction in bytes.
	MaxReactionLen = 32
	// MaxReactions is how many kinds of reactions a message has at most.
	MaxReactions = 16
	// MaxReactors is how many users a message names who reacted, over all kinds. Of the others there is the count.
	MaxReactors = 64
	// MaxDraft is the longest draft in bytes.
	MaxDraft = 4096

	// DefaultMaxBody is the default limit of a request's body in bytes.
	DefaultMaxBody = 64 << 10
	// HandshakeMaxBody is the limit of a body before sign-in.
	HandshakeMaxBody = 8 << 10
	// DefaultMaxDown is the default limit of a body from the server.
	DefaultMaxDown = 512 << 10

	maxConversationID = 2 + MaxIDLen + 1 + MaxIDLen
	maxToken          = HandshakeMaxBody
	maxText           = 1024 // messages of errors, names, sdk strings
	maxOpaque         = 1024 // cursors and sync tokens
	maxBin            = 16 << 20
)
