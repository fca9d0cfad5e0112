package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The structs of the bodies have their fields in the order of the wire and with the names of docs/protocol.md. What is in this file
// gets everything else out of that by reflection, independently of the hand-written code: positional values for the plain
// library, JSON for the golden vectors, signatures for the document.

var errPlain = errors.New("plain")

func goFiles(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range all {
		if !strings.HasSuffix(f, "_test.go") {
			files = append(files, f)
		}
	}
	return files
}

func typeOf(b Body) reflect.Type { return reflect.TypeOf(b).Elem() }

// snake writes a field's Go name as the document does: ClientMsgID is client_msg_id.
func snake(name string) string {
	name = strings.ReplaceAll(name, "IDs", "Ids")
	upper := func(i int) bool { return i >= 0 && i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	var b strings.Builder
	for i := range len(name) {
		startsWord := upper(i) && i > 0 && (!upper(i-1) || i+1 < len(name) && !upper(i+1))
		if startsWord {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(name[i : i+1]))
	}
	return b.String()
}

var bytesType = reflect.TypeFor[[]byte]()

// fieldsOf is how many fields of a struct are there: all, but of a Message that was neither edited nor reacted to all but the last two.
func fieldsOf(v reflect.Value) int {
	n := v.NumField()
	if v.Type() == reflect.TypeFor[Message]() && v.FieldByName("EditMS").IsZero() && v.FieldByName("Reactions").Len() == 0 {
		return n - 2
	}
	return n
}

// wire is the value as the plain library reads it, with every field: a struct is an array.
func wire(v reflect.Value) any { return values(v, reflect.Value.NumField) }

// encoded is the value as an encoder writes it.
func encoded(v reflect.Value) any { return values(v, fieldsOf) }

func values(v reflect.Value, fields func(reflect.Value) int) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return values(v.Elem(), fields)
	case reflect.Struct:
		list := make([]any, fields(v))
		for i := range list {
			list[i] = values(v.Field(i), fields)
		}
		return list
	case reflect.Slice:
		if v.Type() == bytesType {
			return append([]byte{}, v.Bytes()...)
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = values(v.Index(i), fields)
		}
		return list
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Int64:
		return v.Int()
	default:
		return int64(v.Uint())
	}
}

// plain makes what the library decoded comparable: it keeps the width of an integer, which means nothing here.
func plain(v any) any {
	switch x := v.(type) {
	case []any:
		for i := range x {
			x[i] = plain(x[i])
		}
		return x
	case nil, string, bool, []byte:
		return x
	}
	r := reflect.ValueOf(v)
	if r.CanInt() {
		return r.Int()
	}
	return int64(r.Uint())
}

// toJSON writes a value the way that the golden vectors have it: objects with the fields in the order of the wire, bin as hex.
func toJSON(b *bytes.Buffer, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			b.WriteString("null")
			return
		}
		toJSON(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		for i := range fieldsOf(v) {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(b, "%q: ", snake(v.Type().Field(i).Name))
			toJSON(b, v.Field(i))
		}
		b.WriteByte('}')
	case reflect.Slice:
		if v.Type() == bytesType {
			fmt.Fprintf(b, "%q", hex.EncodeToString(v.Bytes()))
			return
		}
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteString(", ")
			}
			toJSON(b, v.Index(i))
		}
		b.WriteByte(']')
	default:
		b.Write(marshalJSON(v.Interface()))
	}
}

func marshalJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// fromJSON is the way back.
func fromJSON(raw json.RawMessage, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		if string(raw) == "null" {
			return nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return fromJSON(raw, v.Elem())
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return err
		}
		if len(fields) != fieldsOf(v) && len(fields) != v.NumField() { // v is zero
			return fmt.Errorf("%s has %d fields, want %d", v.Type(), len(fields), v.NumField())
		}
		for i := range len(fields) {
			name := snake(v.Type().Field(i).Name)
			if err := fromJSON(fields[name], v.Field(i)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	case reflect.Slice:
		if v.Type() == bytesType {
			return hexJSON(raw, v)
		}
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
			return err
		}
		v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
		for i := range list {
			if err := fromJSON(list[i], v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	default:
		return json.Unmarshal(raw, v.Addr().Interface())
	}
}

func hexJSON(raw json.RawMessage, v reflect.Value) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || s == "" {
		return err
	}
	p, err := hex.DecodeString(s)
	v.SetBytes(p)
	return err
}

// footprint is how many bytes a decoded value holds on to beyond its own struct.
func footprint(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return int(v.Type().Elem().Size()) + footprint(v.Elem())
	case reflect.Struct:
		n := 0
		for i := range v.NumField() {
			n += footprint(v.Field(i))
		}
		return n
	case reflect.Slice:
		if v.Type() == bytesType {
			return 0 // aliases the input
		}
		n := v.Cap() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			n += footprint(v.Index(i))
		}
		return n
	case reflect.String:
		return v.Len()
	}
	return 0
}

// signature is a body as docs/protocol.md lists it: its fields by position.
func signature(t reflect.Type) string {
	var fields []string
	for i := range t.NumField() {
		fields = append(fields, snake(t.Field(i).Name)+" "+typeName(t.Field(i).Type))
	}
	if len(fields) == 0 {
		return "(empty)"
	}
	return strings.Join(fields, ", ")
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return "nil | " + typeName(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[Message]() || t == reflect.TypeFor[Conversation]() || t == reflect.TypeFor[Event]() {
			return t.Name()
		}
		return "[" + signature(t) + "]"
	case reflect.Slice:
		if t == bytesType {
			return "bin"
		}
		return "[" + typeName(t.Elem()) + "]"
	case reflect.String:
		return "str"
	case reflect.Bool:
		return "bool"
	case reflect.Int64:
		return "i64"
	default:
		return fmt.Sprintf("u%d", 8*t.Size())
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{
		"ClientMsgID": "client_msg_id", "UserIDs": "user_ids", "SDK": "sdk", "ServerTimeMS": "server_time_ms",
		"HeartbeatS": "heartbeat_s", "ReconnectWithinMS": "reconnect_within_ms", "On": "on", "UpToSeq": "up_to_seq",
	} {
		if got := snake(name); got != want {
			t.Errorf("%s becomes %s, want %s", name, got, want)
		}
	}
}

// testdata reads a golden file.
func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
