package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// The golden vectors in testdata are for whoever writes an SDK in any language; docs/protocol.md says how to use them. They are made
// from the values in vectors_source_test.go by
//
//	go test ./protocol -run TestVectors -update
//
// and a change of any existing one is a change of the protocol.
var update = flag.Bool("update", false, "write the golden vectors in testdata anew")

// vector is a whole frame and what is in it.
type vector struct {
	Name        string          `json:"name"`
	Note        string          `json:"note,omitempty"`
	Command     Command         `json:"command"`
	CommandName string          `json:"command_name"`
	RequestID   uint32          `json:"request_id"`
	Body        json.RawMessage `json:"body"`
	Frame       string          `json:"frame"`
}

// part is the encoding of something that travels within a bin field.
type part struct {
	Name  string          `json:"name"`
	Of    string          `json:"of"`
	Type  string          `json:"type"`
	Body  json.RawMessage `json:"body"`
	Bytes string          `json:"bytes"`
}

// invalid is bytes that must be refused, or wait for more.
type invalid struct {
	Name      string `json:"name"`
	Note      string `json:"note,omitempty"`
	Bytes     string `json:"bytes"`
	MaxBody   int    `json:"max_body"`
	Where     string `json:"where"` // frame: from the header; body: when it is decoded
	Error     string `json:"error"` // the code's name, or "incomplete"
	Code      int    `json:"code"`
	RequestID uint32 `json:"request_id"` // that ERROR echoes
}

// stream is bytes that hold several frames, however they arrive.
type stream struct {
	Name   string        `json:"name"`
	Bytes  string        `json:"bytes"`
	Frames []streamFrame `json:"frames"`
	Rest   int           `json:"rest"` // bytes at the end that are no whole frame yet
}

type streamFrame struct {
	Command   Command `json:"command"`
	RequestID uint32  `json:"request_id"`
	Body      string  `json:"body"`
}

func bodyJSON(b Body) json.RawMessage {
	if _, ok := b.(*Empty); ok || b == nil {
		return json.RawMessage("null")
	}
	var buf bytes.Buffer
	toJSON(&buf, reflect.ValueOf(b))
	return buf.Bytes()
}

