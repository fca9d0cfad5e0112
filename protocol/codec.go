package protocol

import (
	"io"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Body is the body of a frame: a msgpack array whose fields are written and read by hand, by position.
type Body interface {
	encode(w *writer)
	decode(r *reader)
}

const (
	// MaxInt is the largest integer that the protocol carries: 2^53 - 1, so that every language can hold it.
	MaxInt = 1<<53 - 1

	maxNesting = 16 // arrays and maps within each other, in elements that are skipped
)

// AppendBody appends the encoding of body to dst. Any goroutine may call it.
func AppendBody(dst []byte, body Body) []byte {
	w := writers.Get().(*writer)
	w.buf = dst
	body.encode(w)
	dst = w.buf
	w.buf = nil
	writers.Put(w)
	return dst
}

// Unmarshal decodes a frame's body into m, which should be zero. An empty body leaves m as it is. Strings are copied; bin
// fields alias b. The error is an *Error: bad_frame when b is not an array of the right types, invalid_argument, with the field's
// name, when a value is out of its range. Nothing is allocated on the word of a length alone: a length is first held
// against the bytes that are there and against the field's bound.
func Unmarshal(b []byte, m Body) error { return unmarshal(b, m, false) }

// UnmarshalAlias is Unmarshal with strings that alias b as well: b must never change afterwards, and lives as long as any of them.
func UnmarshalAlias(b []byte, m Body) error { return unmarshal(b, m, true) }

func unmarshal(b []byte, m Body, alias bool) error {
	if len(b) == 0 {
		return nil
	}
	r := readers.Get().(*reader)
	r.b, r.pos, r.left, r.alias, r.err = b, 0, 1, alias, nil
	m.decode(r)
	if r.err == nil && r.pos != len(b) {
		r.fail("bytes after the array")
	}
	err := r.err
	r.b, r.err = nil, nil
	readers.Put(r)
	if err != nil {
		return err
	}
	return nil
}

var writers = sync.Pool{New: func() any {
	w := &writer{}
	w.enc = msgpack.NewEncoder(w)
	return w
}}

var readers = sync.Pool{New: func() any {
	r := &reader{}
	r.dec = msgpack.NewDecoder(r)
	return r
}}

// writer appends msgpack values to buf through the library's encoder. Writing to memory cannot fail, so the encoder's errors
// can only be faults of ours.
type writer struct {
	buf []byte
	enc *msgpack.Encoder
}

// Write implements io.Writer for the encoder.
func (w *writer) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	return len(p), nil
}

// WriteByte implements io.ByteWriter, without which the encoder would wrap the writer and allocate for each byte.
func (w *writer) WriteByte(c byte) error {
	w.buf = append(w.buf, c)
	return nil
}

func (w *writer) must(err error) {
	if err != nil {
		panic("protocol: encoding into memory failed: " + err.Error())
	}
}

func (w *writer) array(n int)   { w.must(w.enc.EncodeArrayLen(n)) }
func (w *writer) str(s string)  { w.must(w.enc.EncodeString(s)) }
func (w *writer) uint(n uint64) { w.must(w.enc.EncodeUint(n)) }
func (w *writer) int(n int64)   { w.must(w.enc.EncodeInt(n)) }
func (w *writer) bool(v bool)   { w.must(w.enc.EncodeBool(v)) }
func (w *writer) nil()          { w.must(w.enc.EncodeNil()) }

// fixed writes n in nine bytes whatever its value, so that it can be patched in place.
func (w *writer) fixed(n uint64) { w.must(w.enc.EncodeUint64(n)) }

// bin writes an empty bin for nil: to a decoder the two are the same.
func (w *writer) bin(p []byte) {
	w.must(w.enc.EncodeBytesLen(len(p)))
	w.buf = append(w.buf, p...)
}

func (w *writer) strs(list []string) {
	w.array(len(list))
	for _, s := range list {
		w.str(s)
	}
}

