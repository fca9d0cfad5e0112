package bench

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/parley-im/parley/protocol"
)

func TestMsgIDComesBack(t *testing.T) {
	p := make([]byte, idLen)
	for _, id := range []msgID{
		{}, {sender: MaxConns - 1, index: indexMask, timeUS: 1<<32 - 1}, {sender: 1, index: 2, timeUS: 3}, {sender: 0xabcdef, index: 0x123456789a, timeUS: 0xfedcba98},
	} {
		id.put(p)
		if got, ok := parseID(p); !ok || got != id {
			t.Errorf("%+v came back as %+v, %v from %q", id, got, ok, p)
		}
	}
	msgID{sender: 0xabcdef, index: 0x123456789a, timeUS: 0xfedcba98}.put(p)
	if want := "KLMNOPBCDEFGHIJKPONMLKJI"; string(p) != want {
		t.Errorf("%q, want %q", p, want)
	}
	for i := range p {
		for _, c := range []byte{'A' - 1, 'P' + 1, 0, 0xff} {
			bad := bytes.Clone(p)
			bad[i] = c
			if _, ok := parseID(bad); ok {
				t.Errorf("%q was taken", bad)
			}
		}
	}
	if _, ok := parseID(p[1:]); ok {
		t.Error("a short id was taken")
	}
}

// A patched template is what the protocol's own encoder writes.
func TestTemplateIsASend(t *testing.T) {
	for _, size := range []int{0, 1, 7, 8, 128, 255, 256, 1000, 65000, 70000} {
		tmpl := newTemplate("partner", size)
		var out []byte
		for n := range uint64(3) {
			id := msgID{sender: 77, index: n << 33, timeUS: 5}
			start := len(out)
			out = tmpl.append(out, 0x01020304, id)
			text, content := make([]byte, idLen), make([]byte, size)
			id.put(text)
			fill(content, seedOf(id.sender, id.index))
			want := protocol.AppendFrame(nil, protocol.CmdSend, 0x01020304, &protocol.Send{
				ClientMsgID: string(text), Kind: protocol.KindDirect, Target: "partner", ContentType: protocol.ContentApp, Content: content,
			})
			if !bytes.Equal(out[start:], want) {
				t.Fatalf("size %d: % x\nwant % x", size, out[start:], want)
			}
		}
	}
}

func TestContent(t *testing.T) {
	seen := map[string]bool{}
	for _, size := range []int{1, 7, 8, 9, 128, 131} {
		p := make([]byte, size)
		fill(p, seedOf(1, 2))
		if !filled(p, seedOf(1, 2)) {
			t.Errorf("size %d: its own content is not recognised", size)
		}
		for i := range p {
			p[i] ^= 0x80
			if filled(p, seedOf(1, 2)) {
				t.Errorf("size %d: a change of byte %d goes unnoticed", size, i)
			}
			p[i] ^= 0x80
		}
	}
	p := make([]byte, 16)
	for sender := range uint32(100) {
		for index := range uint64(100) {
			fill(p, seedOf(sender, index))
			seen[string(p)] = true
		}
	}
	if len(seen) != 100*100 {
		t.Errorf("only %d contents of %d messages", len(seen), 100*100)
	}
}

func TestScanAckReadsWhatTheProtocolWrites(t *testing.T) {
	text := make([]byte, idLen)
	msgID{sender: 5, index: 6, timeUS: 7}.put(text)
	for _, seq := range []uint64{0, 1, 127, 128, 255, 256, 65535, 65536, 1 << 32, protocol.MaxInt} {
		m := protocol.SendAck{
			ClientMsgID: string(text), ServerMsgID: "AAAAAAAAAAAAAAAAAAAAAA", ConversationID: "p:a:b", SendTimeMS: 1_700_000_000_000, Seq: seq,
		}
		b := protocol.AppendBody(nil, &m)
		a, ok := scanAck(b)
		if !ok || a.seq != seq || a.id != (msgID{sender: 5, index: 6, timeUS: 7}) {
			t.Errorf("seq %d: %+v, %v", seq, a, ok)
		}
		longer := append([]byte{0x96}, append(b[1:len(b):len(b)], 0xc3)...) // a field of a later version
		if a, ok := scanAck(longer); !ok || a.seq != seq {
			t.Errorf("seq %d and one more field: %+v, %v", seq, a, ok)
		}
		for n := range b {
			if _, ok := scanAck(b[:n]); ok {
				t.Errorf("the first %d of %d bytes were taken", n, len(b))
			}
		}
	}
}