// golden writes or checks a file of vectors, one a line.
func golden[V any](t *testing.T, file string, made []V) []V {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("[\n")
	for i := range made {
		b.Write(marshalJSON(made[i]))
		if i < len(made)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", file), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored := testdata(t, file)
	if !bytes.Equal(stored, b.Bytes()) {
		t.Errorf("%s is not what its source makes; if the protocol was meant to change, run with -update", file)
	}
	return load[V](t, file)
}

func load[V any](t testing.TB, file string) []V {
	t.Helper()
	var list []V
	if err := json.Unmarshal(testdata(t, file), &list); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(list) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return list
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// chapters are the files whose vectors hold in both directions.
var chapters = []string{"session.json", "errors.json", "messages.json", "events.json", "conversations.json", "profiles.json"}

func TestVectors(t *testing.T) {
	covered := map[Command]bool{}
	for _, file := range chapters {
		t.Run(file, func(t *testing.T) {
			var made []vector
			for _, s := range sources[file] {
				made = append(made, vector{
					Name: s.name, Note: s.note, Command: s.cmd, CommandName: s.cmd.String(), RequestID: s.id, Body: bodyJSON(s.body),
					Frame: hex.EncodeToString(AppendFrame(nil, s.cmd, s.id, s.body)),
				})
			}
			for _, v := range golden(t, file, made) {
				covered[v.Command] = true
				t.Run(v.Name, func(t *testing.T) { checkBothWays(t, v) })
			}
		})
	}
	for _, c := range commands {
		if !covered[c.cmd] {
			t.Errorf("%s has no golden vector", c.name)
		}
	}
}

// checkBothWays reads a vector as an SDK author would: its values must encode to its frame, and its frame decode to its values; and the
// plain library must agree about both.
func checkBothWays(t *testing.T, v vector) {
	frame := unhex(t, v.Frame)
	value := bodyOf(t, v)
	if got := AppendFrame(nil, v.Command, v.RequestID, value); !bytes.Equal(got, frame) {
		t.Errorf("values encode to\n%x, want\n%x", got, frame)
	}
	f, n, err := Split(frame, DefaultMaxBody)
	if err != nil || n != len(frame) || f.Command != v.Command || f.RequestID != v.RequestID {
		t.Fatalf("split: %+v, %d of %d bytes, %v", f.Header, n, len(frame), err)
	}
	checkDecode(t, f.Body, value)
	if _, ok := value.(*Empty); ok {
		if len(f.Body) != 0 {
			t.Error("the body is not empty")
		}
		return
	}
	checkLibrary(t, f.Body, value)
}

func bodyOf(t *testing.T, v vector) Body {
	t.Helper()
	value := lookUp(t, v.Command).fresh()
	if string(v.Body) != "null" {
		if err := fromJSON(v.Body, reflect.ValueOf(value).Elem()); err != nil {
			t.Fatal(err)
		}
	}
	return value
}

func checkDecode(t *testing.T, b []byte, want Body) {
	t.Helper()
	for name, decode := range map[string]func([]byte, Body) error{"Unmarshal": Unmarshal, "UnmarshalAlias": UnmarshalAlias} {
		got := reflect.New(typeOf(want)).Interface().(Body)
		if err := decode(b, got); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%s, want\n%s", name, bodyJSON(got), bodyJSON(want))
		}
	}
}

// checkLibrary holds our bytes against the plain library: it decodes them to the same values, and encodes the values to the same bytes.
func checkLibrary(t *testing.T, b []byte, want Body) {
	t.Helper()
	values := encoded(reflect.ValueOf(want))
	var decoded []any
	if err := msgpack.Unmarshal(b, &decoded); err != nil {
		t.Fatal(err)
	}
	if got := plain(decoded); !reflect.DeepEqual(got, values) {
		t.Errorf("the library decodes\n%v, want\n%v", got, values)
	}
	if got := libraryEncode(t, values); !bytes.Equal(got, b) {
		t.Errorf("the library encodes\n%x, want\n%x", got, b)
	}
}

func libraryEncode(t testing.TB, v any) []byte {
	t.Helper()
	var buf bytes.Buffer
	e := msgpack.NewEncoder(&buf)
	e.UseCompactInts(true)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestVectorsLenient: what a decoder must take although no encoder of ours makes it.
func TestVectorsLenient(t *testing.T) {
	var made []vector
	for _, s := range lenientSources(t) {
		made = append(made, vector{
			Name: s.name, Note: s.note, Command: s.cmd, CommandName: s.cmd.String(), RequestID: s.id, Body: bodyJSON(s.body),
			Frame: hex.EncodeToString(AppendRawFrame(nil, s.cmd, s.id, s.raw)),
		})
	}
	for _, v := range golden(t, "lenient.json", made) {
		t.Run(v.Name, func(t *testing.T) {
			frame := unhex(t, v.Frame)
			f, n, err := Split(frame, DefaultMaxBody)
			if err != nil || n != len(frame) {
				t.Fatalf("split: %d of %d bytes, %v", n, len(frame), err)
			}
			value := bodyOf(t, v)
			if bytes.Equal(AppendBody(nil, value), f.Body) {
				t.Error("this is the ordinary encoding: the vector says nothing")
			}
			checkDecode(t, f.Body, value)
		})
	}
}

// TestVectorsData: arrays that travel in a bin field.
func TestVectorsData(t *testing.T) {
	var made []part
	for _, s := range dataSources {
		made = append(made, part{
			Name: s.name, Of: s.of, Type: typeOf(s.body).Name(), Body: bodyJSON(s.body), Bytes: hex.EncodeToString(AppendBody(nil, s.body)),
		})
	}
	for _, v := range golden(t, "data.json", made) {
		t.Run(v.Name, func(t *testing.T) {
			var value Body
			for _, p := range parts {
				if p.name == v.Type {
					value = p.fresh()
				}
			}
			if err := fromJSON(v.Body, reflect.ValueOf(value).Elem()); err != nil {
				t.Fatal(err)
			}
			b := unhex(t, v.Bytes)
			if got := AppendBody(nil, value); !bytes.Equal(got, b) {
				t.Errorf("values encode to %x, want %x", got, b)
			}
			checkDecode(t, b, value)
			checkLibrary(t, b, value)
		})
	}
}

// TestVectorsInvalid: what must be refused, with which code, and what must wait.
func TestVectorsInvalid(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range golden(t, "invalid.json", invalidSources()) {
		seen[v.Error] = true
		t.Run(v.Name, func(t *testing.T) { checkInvalid(t, v) })
	}
	for _, code := range []string{"incomplete", "bad_frame", "too_large", "unsupported_version", "invalid_argument"} {
		if !seen[code] {
			t.Errorf("there is no vector for %s", code)
		}
	}
}

func checkInvalid(t *testing.T, v invalid) {
	b := unhex(t, v.Bytes)
	f, n, err := Split(b, v.MaxBody)
	if v.Error == "incomplete" {
		if n != 0 || err != nil {
			t.Fatalf("split: %d bytes, %v", n, err)
		}
		return
	}
	if f.RequestID != v.RequestID {
		t.Errorf("request id %d, want %d", f.RequestID, v.RequestID)
	}
	if v.Where == "body" {
		if err != nil || n != len(b) {
			t.Fatalf("split: %d of %d bytes, %v", n, len(b), err)
		}
		err = Unmarshal(f.Body, lookUp(t, f.Command).fresh())
	}
	var e *Error
	if !errors.As(err, &e) || e.Code.String() != v.Error || int(e.Code) != v.Code {
		t.Fatalf("%v, want %s", err, v.Error)
	}
	if v.Where == "frame" && n != 0 {
		t.Errorf("%d bytes were used of a frame that was refused", n)
	}
}

// TestVectorsStreams: several frames in one piece.
func TestVectorsStreams(t *testing.T) {
	for _, v := range golden(t, "streams.json", streamSources()) {
		t.Run(v.Name, func(t *testing.T) {
			b := unhex(t, v.Bytes)
			for i, want := range v.Frames {
				f, n, err := Split(b, DefaultMaxBody)
				if err != nil || n == 0 || f.Command != want.Command || f.RequestID != want.RequestID || hex.EncodeToString(f.Body) != want.Body {
					t.Fatalf("frame %d: %+v, %d bytes, %v", i, f, n, err)
				}
				b = b[n:]
			}
			if _, n, err := Split(b, DefaultMaxBody); n != 0 || err != nil || len(b) != v.Rest {
				t.Fatalf("%d bytes are left, want %d; %d, %v", len(b), v.Rest, n, err)
			}
		})
	}
}
