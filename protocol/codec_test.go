package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
)

// checkDecoder holds a decoder against what every decoder must do with any bytes at all; the fuzz targets use it, too. It returns whether
// the bytes were taken.
func checkDecoder(t testing.TB, fresh func() Body, data []byte) bool {
	t.Helper()
	in := bytes.Clone(data)
	m, alias := fresh(), fresh()
	err, aliasErr := Unmarshal(in, m), UnmarshalAlias(in, alias)
	if !bytes.Equal(in, data) {
		t.Fatalf("% x: the decoder wrote to its input", data)
	}
	if !reflect.DeepEqual(err, aliasErr) || err == nil && !reflect.DeepEqual(m, alias) {
		t.Fatalf("% x: Unmarshal and UnmarshalAlias do not agree: %v, %v", data, err, aliasErr)
	}
	if held, bound := footprint(reflect.ValueOf(m).Elem()), heldBound(len(data)); held > bound {
		t.Fatalf("% x: %d bytes are held after %d bytes of input, want at most %d", data, held, len(data), bound)
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeBadFrame && e.Code != CodeInvalidArgument || e.Message == "" {
			t.Fatalf("% x: the error is %#v", data, err)
		}
		return false
	}
	b := AppendBody(nil, m)
	again := fresh()
	if err := Unmarshal(b, again); err != nil || !reflect.DeepEqual(m, again) {
		t.Fatalf("% x: decoded, it encodes to % x, which decodes to\n%s, not to\n%s: %v", data, b, bodyJSON(again), bodyJSON(m), err)
	}
	return true
}