func randomMessage(rnd *rand.Rand) protocol.Message {
	text := make([]byte, idLen)
	msgID{sender: uint32(rnd.IntN(MaxConns)), index: rnd.Uint64() & indexMask, timeUS: rnd.Uint32()}.put(text)
	m := protocol.Message{
		ConversationID: "p:alice:" + string(bytes.Repeat([]byte("b"), 1+rnd.IntN(60))), Seq: rnd.Uint64() >> (11 + rnd.IntN(53)), ServerMsgID: "AAAAAAAAAAAAAAAAAAAAAA",
		ClientMsgID: string(text), Sender: "alice", ContentType: uint16(rnd.IntN(1000)), Content: make([]byte, rnd.IntN(70_000)>>rnd.IntN(17)),
		SendTimeMS: rnd.Int64() >> (11 + rnd.IntN(53)), Flags: rnd.Uint32() >> rnd.IntN(32),
	}
	fill(m.Content, rnd.Uint64())
	switch rnd.IntN(6) { // shapes that only the protocol's decoder takes
	case 0:
		m.Mentions = []string{"bob"}
	case 1:
		m.Status, m.Revoke, m.Content = protocol.StatusRevoked, &protocol.Revoke{User: "alice"}, nil
	case 2:
		m.IsRead, m.ChangeSeq = true, 1<<40
	}
	return m
}

func TestScanPushReadsWhatTheProtocolWrites(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		list := make([]protocol.Message, rnd.IntN(20))
		for i := range list {
			list[i] = randomMessage(rnd)
		}
		b := protocol.AppendBody(nil, &protocol.Push{Messages: list})
		var scratch pushed
		i := 0
		ok := scanPush(b, &scratch, func(m *pushed) {
			want := &list[i]
			id, _ := parseID([]byte(want.ClientMsgID))
			if m.seq != want.Seq || m.id != id || !bytes.Equal(m.content, want.Content) {
				t.Fatalf("message %d of %d: %d %+v", i, len(list), m.seq, m.id)
			}
			i++
		})
		if !ok || i != len(list) {
			t.Fatalf("saw %d of %d, %v", i, len(list), ok)
		}
	}
}

func TestScanPushRefusesWhatIsCut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		m := randomMessage(rnd)
		m.Content = m.Content[:min(len(m.Content), 200)]
		b := protocol.AppendBody(nil, &protocol.Push{Messages: []protocol.Message{m, m}})
		for n := range b {
			var scratch pushed
			if n > 0 && scanPush(b[:n], &scratch, func(*pushed) {}) {
				t.Errorf("the first %d of %d bytes were taken", n, len(b))
			}
		}
		if scanPush(append(b, 0), &pushed{}, func(*pushed) {}) {
			t.Error("a byte too many was taken")
		}
	}
	foreign := protocol.AppendBody(nil, &protocol.Push{Messages: []protocol.Message{{ClientMsgID: "somebody else's"}}})
	if scanPush(foreign, &pushed{}, func(*pushed) {}) {
		t.Error("a message that is not of a run was taken")
	}
}

func FuzzScan(f *testing.F) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 5 {
		m := randomMessage(rnd)
		f.Add(protocol.AppendBody(nil, &protocol.Push{Messages: []protocol.Message{m}}))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) == 0 {
			return // an empty body never gets here
		}
		scanAck(b)
		scanPush(b, &pushed{}, func(*pushed) {})
	})
}

// The path of a message allocates nothing.
func TestScanningAndBuildingDoNotAllocate(t *testing.T) {
	tmpl := newTemplate("partner", 128)
	out := make([]byte, 0, 4096)
	text := make([]byte, idLen)
	msgID{sender: 5, index: 6, timeUS: 7}.put(text)
	ackBody := protocol.AppendBody(nil, &protocol.SendAck{ClientMsgID: string(text), ServerMsgID: "x", ConversationID: "p:a:b", Seq: 1})
	push := protocol.AppendBody(nil, &protocol.Push{Messages: []protocol.Message{{ClientMsgID: string(text), Content: make([]byte, 128)}}})
	var scratch pushed
	see := func(*pushed) {}
	n := testing.AllocsPerRun(100, func() {
		out = tmpl.append(out[:0], 1, msgID{sender: 1, index: 2})
		scanAck(ackBody)
		scanPush(push, &scratch, see)
	})
	if n != 0 {
		t.Errorf("%g allocations a message", n)
	}
}
