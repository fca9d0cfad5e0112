//go:build linux

package bench

import "github.com/parley-im/parley/protocol"

// connState is how far a connection has come.
type connState uint8

const (
	stateNew        connState = iota // not dialed yet
	stateConnecting                  // the socket is not connected yet
	stateGreeting                    // HELLO is sent, WELCOME awaited
	stateReady
	stateClosed // failed or lost
)

// conn is one connection of a loop, and only touched by it. An idle one has no buffers.
type conn struct {
	fd        int32
	index     int32 // within its loop
	id        uint32
	state     connState
	wantWrite bool   // the poller reports when the socket takes bytes again
	rest      []byte // the start of a frame whose end has not arrived
	pending   []byte // what the socket did not take
	startedNS int64  // when it was dialed
}

// keep stores what is left of a read.
func (c *conn) keep(left []byte) {
	if len(left) == 0 {
		if len(c.rest) > 0 {
			c.rest = c.rest[:0]
		}
		return
	}
	c.rest = append(c.rest[:0], left...)
}

// nextFrame cuts the first frame off b for the hot path: n is the number of bytes that it takes, 0 when it is not all there, and -1 when
// it is no frame of this protocol. The checks are those of protocol.Split.
func nextFrame(b []byte, maxFrame int) (cmd protocol.Command, request uint32, n int) {
	if len(b) < protocol.HeaderSize {
		return 0, 0, 0
	}
	_ = b[11]
	n = 4 + int(uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3]))
	if n < protocol.HeaderSize || n > maxFrame || b[4] != protocol.Version || b[5] != 0 {
		return 0, 0, -1
	}
	if len(b) < n {
		return 0, 0, 0
	}
	cmd = protocol.Command(uint16(b[6])<<8 | uint16(b[7]))
	return cmd, uint32(b[8])<<24 | uint32(b[9])<<16 | uint32(b[10])<<8 | uint32(b[11]), n
}
