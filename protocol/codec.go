package protocol

import (
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// Body is the body of a frame: a msgpack array whose fields are written and read by hand, by position.
type Body interface {
	encode(w *writer)
	decode(r *reader)
}

// MaxInt is the largest integer that the protocol carries: 2^53 - 1, so that every language can hold it.
const MaxInt = 1<<53 - 1

// Empty is the body of commands that have no fields: no bytes at all. Its decoder takes, and passes over, the fields that a later
// version may append.
type Empty struct{}

func (*Empty) encode(*writer) {}

func (*Empty) decode(r *reader) { r.close(r.open("body")) }

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
