package protocol

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// One target for each body would take CI more than eight minutes at 10 s each. So the bodies that strangers and hostile servers reach
// first, and those with lists of structs, have their own; the rest share a target for each chapter, where the first byte picks the body. All
// of them together take about two and a half minutes. Whatever the target, checkDecoder holds: no panic, an error of the two codes only,
// memory in proportion to the input, and what was taken encodes and decodes to the same value. (TestDamaged does the same for each
// body alone, with a fixed seed, in every test run.)

func FuzzHello(f *testing.F)     { fuzzBody(f, CmdHello) }
func FuzzWelcome(f *testing.F)   { fuzzBody(f, CmdWelcome) }
func FuzzSend(f *testing.F)      { fuzzBody(f, CmdSend) }
func FuzzPush(f *testing.F)      { fuzzBody(f, CmdPush) }
func FuzzEvent(f *testing.F)     { fuzzBody(f, CmdEvent) }
func FuzzSyncReply(f *testing.F) { fuzzBody(f, CmdSync.Reply()) }
func FuzzPullReply(f *testing.F) { fuzzBody(f, CmdPull.Reply()) }

func FuzzSessionBodies(f *testing.F) { fuzzBodies(f, between(CmdPing, CmdSignedOut)) }
func FuzzMessageBodies(f *testing.F) { fuzzBodies(f, between(CmdSendAck, CmdSignal)) }
func FuzzConversationBodies(f *testing.F) {
	fuzzBodies(f, append(between(CmdSync, CmdRemove.Reply()), between(CmdReaders, CmdReaders.Reply())...))
}
func FuzzProfileBodies(f *testing.F) { fuzzBodies(f, between(CmdWatchPresence, CmdSetProfile.Reply())) }
func FuzzParts(f *testing.F)         { fuzzBodies(f, parts) }

func between(first, last Command) []command {
	var list []command
	for _, c := range commands {
		if c.cmd >= first && c.cmd <= last {
			list = append(list, c)
		}
	}
	return list
}

// fuzzBody starts from the golden bodies of the command.
func fuzzBody(f *testing.F, cmd Command) {
	for _, b := range append(ownBodies(f)[cmd], hostileBodies(f, cmd)...) {
		f.Add(b)
	}
	fresh := lookUp(f, cmd).fresh
	f.Fuzz(func(t *testing.T, data []byte) { checkDecoder(t, fresh, data) })
}

func fuzzBodies(f *testing.F, list []command) {
	own, all := ownBodies(f), goldenBodies(f)
	for i, c := range list {
		seeds := append(own[c.cmd], hostileBodies(f, c.cmd)...)
		if c.cmd == 0 {
			seeds = all
		}
		for _, b := range seeds {
			f.Add(byte(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) { checkDecoder(t, list[int(which)%len(list)].fresh, data) })
}

// hostileBodies are those golden ones that the command must refuse.
func hostileBodies(t testing.TB, cmd Command) [][]byte {
	t.Helper()
	var list [][]byte
	for _, v := range load[invalid](t, "invalid.json") {
		if frame := unhex(t, v.Bytes); v.Where == "body" && Command(frame[7]) == cmd {
			list = append(list, frame[HeaderSize:])
		}
	}
	return list
}

// FuzzSplit cuts any bytes into frames: it never panics, uses what it says, gives the same answer to the bytes in pieces, and the
// frames make the same bytes again.
func FuzzSplit(f *testing.F) {
	for _, v := range load[stream](f, "streams.json") {
		f.Add(unhex(f, v.Bytes), DefaultMaxBody, 5)
	}
	for _, v := range load[invalid](f, "invalid.json") {
		f.Add(unhex(f, v.Bytes), v.MaxBody, 9)
	}
	f.Fuzz(func(t *testing.T, data []byte, maxBody, cut int) {
		var again []byte
		rest := data
		for {
			frame, n, err := Split(rest, maxBody)
			checkAnswer(t, rest, maxBody, cut, frame, n, err)
			if n == 0 {
				break
			}
			if n < HeaderSize || n > len(rest) || len(frame.Body) != n-HeaderSize || len(frame.Body) > max(maxBody, 0) {
				t.Fatalf("%d of %d bytes, a body of %d with limit %d", n, len(rest), len(frame.Body), maxBody)
			}
			again = AppendRawFrame(again, frame.Command, frame.RequestID, frame.Body)
			rest = rest[n:]
		}
		if !bytes.Equal(again, data[:len(data)-len(rest)]) {
			t.Fatal("the frames are not what they were cut from")
		}
	})
}

// checkAnswer: an error has one of three codes and uses nothing; with fewer bytes the answer is the same or none.
func checkAnswer(t *testing.T, b []byte, maxBody, cut int, frame Frame, n int, err error) {
	t.Helper()
	var e *Error
	if err != nil && (!errors.As(err, &e) || n != 0 || !slices.Contains([]ErrorCode{CodeBadFrame, CodeTooLarge, CodeUnsupportedVersion}, e.Code)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	cut = max(cut, 0) % (len(b) + 1)
	f, used, early := Split(b[:cut], maxBody)
	if used == 0 && early == nil {
		return
	}
	if used != n || !reflect.DeepEqual(f, frame) || !reflect.DeepEqual(early, err) {
		t.Fatalf("with %d bytes the answer is %+v, %d, %v; with all it is %+v, %d, %v", cut, f, used, early, frame, n, err)
	}
}

// FuzzCutMessage: what is cut off without decoding is what a decoder takes for the same message, and never more than there is.
func FuzzCutMessage(f *testing.F) {
	m, full, changed := textMessage(), fullMessage(), changedMessage()
	f.Add(AppendBody(nil, &m))
	f.Add(AppendBody(AppendBody(nil, &changed), &m))
	f.Add(AppendBody(AppendBody(nil, &full), &m))
	for _, b := range goldenBodies(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		head, message, rest, err := CutMessage(data)
		if err != nil {
			if !errors.Is(err, &Error{Code: CodeBadFrame}) || message != nil || rest != nil {
				t.Fatalf("%v, with %d bytes and %d left", err, len(message), len(rest))
			}
			return
		}
		if !bytes.Equal(append(slices.Clone(message), rest...), data) || len(message) == 0 {
			t.Fatalf("%d and %d bytes of %d", len(message), len(rest), len(data))
		}
		var m Message
		if Unmarshal(message, &m) != nil {
			return // CutMessage reads what a store wrote; it does not check it
		}
		if m.Seq != head.Seq || m.ServerMsgID != string(head.ServerMsgID) || m.Sender != string(head.Sender) || m.ContentType != head.ContentType || m.Flags != head.Flags {
			t.Fatalf("%+v of %s", head, bodyJSON(&m))
		}
	})
}

// FuzzIDs: what parses is written the same way again.
func FuzzIDs(f *testing.F) {
	for _, id := range idSources {
		f.Add(id)
	}
	f.Add(serverID)
	f.Fuzz(func(t *testing.T, s string) {
		again := s
		switch kind, a, b := ParseConversation(s); kind {
		case KindDirect:
			again = DirectConversation(b, a)
		case KindGroup:
			again = GroupConversation(a)
		case KindUser:
			again = UserStream(a)
		}
		if again != s {
			t.Fatalf("%q is written %q", s, again)
		}
		if id, ok := ParseMessageID(s); ok && id.String() != s {
			t.Fatalf("%q is written %q", s, id)
		}
	})
}
