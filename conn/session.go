package conn

import (
	"sync"

	"github.com/panjf2000/gnet/v2"

	"github.com/parley-im/parley/protocol"
)

// state is where a connection stands. It only ever moves down this list.
type state uint8

const (
	stateHello   state = iota // waits for HELLO
	stateSigning              // HELLO is being checked, or logic has not let it in yet; what else comes stays unparsed
	stateOpen                 // WELCOME is on its way or out
	stateClosing              // the last frames are on their way; what comes is thrown away
	stateClosed               // the descriptor is closed, and its number may be somebody else's already
)

// session is one connection. There are very many and most are idle, so it is small, and has no goroutine, no timer and no buffer of its
// own while nothing moves.
type session struct {
	// Session goes to the logic tier by pointer: ID is set in OnOpen, the rest before Open, and then nothing changes any more.
	protocol.Session

	c gnet.Conn // only to be touched on the loop, and not once the state is stateClosed
	l *loop

	// On the loop only.

	prev, next *session // in the wheel's slot
	at         uint32   // the tick at which the wheel looks at it; 0: not in the wheel
	seen       uint32   // the tick of the last byte
	partial    uint32   // the tick at which a frame began that is not all there; 0: none
	deadline   uint32   // the tick at which the handshake, or closing, is over
	need       uint32   // how many bytes must be there before it is worth looking

	expires   uint32 // the token's end, unix seconds; written before stateOpen
	helloID   uint32 // request id of HELLO; written before stateSigning
	held      bool   // counts against the cap; on the loop only
	backlog   bool   // in the loop's list of backlogs; on the loop only
	ending    bool   // deadline is for the last frames; on the loop only
	halfClose bool   // FIN is out; on the loop only

	mu       sync.Mutex
	pending  *buffer // frames to write, nil when there are none; whole frames always
	outbound int32   // bytes that gnet holds because the kernel took no more, as last seen on the loop
	missed   int32   // bytes of deliveries that were skipped while the client took nothing
	stuck    int32   // outbound at the last of them
	inflight uint16  // requests handed to logic whose replies have not come; floor 0
	state    state
	why      reason // of closing
	dirty    bool   // in the loop's list
	onLoop   bool   // its read is being handled: the loop flushes it right after
	resume   bool   // just welcomed: parse what came meanwhile
	skipped  bool   // missed a delivery, and is owed an EVENT resync
	opening  bool   // Logic.Open is running
	opened   bool   // Logic.Open was called, Logic.Closed was not
	welcomed bool
}

// waiting is how many bytes wait for the client. mu is held.
func (s *session) waiting() int {
	n := int(s.outbound)
	if s.pending != nil {
		n += len(s.pending.b)
	}
	return n
}

// queue appends whole frames. mu is held.
func (s *session) queue(frames []byte) {
	if s.pending == nil {
		s.pending = newBuffer()
	}
	s.pending.b = append(s.pending.b, frames...)
}

// end makes last, which may be nothing, the last frames of the session. mu is held, and the state is below stateClosing.
func (s *session) end(why reason, last []byte) {
	s.state, s.why = stateClosing, why
	s.resume, s.skipped = false, false
	if len(last) > 0 {
		s.queue(last)
	}
}

// tooSlow ends a session that passed the hard bound. What is pending goes to the bin, so that KICK has a chance and the memory
// comes back; what gnet holds may end in the middle of a frame and stays. mu is held.
func (s *session) tooSlow() {
	if s.pending != nil {
		s.pending.b = s.pending.b[:0]
	}
	s.l.g.metrics.kick(protocol.KickSlow)
	s.end(reasonSlow, kickFrame(protocol.Kick{Reason: protocol.KickSlow, Message: "slow consumer", RetryAfterMS: retryAfterMS}))
}

// touch tells whether the caller must put s into the loop's list of sessions with something to write. mu is held.
func (s *session) touch() bool {
	if s.dirty || s.onLoop {
		return false
	}
	s.dirty = true
	return true
}

// buffer holds what is pending for a session.
type buffer struct{ b []byte }

const (
	bufferSize = 512
	bufferKeep = 16 << 10 // larger ones are left to the garbage collector
)

var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, bufferSize)} }}

func newBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) release() {
	if b != nil && cap(b.b) <= bufferKeep {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

func kickFrame(k protocol.Kick) []byte { return protocol.AppendFrame(nil, protocol.CmdKick, 0, &k) }

func errorFrame(requestID uint32, e *protocol.Error) []byte {
	return protocol.AppendFrame(nil, protocol.CmdError, requestID, e)
}
