package protocol

// SessionID names a connection within its gateway for as long as that process lives; it is never given to another one. 0 is none.
type SessionID uint64

// Session is what the gateway tells the logic tier of a connection whose token holds.
type Session struct {
	ID       SessionID
	Key      string // session_id of WELCOME: 128 random bits as text, unique among all gateways
	User     string
	DeviceID string
	Platform Platform
	Flags    uint32 // of HELLO
}

// SignedIn tells whether the person has just signed in, as against an automatic reconnect.
func (s *Session) SignedIn() bool { return s.Flags&HelloSignedIn != 0 }

// Delivery is frames for some connections of one gateway.
type Delivery struct {
	To     []SessionID
	Frames []byte // one or more whole frames, the same for all
	// Replies is how many of the frames answer a request that counts in flight. Replies always go out (or the connection
	// is closed as too slow); frames without any reply may be skipped for a slow connection, which is then told to resync.
	Replies int
	// Ephemeral frames are worth something at once or not at all, and nothing is owed to a client that did not get them: SIGNAL.
	// They are the first to be dropped for a connection that is slow, so that they never take the room of what counts.
	Ephemeral bool
	// Close ends the connections once the frames are out: after an ERROR whose code closes, or a farewell.
	Close bool
}
