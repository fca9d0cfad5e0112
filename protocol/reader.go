package protocol

import (
	"io"
	"unicode/utf8"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

const maxNesting = 16 // arrays and maps within each other, in elements that are skipped

// reader takes fields off a msgpack array in order. The first error sticks, and everything read after it is zero, so that a decode
// function is a plain list of its fields. It is the library decoder's source; string and bin payloads are taken
// straight from b.
type reader struct {
	b     []byte
	pos   int
	left  int // elements left in the array that is open
	alias bool
	err   *Error
	dec   *msgpack.Decoder
}

// Read implements io.Reader for the decoder.
func (r *reader) Read(p []byte) (int, error) {
	if r.pos >= len(r.b) {
		return 0, io.EOF
	}
	n := copy(p, r.b[r.pos:])
	r.pos += n
	return n, nil
}

// ReadByte implements io.ByteScanner, without which the decoder would buffer.
func (r *reader) ReadByte() (byte, error) {
	if r.pos >= len(r.b) {
		return 0, io.EOF
	}
	c := r.b[r.pos]
	r.pos++
	return c, nil
}

// UnreadByte implements io.ByteScanner.
func (r *reader) UnreadByte() error {
	if r.pos == 0 {
		return io.ErrNoProgress
	}
	r.pos--
	return nil
}

// fail records that the bytes are not of this protocol.
func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = &Error{Code: CodeBadFrame, Message: what}
	}
}

// refuse records that a field is out of its range.
func (r *reader) refuse(field, why string) {
	if r.err == nil {
		r.err = &Error{Code: CodeInvalidArgument, Message: field + " " + why}
	}
}

// next tells whether there is a value to read for the next field: false when the array is shorter, when the value is
// nil, or after an error.
func (r *reader) next(field string) bool {
	if r.err != nil || r.left == 0 {
		return false
	}
	r.left--
	if r.pos >= len(r.b) {
		r.fail(field + " is cut short")
		return false
	}
	if r.b[r.pos] == msgpcode.Nil {
		r.pos++
		return false
	}
	return true
}

// open enters the array that is the next value; its elements are then read until close(end) is called with what open
// returned. A nil or missing array reads as an empty one.
func (r *reader) open(field string) (end int) {
	if !r.next(field) {
		end, r.left = r.left, 0
		return end
	}
	end = r.left
	r.left = r.arrayLen(field)
	return end
}

// close skips the elements that open's array has beyond those known here.
func (r *reader) close(end int) {
	for r.err == nil && r.left > 0 {
		r.left--
		r.skip(maxNesting)
	}
	r.left = end
}

// list is open for an array of any number of elements up to limit.
func (r *reader) list(field string, limit int) (n, end int) {
	end = r.open(field)
	if r.left > limit {
		r.refuse(field, "has too many elements")
		r.left = 0
	}
	return r.left, end
}

func (r *reader) arrayLen(field string) (n int) {
	if c := r.b[r.pos]; msgpcode.IsFixedArray(c) {
		n = int(c & msgpcode.FixedArrayMask)
		r.pos++
	} else {
		var err error
		if n, err = r.dec.DecodeArrayLen(); err != nil {
			r.fail(field + " is not an array")
			return 0
		}
	}
	if n < 0 || n > len(r.b)-r.pos { // an element is at least one byte; below 0: over an int of 32 bits
		r.fail(field + " claims more elements than there are bytes")
		return 0
	}
	return n
}

func (r *reader) int(field string, low, high int64) int64 {
	if !r.next(field) {
		return 0
	}
	var n int64
	switch c := r.b[r.pos]; {
	case c <= msgpcode.PosFixedNumHigh:
		r.pos++
		n = int64(c)
	case c >= msgpcode.Uint8 && c <= msgpcode.Uint64:
		n = r.unsigned(field, 1<<(c-msgpcode.Uint8))
	case c >= msgpcode.Int8 && c <= msgpcode.Int64, c >= msgpcode.NegFixedNumLow:
		var err error
		if n, err = r.dec.DecodeInt64(); err != nil {
			r.fail(field + " is cut short")
		}
	default:
		r.fail(field + " is not an integer")
	}
	return r.inRange(field, n, low, high)
}

