package bench

import (
	"encoding/binary"
	"math/bits"
)

// Every message has other content, which no compressor can shrink, and which the receiver can make again from the
// message's id and so compare byte for byte. One multiplication makes 8 bytes.
const (
	step  = 0xa0761d6478bd642f // wyrand's constants
	twist = 0xe7037ed1a0b428db
)

func word(state uint64) uint64 {
	hi, lo := bits.Mul64(state, state^twist)
	return hi ^ lo
}

// seedOf spreads a sender and the number of its message over 64 bits.
func seedOf(sender uint32, index uint64) uint64 {
	return word(uint64(sender)<<40 ^ index ^ 0x9e3779b97f4a7c15)
}

// fill writes the content of seed over p.
func fill(p []byte, seed uint64) {
	for len(p) >= 8 {
		seed += step
		binary.LittleEndian.PutUint64(p, word(seed))
		p = p[8:]
	}
	if len(p) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], word(seed+step))
		copy(p, last[:])
	}
}

// filled tells whether p is what fill would write.
func filled(p []byte, seed uint64) bool {
	var diff uint64
	for len(p) >= 8 {
		seed += step
		diff |= binary.LittleEndian.Uint64(p) ^ word(seed)
		p = p[8:]
	}
	if len(p) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], word(seed+step))
		for i := range p {
			diff |= uint64(p[i] ^ last[i])
		}
	}
	return diff == 0
}
