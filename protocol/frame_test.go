package protocol

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
)

// goldenStream is every golden frame, one after the other, and where each ends.
func goldenStream(t testing.TB) (b []byte, ends []int) {
	t.Helper()
	for _, file := range append(slices.Clone(chapters), "lenient.json") {
		for _, v := range load[vector](t, file) {
			b = append(b, unhex(t, v.Frame)...)
			ends = append(ends, len(b))
		}
	}
	return b, ends
}

// TestSplitEveryCut cuts the stream at every byte: before the cut come the whole frames before it and nothing else, whatever of the
// next one is there.
func TestSplitEveryCut(t *testing.T) {
	stream, ends := goldenStream(t)
	frame, start := 0, 0 // the frame that the cut falls into, and its first byte
	for cut := range len(stream) + 1 {
		f, n, err := Split(stream[start:cut], DefaultMaxBody)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if cut < ends[frame] {
			if n != 0 || f.Body != nil {
				t.Fatalf("cut at %d: %d bytes of a frame that is not all there", cut, n)
			}
			continue
		}
		if n != ends[frame]-start || !bytes.Equal(f.Body, stream[start+HeaderSize:cut]) {
			t.Fatalf("frame %d: %d bytes, want %d", frame, n, ends[frame]-start)
		}
		if cap(f.Body) != len(f.Body) {
			t.Fatal("appending to a body would write over the next frame")
		}
		start = cut
		frame++
	}
	if frame != len(ends) {
		t.Fatalf("%d frames of %d", frame, len(ends))
	}
}

// TestSplitAnswerIsFinal: however many bytes are there, the answer is either "more" or the one that all bytes give.
func TestSplitAnswerIsFinal(t *testing.T) {
	var inputs [][]byte
	for _, v := range load[invalid](t, "invalid.json") {
		inputs = append(inputs, unhex(t, v.Bytes))
	}
	for _, b := range inputs {
		b = append(slices.Clone(b), bytes.Repeat([]byte{0xff}, 40)...)
		whole, used, wholeErr := Split(b, DefaultMaxBody)
		answered := false
		for cut := range b {
			f, n, err := Split(b[:cut], DefaultMaxBody)
			if n == 0 && err == nil {
				if answered {
					t.Fatalf("% x: with %d bytes the answer is taken back", b, cut)
				}
				continue
			}
			answered = true
			if n != used || (err == nil) != (wholeErr == nil) || f.Header != whole.Header {
				t.Fatalf("% x: with %d bytes %+v, %d, %v; with all %+v, %d, %v", b, cut, f.Header, n, err, whole.Header, used, wholeErr)
			}
			if !reflect.DeepEqual(err, wholeErr) {
				t.Fatalf("% x: with %d bytes %v; with all %v", b, cut, err, wholeErr)
			}
		}
	}
}

// TestSplitDecidesFromTheHeader: an oversized body is refused before any byte of it is there, and nothing is allocated for it.
func TestSplitDecidesFromTheHeader(t *testing.T) {
	for _, c := range []struct {
		maxBody int
		length  uint32
		want    ErrorCode // 0: waits for the body
	}{
		{DefaultMaxBody, 8 + DefaultMaxBody, 0}, {DefaultMaxBody, 9 + DefaultMaxBody, CodeTooLarge}, {DefaultMaxBody, math.MaxUint32, CodeTooLarge},
		{HandshakeMaxBody, 8 + HandshakeMaxBody, 0}, {HandshakeMaxBody, 9 + HandshakeMaxBody, CodeTooLarge},
		{0, 9, CodeTooLarge}, {-1, 9, CodeTooLarge}, {-1, 8, CodeTooLarge}, {math.MinInt32, 8, CodeTooLarge}, {math.MaxInt32, math.MaxUint32, CodeTooLarge},
	} {
		b := header(c.length, Version, 0, CmdSend, 77)
		f, n, err := Split(b, c.maxBody)
		var e *Error
		if c.want == 0 && (n != 0 || err != nil) || c.want != 0 && (!errors.As(err, &e) || e.Code != c.want || n != 0) {
			t.Errorf("length %d with limit %d: %d, %v", c.length, c.maxBody, n, err)
		}
		if f.RequestID != 77 || f.Command != CmdSend {
			t.Errorf("length %d with limit %d: the header is not there for the reply: %+v", c.length, c.maxBody, f.Header)
		}
		if got := allocated(func() { _, _, _ = Split(b, c.maxBody) }); got > 1024 {
			t.Errorf("length %d with limit %d: %d bytes were allocated", c.length, c.maxBody, got)
		}
	}
	if _, n, err := Split(header(8, Version, 0, CmdPing, 1), 0); n != HeaderSize || err != nil {
		t.Errorf("an empty body with limit 0: %d, %v", n, err)
	}
}

func TestAppendFrame(t *testing.T) {
	prefix := []byte("before")
	body := &Position{ConversationID: aliceBob, Seq: 42}
	got := AppendFrame(slices.Clone(prefix), CmdRead, 7, body)
	raw := AppendRawFrame(slices.Clone(prefix), CmdRead, 7, AppendBody(nil, body))
	if !bytes.Equal(got, raw) || !bytes.HasPrefix(got, prefix) {
		t.Fatalf("% x and % x", got, raw)
	}
	if !bytes.Equal(AppendFrame(nil, CmdPing, 2, nil), AppendFrame(nil, CmdPing, 2, &Empty{})) {
		t.Error("nil and Empty make different frames")
	}
	f, n, err := Split(got[len(prefix):], DefaultMaxBody)
	if err != nil || n != len(got)-len(prefix) || f.Command != CmdRead || f.RequestID != 7 {
		t.Fatalf("%+v, %d, %v", f, n, err)
	}
}

// TestAppendPush: a PUSH around messages that are encoded already is the same as one that is encoded in one go.
func TestAppendPush(t *testing.T) {
	for _, n := range []int{0, 1, 2, 15, 16, 100, MaxSeqs, 300} {
		p := &Push{}
		var encoded []byte
		for i := range n {
			m := textMessage()
			m.Seq = uint64(i)
			p.Messages = append(p.Messages, m)
			encoded = AppendBody(encoded, &m)
		}
		got := AppendPush([]byte("x"), 9, n, encoded)
		if want := AppendFrame([]byte("x"), CmdPush, 9, p); !bytes.Equal(got, want) {
			t.Errorf("%d messages: % x, want % x", n, got, want)
		}
	}
}
