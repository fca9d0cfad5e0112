package protocol

import (
	"encoding/binary"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// MessageHead is what a store needs of a message that it does not decode. The slices alias the encoding.
type MessageHead struct {
	Seq         uint64
	ServerMsgID []byte
	Sender      []byte
	ContentType uint16
	Flags       uint32
	Status      Status
}

// CutMessage cuts the first message off b, which holds messages one after the other as AppendBody encodes them. message and rest
// alias b; nothing is allocated. The error is an *Error with bad_frame when b does not begin with a message.
func CutMessage(b []byte) (head MessageHead, message, rest []byte, err error) {
	s := scanner{b: b}
	fields := s.arrayLen()
	for i := 0; i < fields && !s.bad; i++ {
		switch i {
		case 1:
			head.Seq = s.uint()
		case 2:
			head.ServerMsgID = s.bytes()
		case 4:
			head.Sender = s.bytes()
		case 5:
			head.ContentType = uint16(s.uint())
		case 8:
			head.Status = Status(s.uint())
		case 11:
			head.Flags = uint32(s.uint())
		default:
			s.skip()
		}
	}
	if s.bad {
		return MessageHead{}, nil, nil, &Error{Code: CodeBadFrame, Message: "stored message is cut short"}
	}
	return head, b[:s.pos:s.pos], b[s.pos:], nil
}

// scanner walks over msgpack values without decoding them. Once bad, it stays where it is.
type scanner struct {
	b   []byte
	pos int
	bad bool
}

// code takes the first byte of a value.
func (s *scanner) code() byte {
	if s.bad || s.pos >= len(s.b) {
		s.bad = true
		return msgpcode.Nil
	}
	s.pos++
	return s.b[s.pos-1]
}

// number takes an n-byte number.
func (s *scanner) number(n int) uint64 {
	if len(s.b)-s.pos < n {
		s.bad = true
		return 0
	}
	p := s.b[s.pos : s.pos+n]
	s.pos += n
	switch n {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(p))
	case 4:
		return uint64(binary.BigEndian.Uint32(p))
	default:
		return binary.BigEndian.Uint64(p)
	}
}

func (s *scanner) advance(n uint64) {
	if n > uint64(len(s.b)-s.pos) {
		s.bad = true
		return
	}
	s.pos += int(n)
}

func (s *scanner) arrayLen() int {
	switch c := s.code(); {
	case c >= msgpcode.FixedArrayLow && c <= msgpcode.FixedArrayHigh:
		return int(c & msgpcode.FixedArrayMask)
	case c == msgpcode.Array16:
		return int(s.number(2))
	}
	s.bad = true
	return 0
}

// uint takes an unsigned integer.
func (s *scanner) uint() uint64 {
	switch c := s.code(); {
	case c <= msgpcode.PosFixedNumHigh:
		return uint64(c)
	case c >= msgpcode.Uint8 && c <= msgpcode.Uint64:
		return s.number(1 << (c - msgpcode.Uint8))
	}
	s.bad = true
	return 0
}

// bytes takes a str or a bin.
func (s *scanner) bytes() []byte {
	c := s.code()
	if !msgpcode.IsString(c) && !msgpcode.IsBin(c) {
		s.bad = true
		return nil
	}
	s.pos--
	start := s.pos
	s.skip()
	if s.bad {
		return nil
	}
	return s.b[start+headLen(c) : s.pos : s.pos]
}

// headLen is how many bytes stand before the payload of a str or bin.
func headLen(c byte) int {
	switch c {
	case msgpcode.Str8, msgpcode.Bin8:
		return 2
	case msgpcode.Str16, msgpcode.Bin16:
		return 3
	case msgpcode.Str32, msgpcode.Bin32:
		return 5
	}
	return 1
}

// skip passes over one value and all that is within it. Each step takes at least a byte, so a length that lies ends at the end of b.
func (s *scanner) skip() {
	for values := uint64(1); values > 0 && !s.bad; values-- {
		values += s.skipOne()
	}
}

// skipOne passes over a value, or over the head of one that holds others: it returns how many.
func (s *scanner) skipOne() uint64 {
	switch c := s.code(); {
	case c <= msgpcode.PosFixedNumHigh, c >= msgpcode.NegFixedNumLow:
	case c >= msgpcode.FixedStrLow && c <= msgpcode.FixedStrHigh:
		s.advance(uint64(c & msgpcode.FixedStrMask))
	case c >= msgpcode.FixedArrayLow && c <= msgpcode.FixedArrayHigh:
		return uint64(c & msgpcode.FixedArrayMask)
	case c >= msgpcode.FixedMapLow && c <= msgpcode.FixedMapHigh:
		return 2 * uint64(c&msgpcode.FixedMapMask)
	default:
		return s.skipLong(c)
	}
	return 0
}

// skipLong is skipOne for values whose first byte is c0 to df.
func (s *scanner) skipLong(c byte) uint64 {
	switch c {
	case msgpcode.Nil, msgpcode.False, msgpcode.True:
	case msgpcode.Uint8, msgpcode.Int8:
		s.advance(1)
	case msgpcode.Uint16, msgpcode.Int16, msgpcode.FixExt1:
		s.advance(2)
	case msgpcode.FixExt2:
		s.advance(3)
	case msgpcode.Uint32, msgpcode.Int32, msgpcode.Float:
		s.advance(4)
	case msgpcode.FixExt4:
		s.advance(5)
	case msgpcode.Uint64, msgpcode.Int64, msgpcode.Double:
		s.advance(8)
	case msgpcode.FixExt8:
		s.advance(9)
	case msgpcode.FixExt16:
		s.advance(17)
	case msgpcode.Str8, msgpcode.Bin8:
		s.advance(s.number(1))
	case msgpcode.Str16, msgpcode.Bin16:
		s.advance(s.number(2))
	case msgpcode.Str32, msgpcode.Bin32:
		s.advance(s.number(4))
	case msgpcode.Ext8:
		s.advance(s.number(1) + 1)
	case msgpcode.Ext16:
		s.advance(s.number(2) + 1)
	case msgpcode.Ext32:
		s.advance(s.number(4) + 1)
	case msgpcode.Array16:
		return s.number(2)
	case msgpcode.Array32:
		return s.number(4)
	case msgpcode.Map16:
		return 2 * s.number(2)
	case msgpcode.Map32:
		return 2 * s.number(4)
	default:
		s.bad = true
	}
	return 0
}
