package embedded

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// TestLayoutGolden pins the bytes: stores that were written with them are out there. A change of the layout is a new layout number.
func TestLayoutGolden(t *testing.T) {
	run := &storage.Run{
		Conversation: "p:a:b", First: 258, Messages: make([]*protocol.Message, 3), LogTimeMS: 1_700_000_000_000, ActiveMS: 1_700_000_000_001,
		Before: storage.Counts{300, 7}, After: storage.Counts{302, 7},
	}
	row := &storage.View{ReadSeq: 258, ReadCount: 4, MinSeq: 1, Stamp: 1000}
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"run", appendHead(appendKey(nil, talkSpace, "p:a:b", runMark), run, 1000), "6d703a613a6201fffffffffffffefd0103e80780d095ffbc31ae0207020001"},
		{"row key", rowKey(nil, "p:a:b", "b"), "6d703a613a620062"},
		{"row", appendRow(nil, row), "01e80782020401"},
		{"list", listKey(nil, "b", "p:a:b"), "6c6200703a613a62"},
		{"device", deviceKey(nil, "b", "phone"), "64620070686f6e65"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is %s, want %s", c.name, got, c.want)
		}
	}
}

func TestLayoutRoundTrip(t *testing.T) {
	for _, h := range []head{
		{first: 1, count: 1, stamp: 1},
		{first: math.MaxUint64, count: 1, stamp: math.MaxUint64, logTimeMS: math.MaxInt64, activeMS: math.MaxInt64},
		{first: 100, count: 4096, stamp: 7, logTimeMS: 5, activeMS: 99, before: storage.Counts{math.MaxUint64, 3}, after: storage.Counts{2, 3}},
	} {
		run := &storage.Run{
			First: h.first, Messages: make([]*protocol.Message, h.count), LogTimeMS: h.logTimeMS, ActiveMS: h.activeMS, Before: h.before, After: h.after,
		}
		b := appendHead(nil, run, h.stamp)
		if got, ok := parseHead(b); !ok || got != h || len(b) > maxHead {
			t.Errorf("%+v became %+v (%t) in %d bytes", h, got, ok, len(b))
		}
		for n := range b {
			if _, ok := parseHead(b[:n]); ok {
				t.Errorf("%d of %d bytes are taken for a head", n, len(b))
			}
		}
	}
	v := storage.View{Conversation: "c", ReadSeq: 1 << 40, ReadCount: 3, MinSeq: 1, Stamp: 9}
	b := appendRow(nil, &v)
	if got, ok := parseRow(b, "c"); !ok || got != v {
		t.Errorf("%+v became %+v", v, got)
	}
	for n := range b {
		if _, ok := parseRow(b[:n], "c"); ok {
			t.Errorf("%d of %d bytes are taken for a row", n, len(b))
		}
	}
}

// TestKeyOrder: the newest run first, after the rows, and all of a conversation together.
func TestKeyOrder(t *testing.T) {
	at := func(conversation string, seq uint64) []byte { return seekRun(nil, conversation, seq) }
	keys := [][]byte{
		rowKey(nil, "p:a:b", "a"), rowKey(nil, "p:a:b", "b"), at("p:a:b", math.MaxUint64), at("p:a:b", 300), at("p:a:b", 256), at("p:a:b", 255), at("p:a:b", 1),
		rowKey(nil, "p:a:b+", "b+"), at("p:a:b+", 9), at("p:a:bb", 9), at("p:aa:b", 1),
	}
	if !slices.IsSortedFunc(keys, bytes.Compare) {
		t.Fatalf("%q", keys)
	}
}

// TestDamage: what does not have the known layout is an error, not something else.
func TestDamage(t *testing.T) {
	s, err := Open(Options{Dir: "data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	set := func(key, value []byte) {
		t.Helper()
		if err := s.db.Set(key, value, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	m := &protocol.Message{ConversationID: "p:a:b", Seq: 5, Sender: "a"}
	run := &storage.Run{Conversation: "p:a:b", First: 5, Messages: []*protocol.Message{m}}
	key := appendHead(appendKey(nil, talkSpace, "p:a:b", runMark), run, 1)
	set(key, protocol.AppendBody(nil, m))
	read := func(from uint64) error {
		return s.Read(t.Context(), storage.Range{Conversation: "p:a:b", From: from, To: 9, NewestFirst: true}, func(*storage.Slot) bool { return true })
	}
	if err := read(5); err != nil {
		t.Fatal(err)
	}
	if err := read(1); !errors.Is(err, errDamaged) {
		t.Errorf("seqs 1 to 4 are missing: %v", err)
	}
	if err := s.Recent(t.Context(), "p:a:b", func(storage.RecentID) bool { return true }); !errors.Is(err, errDamaged) {
		t.Errorf("a message without an id: %v", err)
	}
	set(key, []byte("garbage"))
	if err := read(5); !errors.Is(err, errDamaged) {
		t.Errorf("a damaged message: %v", err)
	}
	if err := s.db.Delete(key, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	key[len("mp:a:b")+1+8] = layout + 1
	set(key, nil)
	if _, err := s.State(t.Context(), "p:a:b"); !errors.Is(err, errDamaged) {
		t.Errorf("a run of another layout: %v", err)
	}
	set(rowKey(nil, "p:a:b", "a"), []byte{layout + 1, 1, 1, 1, 1})
	if _, err := s.Entries(t.Context(), "a", []string{"p:a:b"}); !errors.Is(err, errDamaged) {
		t.Errorf("a row of another layout: %v", err)
	}
	if _, _, err := s.RaiseRead(t.Context(), "a", "p:a:b", 1, 1); !errors.Is(err, errDamaged) {
		t.Errorf("raising a row of another layout: %v", err)
	}
}