func (w *writer) uints(list []uint64) {
	w.array(len(list))
	for _, n := range list {
		w.uint(n)
	}
}

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

func (r *reader) arrayLen(field string) int {
	n, err := r.dec.DecodeArrayLen()
	if err != nil {
		r.fail(field + " is not an array")
		return 0
	}
	if n > len(r.b)-r.pos { // an element is at least one byte
		r.fail(field + " claims more elements than there are bytes")
		return 0
	}
	return n
}

func isUintCode(c byte) bool {
	return c <= msgpcode.PosFixedNumHigh || c >= msgpcode.Uint8 && c <= msgpcode.Int64 || c >= msgpcode.NegFixedNumLow
}

func (r *reader) int(field string, low, high int64) int64 {
	if !r.next(field) {
		return 0
	}
	if c := r.b[r.pos]; c <= msgpcode.PosFixedNumHigh {
		r.pos++
		return r.inRange(field, int64(c), low, high)
	} else if !isUintCode(c) {
		r.fail(field + " is not an integer")
		return 0
	} else if c == msgpcode.Uint64 && len(r.b)-r.pos > 1 && r.b[r.pos+1] >= 0x80 {
		r.refuse(field, "is out of range") // would wrap around in an int64
		return 0
	}
	n, err := r.dec.DecodeInt64()
	if err != nil {
		r.fail(field + " is cut short")
		return 0
	}
	return r.inRange(field, n, low, high)
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

// bytes reads a bin or a str without copying it.
func (r *reader) bytes(field string, limit int) []byte {
	if !r.next(field) {
		return nil
	}
	n, err := r.dec.DecodeBytesLen()
	if err != nil || n < 0 {
		r.fail(field + " is not a string")
		return nil
	}
	if n > len(r.b)-r.pos {
		r.fail(field + " is cut short")
		return nil
	}
	if n > limit {
		r.refuse(field, "is too long")
		return nil
	}
	p := r.b[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return p
}

// str reads a str, which must be UTF-8: it may be sent on to clients in languages that stop at anything else.
func (r *reader) str(field string, limit int) string {
	p := r.bytes(field, limit)
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

// skip passes over one value of any type. The library's own Skip goes as deep as the input asks; this one does not.
func (r *reader) skip(depth int) {
	if depth == 0 {
		r.fail("nested too deep")
		return
	}
	if r.pos >= len(r.b) {
		r.fail("array is cut short")
		return
	}
	n := r.container()
	if n == 0 && r.err == nil {
		return
	}
	for ; n > 0 && r.err == nil; n-- {
		r.skip(depth - 1)
	}
}

// container passes over a value that holds no others, or over the head of one that does: n is how many follow.
func (r *reader) container() (n int) {
	var err error
	switch c := r.b[r.pos]; {
	case c >= msgpcode.FixedArrayLow && c <= msgpcode.FixedArrayHigh, c == msgpcode.Array16, c == msgpcode.Array32:
		return r.arrayLen("array")
	case c >= msgpcode.FixedMapLow && c <= msgpcode.FixedMapHigh, c == msgpcode.Map16, c == msgpcode.Map32:
		n, err = r.dec.DecodeMapLen()
		if n > (len(r.b)-r.pos)/2 {
			r.fail("map claims more elements than there are bytes")
			return 0
		}
		n *= 2
	case msgpcode.IsString(c), msgpcode.IsBin(c):
		var size int
		size, err = r.dec.DecodeBytesLen()
		r.advance(size)
	case msgpcode.IsExt(c):
		var size int
		_, size, err = r.dec.DecodeExtHeader()
		r.advance(size)
	default:
		err = r.dec.Skip() // a number, bool or nil
	}
	if err != nil {
		r.fail("array is cut short")
		return 0
	}
	return n
}

func (r *reader) advance(n int) {
	if n < 0 || n > len(r.b)-r.pos {
		r.fail("value is cut short")
		return
	}
	r.pos += n
}
