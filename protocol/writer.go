package protocol

import (
	"strings"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

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

func (w *writer) bool(v bool) { w.must(w.enc.EncodeBool(v)) }
func (w *writer) nil()        { w.must(w.enc.EncodeNil()) }

// What is short, which is nearly everything, is written here, by the same rules: it halves the time of a body. The rest goes
// through the encoder.

func (w *writer) array(n int) {
	if n <= int(msgpcode.FixedArrayMask) {
		w.buf = append(w.buf, msgpcode.FixedArrayLow|byte(n))
		return
	}
	w.must(w.enc.EncodeArrayLen(n))
}

func (w *writer) str(s string) {
	if len(s) <= int(msgpcode.FixedStrMask) {
		w.buf = append(w.buf, msgpcode.FixedStrLow|byte(len(s)))
		w.buf = append(w.buf, s...)
		return
	}
	w.must(w.enc.EncodeString(s))
}

// text writes words for people, which may quote anything: what a reader would refuse is replaced or cut off, so that the peer can
// always read why.
func (w *writer) text(s string) {
	if len(s) > maxText || !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "?")
	}
	if len(s) > maxText {
		end := maxText
		for !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	w.str(s)
}

func (w *writer) uint(n uint64) {
	if n <= uint64(msgpcode.PosFixedNumHigh) {
		w.buf = append(w.buf, byte(n))
		return
	}
	w.must(w.enc.EncodeUint(n))
}

func (w *writer) int(n int64) {
	if n >= 0 {
		w.uint(uint64(n))
		return
	}
	w.must(w.enc.EncodeInt(n))
}

// bin writes an empty bin for nil: to a decoder the two are the same.
func (w *writer) bin(p []byte) {
	if len(p) <= 0xff {
		w.buf = append(w.buf, msgpcode.Bin8, byte(len(p)))
	} else {
		w.must(w.enc.EncodeBytesLen(len(p)))
	}
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