// heldBound is the most that a decoded value may hold on to. A list of structs can be large next to its input, one byte for each
// element, but has at most MaxSeqs of them (with MaxReactions in each); strings and numbers in lists take 16 bytes for each of the input.
func heldBound(input int) int {
	perElement := int(reflect.TypeFor[Message]().Size() + reflect.TypeFor[Conversation]().Size() + MaxReactions*reflect.TypeFor[Reaction]().Size())
	return 17*input + 2*perElement*min(input, MaxSeqs)
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	f() // pools are filled
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestBombs: what is large only by its own word costs nothing.
func TestBombs(t *testing.T) {
	ff := []byte{0xff, 0xff, 0xff, 0xff}
	heads := map[string][]byte{
		"array32": {0xdd}, "map32": {0xdf}, "str32": {0xdb}, "bin32": {0xc6}, "ext32": {0xc9},
	}
	deep := append(bytes.Repeat([]byte{0x91}, 50_000), 0xc0)
	deepMaps := append(bytes.Repeat([]byte{0x81, 0xc0}, 50_000), 0xc0)
	wide := bytes.Repeat(append([]byte{0xdd}, ff...), 10_000)
	for _, c := range allBodies() {
		bombs := map[string][]byte{
			"50,000 arrays for the body": deep, "50,000 arrays in an extra element": extra(c, deep), "50,000 maps in an extra element": extra(c, deepMaps),
			"10,000 array32 in an extra element": extra(c, wide),
		}
		for name, head := range heads {
			bombs[name+" for the body"] = concat(head, ff)
			bombs[name+" in an extra element"] = extra(c, concat(head, ff))
			bombs[name+" of 1 GiB in an extra element"] = extra(c, concat(head, []byte{0x40, 0, 0, 0}))
		}
		for _, l := range leaves(typeOf(c.fresh())) {
			for name, head := range heads {
				bombs[name+" in "+l.String()] = l.encode(t, c, msgpack.RawMessage(concat(head, ff)))
			}
			bombs["50,000 arrays in "+l.String()] = l.encode(t, c, msgpack.RawMessage(deep))
		}
		for name, b := range bombs {
			var err error
			got := allocated(func() { err = Unmarshal(b, c.fresh()) })
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeBadFrame {
				t.Errorf("%s, %s: %v, want bad_frame", c.name, name, err)
			}
			if got > 16<<10 {
				t.Errorf("%s, %s: %d bytes allocated for %d bytes", c.name, name, got, len(b))
			}
		}
	}
}

// extra is a body with one element more than it has fields.
func extra(c command, element []byte) []byte {
	n := typeOf(c.fresh()).NumField()
	return concat([]byte{0xdc, 0, byte(n + 1)}, bytes.Repeat([]byte{0xc0}, n), element)
}

// leaf is a field of a body, or of an element of one of its lists: the positions that lead to it, and its type. Position -1 is an element
// of a list.
type leaf struct {
	path  []int
	names []string
	typ   reflect.Type
}

func (l leaf) String() string { return strings.Join(l.names, ".") }

func (l leaf) name() string { return l.names[len(l.names)-1] }

// leaves are all fields of a body, at any depth, with the lists themselves.
func leaves(t reflect.Type) []leaf {
	var list []leaf
	for i := range t.NumField() {
		f := t.Field(i)
		list = append(list, under(leaf{[]int{i}, []string{snake(f.Name)}, f.Type})...)
	}
	return list
}

func under(l leaf) []leaf {
	list := []leaf{l}
	t := l.typ
	inner := l
	switch {
	case t == bytesType:
		return list
	case t.Kind() == reflect.Slice:
		inner = leaf{append(slices.Clone(l.path), -1), append(slices.Clone(l.names), "element"), t.Elem()}
		if t.Elem().Kind() != reflect.Struct {
			return append(list, inner)
		}
	case t.Kind() == reflect.Pointer:
		inner.typ = t.Elem()
	default:
		return list
	}
	for _, sub := range leaves(inner.typ) {
		list = append(list, leaf{append(slices.Clone(inner.path), sub.path...), append(slices.Clone(inner.names), sub.names...), sub.typ})
	}
	return list
}

// encode is a body of nothing but the one field.
func (l leaf) encode(t testing.TB, c command, value any) []byte {
	t.Helper()
	for i := len(l.path) - 1; i >= 0; i-- {
		list := make([]any, max(l.path[i], 0)+1)
		list[len(list)-1] = value
		value = list
	}
	return libraryEncode(t, value)
}

// limits are the longest values of every str and bin, by type and field, then by field alone.
var limits = map[string]int{
	"Hello.token": HandshakeMaxBody, "token": 1024, "cursor": 1024, "next_cursor": 1024,
	"device_id": MaxDeviceID, "sdk": 1024, "session_id": 1024, "epoch": 1024, "message": 1024, "op": 1024,
	"client_msg_id": MaxClientMsgID, "server_msg_id": 1024, "conversation_id": maxConversationID, "conversation_ids": maxConversationID,
	"target": MaxIDLen, "sender": MaxIDLen, "user": MaxIDLen, "user_id": MaxIDLen, "user_ids": MaxIDLen, "mentions": MaxIDLen, "users": MaxIDLen,
	"draft": MaxDraft, "title": 1024, "avatar": 1024, "nickname": 1024, "reaction": MaxReactionLen,
	"content": maxBin, "data": maxBin, "extra": maxBin,
}

// lengths are the most elements of every list.
var lengths = map[string]int{
	"messages": MaxSeqs, "conversations": MaxSeqs, "seqs": MaxSeqs, "ReadersReply.user_ids": MaxSeqs,
	"user_ids": MaxArray, "mentions": MaxArray, "conversation_ids": MaxArray, "events": MaxArray, "states": MaxArray, "profiles": MaxArray,
	"reactions": MaxReactions, "users": MaxReactors,
}

func bound(table map[string]int, typ, name string) (int, bool) {
	if n, ok := table[typ+"."+name]; ok {
		return n, true
	}
	n, ok := table[name]
	return n, ok
}

// TestBounds takes every field of every body to its bounds and past them, and gives it values of every other type.
func TestBounds(t *testing.T) {
	for _, c := range allBodies() {
		for _, l := range leaves(typeOf(c.fresh())) {
			t.Run(c.name+"/"+l.String(), func(t *testing.T) { checkBounds(t, c, l) })
		}
	}
}

func checkBounds(t *testing.T, c command, l leaf) {
	field := l.name()
	if field == "element" {
		field = l.names[len(l.names)-2]
	}
	typ := typeOf(c.fresh()).Name()
	takes := func(v any) { expect(t, c, l, v, 0, field) }
	refuses := func(v any) { expect(t, c, l, v, CodeInvalidArgument, field) }
	others := map[string]any{"int": 1, "str": "s", "bin": []byte("b"), "bool": true, "array": []any{}, "map": map[string]any{}, "float": 1.5}
	takes(nil)
	switch kind := l.typ.Kind(); {
	case l.typ == bytesType, kind == reflect.String:
		n, ok := bound(limits, typ, field)
		if !ok {
			t.Fatalf("no limit is known for %s.%s", typ, field)
		}
		delete(others, "str")
		if l.typ == bytesType {
			takes(strings.Repeat("x", 70_000))
			takes(bytes.Repeat([]byte{0xff}, 70_000))
			delete(others, "bin")
		} else {
			takes(strings.Repeat("x", n))
			refuses(strings.Repeat("x", n+1))
			refuses("\xc3\x28")
			refuses(string([]byte{0xed, 0xa0, 0x80})) // half a surrogate pair
		}
	case kind == reflect.Bool:
		takes(true)
		delete(others, "bool")
	case kind == reflect.Int64:
		takes(int64(MaxInt))
		takes(int64(-MaxInt))
		refuses(int64(MaxInt + 1))
		refuses(int64(-MaxInt - 1))
		refuses(uint64(1<<64 - 1))
		refuses(int64(-1 << 63))
		delete(others, "int")
	case kind == reflect.Slice:
		n, ok := bound(lengths, typ, field)
		if !ok {
			t.Fatalf("no length is known for %s.%s", typ, field)
		}
		takes(make([]any, n))
		refuses(make([]any, n+1))
		delete(others, "array")
	case kind == reflect.Pointer:
		delete(others, "array")
	default: // unsigned
		most := uint64(1)<<(8*l.typ.Size()) - 1
		if l.typ.Size() == 8 {
			most = MaxInt
		}
		takes(most)
		refuses(most + 1)
		refuses(uint64(1<<64 - 1))
		refuses(uint64(1 << 63))
		refuses(-1)
		refuses(int64(-1 << 63))
		delete(others, "int")
	}
	for _, v := range others {
		expect(t, c, l, v, CodeBadFrame, field)
	}
}

// expect decodes a body of the one field: it must have the value, or be refused with the field's name.
func expect(t *testing.T, c command, l leaf, value any, code ErrorCode, field string) {
	t.Helper()
	b := l.encode(t, c, value)
	m := c.fresh()
	err := Unmarshal(b, m)
	shown := short(value)
	if code != 0 {
		var e *Error
		if !errors.As(err, &e) || e.Code != code || !strings.HasPrefix(e.Message, field+" ") && !namesStruct(l, e) {
			t.Errorf("%s: %v, want %v", shown, err, code)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", shown, err)
		return
	}
	got := at(wire(reflect.ValueOf(m)), l.path)
	switch want := value.(type) {
	case nil:
	case string:
		if s, ok := got.(string); ok && s != want || !ok && string(got.([]byte)) != want {
			t.Errorf("%s: got %s", shown, short(got))
		}
	case []byte:
		if !bytes.Equal(got.([]byte), want) {
			t.Errorf("%s: got %s", shown, short(got))
		}
	case []any:
		if len(got.([]any)) != len(want) {
			t.Errorf("%d elements of %d", len(got.([]any)), len(want))
		}
	default:
		if short(got) != shown {
			t.Errorf("%s: got %s", shown, short(got))
		}
	}
}

func short(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%.40q", v)
	case []byte:
		return fmt.Sprintf("%.40x", v)
	case []any:
		return fmt.Sprintf("%d elements", len(v))
	}
	return fmt.Sprint(v)
}

// namesStruct: where an array stands for a struct, the message names the kind of it.
func namesStruct(l leaf, e *Error) bool {
	return l.typ.Kind() == reflect.Pointer && strings.HasSuffix(e.Message, "is not an array")
}

func at(v any, path []int) any {
	for _, i := range path {
		v = v.([]any)[max(i, 0)]
	}
	return v
}

// TestGreatestBin: the bound of a bin is beyond that of any frame, but it is there.
func TestGreatestBin(t *testing.T) {
	m := Signal{Data: make([]byte, maxBin)}
	var got Signal
	if err := UnmarshalAlias(AppendBody(nil, &m), &got); err != nil || len(got.Data) != maxBin {
		t.Fatal(err)
	}
	m.Data = append(m.Data, 0)
	if err := UnmarshalAlias(AppendBody(nil, &m), &got); !errors.Is(err, &Error{Code: CodeInvalidArgument}) {
		t.Fatalf("%v for a bin of %d bytes", err, len(m.Data))
	}
}

// TestDamaged gives every decoder every golden body, its own and all others: cut at every byte, with every byte changed, and with
// random damage.
func TestDamaged(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	bodies := goldenBodies(t)
	for _, c := range allBodies() {
		for _, b := range bodies {
			checkDecoder(t, c.fresh, b)
		}
	}
	for cmd, list := range ownBodies(t) {
		fresh := lookUp(t, cmd).fresh
		for _, b := range list {
			for cut := 1; cut < len(b); cut++ {
				if checkDecoder(t, fresh, b[:cut]) {
					t.Fatalf("command %d: %d of %d bytes are taken for a body: % x", cmd, cut, len(b), b)
				}
			}
			damage(t, r, fresh, b)
		}
	}
}

func damage(t *testing.T, r *rand.Rand, fresh func() Body, b []byte) {
	t.Helper()
	const most = 400 // bytes that are changed one by one, for long bodies the head and random ones
	for n := range min(len(b), most) {
		i := n
		if n > most/2 && len(b) > most {
			i = r.IntN(len(b))
		}
		for range 8 {
			d := slices.Clone(b)
			d[i] = byte(r.Uint32())
			checkDecoder(t, fresh, d)
			d[r.IntN(len(d))] = everyHead[r.IntN(len(everyHead))]
			checkDecoder(t, fresh, d)
		}
	}
}

// everyHead are the first bytes of msgpack values that hold or announce something.
var everyHead = []byte{0x80, 0x81, 0x90, 0x91, 0x9f, 0xa0, 0xa1, 0xbf, 0xc0, 0xc1, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcf, 0xd0, 0xd3, 0xd4, 0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xe0, 0xff}

// ownBodies are the golden bodies of each command, the lenient ones too.
func ownBodies(t testing.TB) map[Command][][]byte {
	t.Helper()
	own := map[Command][][]byte{}
	for _, file := range append(slices.Clone(chapters), "lenient.json") {
		for _, v := range load[vector](t, file) {
			own[v.Command] = append(own[v.Command], unhex(t, v.Frame)[HeaderSize:])
		}
	}
	return own
}

// goldenBodies are all of them, with those that must be refused.
func goldenBodies(t testing.TB) [][]byte {
	t.Helper()
	var list [][]byte
	for _, own := range ownBodies(t) {
		list = append(list, own...)
	}
	for _, v := range load[invalid](t, "invalid.json") {
		if v.Where == "body" {
			list = append(list, unhex(t, v.Bytes)[HeaderSize:])
		}
	}
	for _, v := range load[part](t, "data.json") {
		list = append(list, unhex(t, v.Bytes))
	}
	return list
}

// TestUnmarshalCopiesStrings: only UnmarshalAlias leaves strings in the input.
func TestUnmarshalCopiesStrings(t *testing.T) {
	b := AppendBody(nil, &Signal{Target: "bob", Data: []byte("data"), Sender: "alice"})
	var copied, aliased Signal
	if err := errors.Join(Unmarshal(b, &copied), UnmarshalAlias(b, &aliased)); err != nil {
		t.Fatal(err)
	}
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	if copied.Target != "bob" || copied.Sender != "alice" {
		t.Error("Unmarshal aliases strings")
	}
	if aliased.Target != "BOB" || aliased.Sender != "ALICE" || string(aliased.Data) != "DATA" || string(copied.Data) != "DATA" {
		t.Error("bin, or a string of UnmarshalAlias, was copied")
	}
	if cap(copied.Data) != len(copied.Data) {
		t.Error("appending to a bin would write over what follows it")
	}
}

// TestWriter: each way to write a value makes the same bytes as the library, on both sides of every border.
func TestWriter(t *testing.T) {
	check := func(got func(*writer), want any) {
		t.Helper()
		w := writers.New().(*writer)
		got(w)
		if lib := libraryEncode(t, want); !bytes.Equal(w.buf, lib) {
			t.Errorf("%.40v: %.40x, the library has %.40x", want, w.buf, lib)
		}
	}
	for shift := range 64 {
		for _, n := range []uint64{1<<shift - 1, 1 << shift, 1<<shift + 1} {
			check(func(w *writer) { w.uint(n) }, n)
			check(func(w *writer) { w.int(int64(n)) }, int64(n))
			check(func(w *writer) { w.int(-int64(n)) }, -int64(n))
		}
	}
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536, 70_000} {
		s := strings.Repeat("s", n)
		check(func(w *writer) { w.str(s) }, s)
		check(func(w *writer) { w.bin([]byte(s)) }, []byte(s))
		check(func(w *writer) { w.uints(make([]uint64, n)) }, make([]uint64, n))
		check(func(w *writer) { w.strs(make([]string, n)) }, make([]string, n))
	}
	check(func(w *writer) { w.bin(nil) }, []byte{})
	check(func(w *writer) { w.bool(true) }, true)
	check(func(w *writer) { w.bool(false) }, false)
	check(func(w *writer) { w.nil() }, nil)
}

