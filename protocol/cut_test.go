package protocol

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func cutSample(r *rand.Rand, seq uint64) Message {
	m := Message{
		ConversationID: DirectConversation("alice", "bob"), Seq: seq, ServerMsgID: NewMessageID("p:alice:bob", "alice", "1").String(),
		ClientMsgID: strings.Repeat("c", r.IntN(64)), Sender: "alice", ContentType: uint16(r.IntN(1 << 16)),
		Content: make([]byte, r.IntN(70_000)), SendTimeMS: int64(r.Uint64N(MaxInt)), Flags: r.Uint32(), Run: 1,
		IsRead: r.IntN(2) == 0, Status: Status(r.IntN(4)), ChangeSeq: r.Uint64N(MaxInt),
	}
	if r.IntN(2) == 0 {
		m.EditMS = int64(r.Uint64N(MaxInt))
	}
	for range r.IntN(3) {
		m.Reactions = append(m.Reactions, Reaction{Reaction: "+1", Count: r.Uint32(), Mine: true, Users: names(r.IntN(20))})
	}
	for range r.IntN(20) {
		m.Mentions = append(m.Mentions, strings.Repeat("u", r.IntN(64)))
	}
	if r.IntN(2) == 0 {
		m.Revoke = &Revoke{User: "bob", Role: RoleOwner, TimeMS: -1}
	}
	return m
}

func TestCutMessage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []byte
	var each [][]byte
	var want []Message
	for i := range 50 {
		m := cutSample(r, r.Uint64N(MaxInt)>>uint(i))
		b := AppendBody(nil, &m)
		want, each, all = append(want, m), append(each, b), append(all, b...)
	}
	for i, m := range want {
		head, message, rest, err := CutMessage(all)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(message, each[i]) {
			t.Fatalf("message %d is cut at %d bytes, want %d", i, len(message), len(each[i]))
		}
		if head.Seq != m.Seq || string(head.ServerMsgID) != m.ServerMsgID || string(head.Sender) != m.Sender ||
			head.ContentType != m.ContentType || head.Flags != m.Flags {
			t.Fatalf("message %d: head %+v of %+v", i, head, m)
		}
		all = rest
	}
	if len(all) != 0 {
		t.Fatalf("%d bytes are left", len(all))
	}
}

// TestCutMessageLater: a message of a later version has more fields, of any type; they belong to it.
func TestCutMessageLater(t *testing.T) {
	m := cutSample(rand.New(rand.NewPCG(3, 4)), 7)
	m.EditMS, m.Reactions = 0, nil
	b := AppendBody(nil, &m)
	later := append([]byte{0xdc, 0, 22}, b[1:]...) // array16 of 15 + 7
	later = append(later, 0xcb, 1, 2, 3, 4, 5, 6, 7, 8)
	later = append(later, 0x82, 0xa1, 'k', 0x91, 0xc0, 0xc3, 0xff)
	later = append(later, 0xc7, 3, 9, 1, 2, 3)
	later = append(later, 0xd8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	later = append(later, 0xde, 0, 1, 0xd9, 1, 'x', 0xdd, 0, 0, 0, 2, 0xcf, 0, 0, 0, 0, 0, 0, 0, 1, 0xd0, 0x80)
	later = append(later, 0xd6, 1, 1, 2, 3, 4)
	later = append(later, 0xca, 1, 2, 3, 4)
	head, message, rest, err := CutMessage(append(later, b...))
	if err != nil || head.Seq != 7 || !bytes.Equal(message, later) || !bytes.Equal(rest, b) {
		t.Fatalf("head %+v, %d bytes and %d left, %v", head, len(message), len(rest), err)
	}
}

func TestCutMessageDamaged(t *testing.T) {
	m := Message{ConversationID: "p:a:b", Seq: 1, Sender: "a", Content: []byte("hello"), Mentions: []string{"b"}, Run: 1}
	b := AppendBody(nil, &m)
	for n := range b {
		if _, _, _, err := CutMessage(b[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for a message", n, len(b))
		}
	}
	bombs := [][]byte{{0x80}, {0xdd, 0xff, 0xff, 0xff, 0xff}, {0x91, 0xdd, 0xff, 0xff, 0xff, 0xff}, {0x91, 0xc1}, {0x91, 0xc6, 0xff, 0xff, 0xff, 0xff},
		append([]byte{0x91}, bytes.Repeat([]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, 1000)...)}
	for _, bomb := range bombs {
		if _, _, _, err := CutMessage(bomb); err == nil {
			t.Fatalf("% x is taken for a message", bomb[:1])
		}
	}
}

func BenchmarkCutMessage(b *testing.B) {
	m := Message{
		ConversationID: DirectConversation("user-0001", "user-0002"), Seq: 12345, ServerMsgID: NewMessageID("", "", "").String(),
		ClientMsgID: "0123456789abcdef", Sender: "user-0001", ContentType: 1, Content: make([]byte, 128), SendTimeMS: 1_700_000_000_000, Run: 1,
	}
	wire := AppendBody(nil, &m)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := CutMessage(wire); err != nil {
			b.Fatal(err)
		}
	}
}
