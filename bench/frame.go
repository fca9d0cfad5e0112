package bench

import (
	"encoding/binary"

	"github.com/parley-im/parley/protocol"
)

// A message's client_msg_id says everything that its receiver has to know, so that no table of messages is needed:
//
//	letter 0        6            16        24
//	       +--------+------------+---------+
//	       | sender | index      | time µs |    big-endian, 4 bits a letter, A to P
//	       +--------+------------+---------+
//
// sender is the number of the connection that sends, index counts its messages from 0, and time is when the message was sent, or
// should have been in an open loop, on the run's clock. Time wraps after 71 minutes, which is no matter for a difference.
const idLen = 24

const (
	letters   = 0x4141414141414141 // 'A', eight times
	nibbles   = 0x0f0f0f0f0f0f0f0f
	indexMask = 1<<40 - 1

	// MaxConns is the most connections of one run.
	MaxConns = 1 << 24
)

// msgID is a client_msg_id taken apart.
type msgID struct {
	sender uint32
	timeUS uint32
	index  uint64
}

// spread turns 32 bits into 8 letters, without a loop.
func spread(v uint32) uint64 {
	x := uint64(v)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & nibbles
	return x + letters
}

// gather is the reverse of spread.
func gather(x uint64) (v uint32, ok bool) {
	x -= letters
	if x&^nibbles != 0 {
		return 0, false
	}
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16), true
}

// put writes the id over the first idLen bytes of p.
func (id msgID) put(p []byte) {
	_ = p[idLen-1]
	binary.BigEndian.PutUint64(p, spread(id.sender<<8|uint32(id.index>>32)))
	binary.BigEndian.PutUint64(p[8:], spread(uint32(id.index)))
	binary.BigEndian.PutUint64(p[16:], spread(id.timeUS))
}

// parseID reads what put wrote.
func parseID(p []byte) (id msgID, ok bool) {
	if len(p) != idLen {
		return id, false
	}
	a, ok1 := gather(binary.BigEndian.Uint64(p))
	b, ok2 := gather(binary.BigEndian.Uint64(p[8:]))
	c, ok3 := gather(binary.BigEndian.Uint64(p[16:]))
	return msgID{sender: a >> 8, index: uint64(a&0xff)<<32 | uint64(b), timeUS: c}, ok1 && ok2 && ok3
}

// template is the SEND frame of one sender. Of the frames that it makes only the request id, the client_msg_id and the
// content differ, and all of these have a fixed place.
type template struct {
	head []byte // up to the content
	size int    // of the content
	tail []byte // after it
}

// idAt is where the client_msg_id stands: after the header, the array's head and the string's.
const idAt = protocol.HeaderSize + 2

// newTemplate makes the frame of messages of size bytes to target.
func newTemplate(target string, size int) template {
	marker := make([]byte, idLen)
	msgID{}.put(marker)
	frame := protocol.AppendFrame(nil, protocol.CmdSend, 0, &protocol.Send{
		ClientMsgID: string(marker), Kind: protocol.KindDirect, Target: target,
		ContentType: protocol.ContentApp, Content: make([]byte, size),
	})
	tail := 2 // flags 0 and no mentions
	head := len(frame) - tail - size
	return template{head: frame[:head:head], size: size, tail: frame[head+size:]}
}

// append adds a frame to dst.
func (t *template) append(dst []byte, request uint32, id msgID) []byte {
	start := len(dst)
	dst = append(dst, t.head...)
	frame := dst[start:]
	binary.BigEndian.PutUint32(frame[8:], request)
	id.put(frame[idAt:])
	start = len(dst)
	dst = grow(dst, t.size)
	fill(dst[start:], seedOf(id.sender, id.index))
	return append(dst, t.tail...)
}

// grow makes dst n bytes longer; what they hold is undefined.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst[:len(dst)+n]
	}
	return append(dst, make([]byte, n)...)
}