// TestTextAlwaysFits: whatever an ERROR or a KICK quotes, the peer can read it.
func TestTextAlwaysFits(t *testing.T) {
	for _, s := range []string{
		"", "plain", strings.Repeat("x", maxText), strings.Repeat("x", maxText+1), strings.Repeat("ü", maxText), strings.Repeat("x", maxText-1) + "ü",
		"\xff\xfe", strings.Repeat("\xff", 3000), strings.Repeat("日", 1000), "cut \xe6\x97",
	} {
		var e Error
		if err := Unmarshal(AppendBody(nil, &Error{Message: s}), &e); err != nil {
			t.Errorf("%.20q: %v", s, err)
		}
		var k Kick
		if err := Unmarshal(AppendBody(nil, &Kick{Message: s}), &k); err != nil || k.Message != e.Message {
			t.Errorf("%.20q: %v", s, err)
		}
		if utf8.ValidString(s) && !strings.HasPrefix(s, e.Message) || utf8.ValidString(s) && len(s) <= maxText && e.Message != s {
			t.Errorf("%.20q became %.20q", s, e.Message)
		}
		if len(s) > maxText && len(e.Message) < maxText-3 && len(strings.ToValidUTF8(s, "?")) > maxText {
			t.Errorf("%.20q was cut to %d bytes", s, len(e.Message))
		}
	}
}