// unsigned reads a code and size bytes after it. What is over MaxInt comes back as MaxInt + 1, which every range refuses; the
// library's DecodeInt64 would let it wrap around to below 0.
func (r *reader) unsigned(field string, size int) int64 {
	if size >= len(r.b)-r.pos {
		r.fail(field + " is cut short")
		return 0
	}
	var n uint64
	for _, c := range r.b[r.pos+1 : r.pos+1+size] {
		n = n<<8 | uint64(c)
	}
	r.pos += 1 + size
	return int64(min(n, MaxInt+1))
}

func (r *reader) inRange(field string, n, low, high int64) int64 {
	if n < low || n > high {
		r.refuse(field, "is out of range")
		return 0
	}
	return n
}

func (r *reader) u8(field string) uint8   { return uint8(r.int(field, 0, 1<<8-1)) }
func (r *reader) u16(field string) uint16 { return uint16(r.int(field, 0, 1<<16-1)) }
func (r *reader) u32(field string) uint32 { return uint32(r.int(field, 0, 1<<32-1)) }
func (r *reader) u64(field string) uint64 { return uint64(r.int(field, 0, MaxInt)) }
func (r *reader) i64(field string) int64  { return r.int(field, -MaxInt, MaxInt) }

func (r *reader) bool(field string) bool {
	if !r.next(field) {
		return false
	}
	v, err := r.dec.DecodeBool()
	if err != nil {
		r.fail(field + " is not a bool")
	}
	return v
}

// bytes reads a bin or a str without copying it. An empty one is nil.
func (r *reader) bytes(field string, limit int) []byte {
	if !r.next(field) {
		return nil
	}
	return r.payload(field, limit)
}

// payload reads what follows the head of a bin or a str, and the head.
func (r *reader) payload(field string, limit int) []byte {
	n, err := r.payloadLen()
	if err != nil {
		r.fail(field + " is not a string, or cut short")
		return nil
	}
	if n < 0 || n > len(r.b)-r.pos { // below 0: over an int of 32 bits
		r.fail(field + " is cut short")
		return nil
	}
	if n > limit {
		r.refuse(field, "is too long")
		return nil
	}
	if n == 0 {
		return nil
	}
	p := r.b[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return p
}

func (r *reader) payloadLen() (int, error) {
	c := r.b[r.pos]
	if msgpcode.IsFixedString(c) {
		r.pos++
		return int(c & msgpcode.FixedStrMask), nil
	}
	if (c == msgpcode.Bin8 || c == msgpcode.Str8) && r.pos+1 < len(r.b) {
		r.pos += 2
		return int(r.b[r.pos-1]), nil
	}
	return r.dec.DecodeBytesLen()
}

// str reads a str, which must be UTF-8: it may be sent on to clients in languages that stop at anything else. A bin is no str.
func (r *reader) str(field string, limit int) string {
	if !r.next(field) {
		return ""
	}
	if msgpcode.IsBin(r.b[r.pos]) {
		r.fail(field + " is a bin, not a str")
		return ""
	}
	p := r.payload(field, limit)
	if len(p) == 0 {
		return ""
	}
	if !utf8.Valid(p) {
		r.refuse(field, "is not UTF-8")
		return ""
	}
	if r.alias {
		return unsafe.String(&p[0], len(p))
	}
	return string(p)
}

func (r *reader) strs(field string, limit, each int) []string {
	n, end := r.list(field, limit)
	var list []string
	if n > 0 {
		list = make([]string, 0, n)
	}
	for r.err == nil && r.left > 0 {
		list = append(list, r.str(field, each))
	}
	r.close(end)
	return list
}

func (r *reader) uints(field string, limit int) []uint64 {
	n, end := r.list(field, limit)
	var list []uint64
	if n > 0 {
		list = make([]uint64, 0, n)
	}
	for r.err == nil && r.left > 0 {
		list = append(list, r.u64(field))
	}
	r.close(end)
	return list
}

// skip passes over one value of any type, and what is within it.
func (r *reader) skip(depth int) {
	if depth == 0 {
		r.fail("nested too deep")
		return
	}
	s := scanner{b: r.b, pos: r.pos}
	n := s.skipOne()
	if s.bad || n > uint64(len(s.b)-s.pos) {
		r.fail("array is cut short")
		return
	}
	r.pos = s.pos
	for ; n > 0 && r.err == nil; n-- {
		r.skip(depth - 1)
	}
}
