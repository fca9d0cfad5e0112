package protocol

import (
	"bytes"
	"testing"
)

// The three bodies of the hot path, as a chat with 128 bytes of content makes them.
var (
	benchSend = Send{
		ClientMsgID: "01JDX3Q5V9W3E0N6C8RZ7T4KYB", Kind: KindDirect, Target: "user-00042",
		ContentType: ContentText, Content: bytes.Repeat([]byte{'x'}, 128),
	}
	benchAck = SendAck{
		ClientMsgID: "01JDX3Q5V9W3E0N6C8RZ7T4KYB", ServerMsgID: "q2m7H3bS0xk1oJv9wZ8yLA",
		ConversationID: "p:user-00041:user-00042", SendTimeMS: 1733000000000, Seq: 10086,
	}
	benchMessage = Message{
		ConversationID: "p:user-00041:user-00042", Seq: 10086, ServerMsgID: "q2m7H3bS0xk1oJv9wZ8yLA",
		ClientMsgID: "01JDX3Q5V9W3E0N6C8RZ7T4KYB", Sender: "user-00041", ContentType: ContentText,
		Content: bytes.Repeat([]byte{'x'}, 128), SendTimeMS: 1733000000000,
	}
)

func BenchmarkAppendFrame(b *testing.B) {
	for _, c := range []struct {
		name string
		cmd  Command
		body Body
	}{{"SEND", CmdSend, &benchSend}, {"SEND_ACK", CmdSendAck, &benchAck}, {"Message", CmdPush, &benchMessage}} {
		b.Run(c.name, func(b *testing.B) {
			dst := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendFrame(dst[:0], c.cmd, 7, c.body)
			}
			b.SetBytes(int64(len(dst)))
		})
	}
}

func BenchmarkUnmarshal(b *testing.B)      { benchmarkDecode(b, Unmarshal) }
func BenchmarkUnmarshalAlias(b *testing.B) { benchmarkDecode(b, UnmarshalAlias) }

func benchmarkDecode(b *testing.B, decode func([]byte, Body) error) {
	bench := func(name string, in []byte, m Body, zero func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				zero()
				if err := decode(in, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	var s Send
	bench("SEND", AppendBody(nil, &benchSend), &s, func() { s = Send{} })
	var a SendAck
	bench("SEND_ACK", AppendBody(nil, &benchAck), &a, func() { a = SendAck{} })
	var m Message
	bench("Message", AppendBody(nil, &benchMessage), &m, func() { m = Message{} })
}