// TestAllocations: the hot path allocates nothing.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop what they hold at random under the race detector")
	}
	send, dst := AppendBody(nil, &benchSend), make([]byte, 0, 1024)
	var m Send
	for name, f := range map[string]func(){
		"UnmarshalAlias of SEND": func() { m = Send{}; _ = UnmarshalAlias(send, &m) },
		"AppendBody of Message":  func() { dst = AppendBody(dst[:0], &benchMessage) },
		"AppendFrame of SEND_ACK": func() {
			dst = AppendFrame(dst[:0], CmdSendAck, 1, &benchAck)
		},
		"Split": func() { _, _, _ = Split(dst, DefaultMaxBody) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestConcurrent: the pools are shared; bodies are not mixed up.
func TestConcurrent(t *testing.T) {
	done := make(chan error)
	for i := range 8 {
		go func() {
			for n := range 500 {
				want := Position{ConversationID: fmt.Sprintf("p:%d:%d", i, n), Seq: uint64(i * n)}
				var got Position
				b := AppendBody(nil, &want)
				if err := Unmarshal(b, &got); err != nil || got != want {
					done <- fmt.Errorf("%+v became %+v: %w", want, got, err)
					return
				}
				if Unmarshal(b[:len(b)-1], &got) == nil {
					done <- errors.New("a short body was taken")
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
