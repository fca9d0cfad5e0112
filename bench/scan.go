package bench

import (
	"encoding/binary"

	"github.com/parley-im/parley/protocol"
)

// The scanners below look only at what the checks need, and only take the shapes that a server normally writes. Whatever else
// msgpack allows goes to the protocol package's own decoder, so that nothing valid is refused.

// ack is what matters of a SEND_ACK.
type ack struct {
	id  msgID
	seq uint64
}

// scanAck reads a SEND_ACK: client_msg_id, server_msg_id, conversation_id, send_time_ms, seq.
func scanAck(b []byte) (a ack, ok bool) {
	if len(b) > 2+idLen && b[0] == 0x95 && b[1] == 0xa0|idLen {
		var idOK bool
		a.id, idOK = parseID(b[2 : 2+idLen])
		i := skipString(b, 2+idLen)
		i = skipString(b, i)
		i = skipUint(b, i)
		a.seq, i = uintAt(b, i)
		if idOK && i == len(b) {
			return a, true
		}
	}
	return decodeAck(b)
}

func decodeAck(b []byte) (a ack, ok bool) {
	var m protocol.SendAck
	if protocol.UnmarshalAlias(b, &m) != nil || m.ServerMsgID == "" || m.ConversationID == "" {
		return a, false
	}
	a.id, ok = parseID([]byte(m.ClientMsgID))
	a.seq = m.Seq
	return a, ok
}

// pushed is what matters of a message in a PUSH. Its slices alias the frame.
type pushed struct {
	id      msgID
	seq     uint64
	content []byte
}

// scanPush calls see for each message of a PUSH, with m, which is only there to be used again. It returns false when the body is not
// one, or holds a message that is not of a run of this harness.
func scanPush(b []byte, m *pushed, see func(*pushed)) bool {
	n, i := arrayAt(b, 1)
	if i < 0 || b[0] != 0x91 {
		return decodePush(b, see)
	}
	for k := range n {
		next := scanMessage(b, i, m)
		if next < 0 {
			// Messages that were seen already must not be seen again, so the rest is decoded from here.
			return decodeRest(b[i:], n-k, see)
		}
		see(m)
		i = next
	}
	return i == len(b)
}

// scanMessage reads the Message at b[i:] and returns where the next one starts, or -1.
func scanMessage(b []byte, i int, m *pushed) int {
	if i >= len(b) || b[i] != 0x9f {
		return -1
	}
	i = skipString(b, i+1)  // conversation_id
	m.seq, i = uintAt(b, i) // seq
	i = skipString(b, i)    // server_msg_id
	if i < 0 || i+1+idLen > len(b) || b[i] != 0xa0|idLen {
		return -1
	}
	var ok bool
	if m.id, ok = parseID(b[i+1 : i+1+idLen]); !ok {
		return -1
	}
	i = skipString(b, i+1+idLen) // sender
	i = skipUint(b, i)           // content_type
	m.content, i = binAt(b, i)   // content
	i = skipUint(b, i)           // send_time_ms
	if i < 0 || i+3 > len(b) || b[i] != 0 || b[i+1] != 0xc0 || b[i+2]&0xfe != 0xc2 {
		return -1 // not a normal message: status 0, revoke nil, is_read
	}
	i = skipUint(b, i+3) // flags
	if i < 0 || i >= len(b) || b[i] != 0x90 {
		return -1 // mentions: we send none
	}
	i = skipUint(b, i+1)  // change_seq
	return skipUint(b, i) // run
}

func decodePush(b []byte, see func(*pushed)) bool {
	var p protocol.Push
	if protocol.UnmarshalAlias(b, &p) != nil {
		return false
	}
	return seeAll(p.Messages, see)
}

// decodeRest decodes n messages that stand one after the other.
func decodeRest(b []byte, n int, see func(*pushed)) bool {
	frame := protocol.AppendPush(nil, 0, n, b)
	return decodePush(frame[protocol.HeaderSize:], see)
}

func seeAll(list []protocol.Message, see func(*pushed)) bool {
	for i := range list {
		m := &list[i]
		id, ok := parseID([]byte(m.ClientMsgID))
		if !ok {
			return false
		}
		see(&pushed{id: id, seq: m.Seq, content: m.Content})
	}
	return true
}

// Each of these takes the index of a value and returns the index after it, or -1 when the value is not of the kind, is cut
// short, or the index is -1 already.

func skipString(b []byte, i int) int {
	if uint(i) >= uint(len(b)) {
		return -1
	}
	c := b[i]
	n := int(c & 0x1f)
	switch {
	case c&0xe0 == 0xa0:
		i++
	case c == 0xd9 && i+1 < len(b):
		n = int(b[i+1])
		i += 2
	default:
		return -1
	}
	if n > len(b)-i {
		return -1
	}
	return i + n
}

func skipUint(b []byte, i int) int {
	if uint(i) >= uint(len(b)) {
		return -1
	}
	c := b[i]
	i++
	if c >= 0x80 {
		if c < 0xcc || c > 0xcf {
			return -1
		}
		i += 1 << (c - 0xcc)
	}
	if i > len(b) {
		return -1
	}
	return i
}

func uintAt(b []byte, i int) (v uint64, next int) {
	next = skipUint(b, i)
	if next < 0 {
		return 0, -1
	}
	switch c := b[i]; c {
	case 0xcc:
		v = uint64(b[i+1])
	case 0xcd:
		v = uint64(binary.BigEndian.Uint16(b[i+1:]))
	case 0xce:
		v = uint64(binary.BigEndian.Uint32(b[i+1:]))
	case 0xcf:
		v = binary.BigEndian.Uint64(b[i+1:])
	default:
		v = uint64(c)
	}
	return v, next
}

func binAt(b []byte, i int) (p []byte, next int) {
	if i < 0 || i+5 > len(b) {
		return nil, -1
	}
	var n int
	switch b[i] {
	case 0xc4:
		n, i = int(b[i+1]), i+2
	case 0xc5:
		n, i = int(binary.BigEndian.Uint16(b[i+1:])), i+3
	case 0xc6:
		n, i = int(binary.BigEndian.Uint32(b[i+1:])), i+5
	default:
		return nil, -1
	}
	if n > len(b)-i {
		return nil, -1
	}
	return b[i : i+n], i + n
}

// arrayAt returns the number of elements of the array at b[i:] and the index of the first.
func arrayAt(b []byte, i int) (n, next int) {
	if i >= len(b) {
		return 0, -1
	}
	switch c := b[i]; {
	case c&0xf0 == 0x90:
		return int(c & 0x0f), i + 1
	case c == 0xdc && i+3 <= len(b):
		return int(binary.BigEndian.Uint16(b[i+1:])), i + 3
	}
	return 0, -1
}
