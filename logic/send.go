package logic

import (
	"errors"
	"unicode/utf8"
	"unsafe"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// intake is the memory of the SENDs of one read: their bodies and ids in one piece, their records in another, so that a burst of
// messages costs two allocations and not several each. Records alias the arena, which never moves and never changes once written; it lives
// as long as any of them.
type intake struct {
	arena   []byte
	records []storage.Record
	nowMS   int64
}

func newIntake(frames []protocol.Frame, nowMS int64) *intake {
	var n, size int
	for i := range frames {
		if frames[i].Command == protocol.CmdSend {
			n++
			size += len(frames[i].Body) + protocol.MessageIDLen
		}
	}
	return &intake{arena: make([]byte, 0, size), records: make([]storage.Record, 0, n), nowMS: nowMS}
}

// keep copies a body into the arena.
func (in *intake) keep(body []byte) []byte {
	start := len(in.arena)
	in.arena = append(in.arena, body...)
	return in.arena[start:len(in.arena):len(in.arena)]
}

// idText writes an id into the arena.
func (in *intake) idText(id protocol.MessageID) string {
	start := len(in.arena)
	in.arena = id.Append(in.arena)
	return unsafe.String(&in.arena[start], protocol.MessageIDLen)
}

// send checks a SEND, gives it its identity and appends it to the log. Its reply comes when the log has it; here only refusals are
// answered. Appends keep the order of arrival, since Handle runs on the session's event loop.
//
// The order of the checks is the contract's: whether it is a repeat is decided before the right to send is looked at. That decision
// is the sequencer's, which alone is exact; a check of rights that can change belongs behind it or must look there first. A
// direct message has none: it is between its sender and whoever is named.
func (l *Logic) send(s *session, f *protocol.Frame, in *intake) {
	var m protocol.Send
	err := protocol.UnmarshalAlias(in.keep(f.Body), &m)
	if err == nil {
		err = checkSend(&m)
	}
	if err == nil {
		err = l.append(s, l.record(s, f.RequestID, &m, len(f.Body), in))
	}
	if err == nil {
		return
	}
	if errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrClosed) {
		err = unavailable()
	}
	l.refuse(s.ID, f.RequestID, protocol.CmdSend, err)
}

// append hands the record to the log, unless it is known to be a repeat: a worker then looks at the message that it repeats.
func (l *Logic) append(s *session, rec *storage.Record) error {
	if seq, ok := l.known.get(rec.ID); ok && l.pool.submit(s, job{command: jobKnown, record: rec, seq: seq}) {
		return nil
	}
	return l.o.Log.Append(rec)
}

// checkSend holds the fields against their ranges.
func checkSend(m *protocol.Send) error {
	switch {
	case m.ClientMsgID == "":
		return invalid("client_msg_id must have 1 to 64 bytes")
	case m.Kind != protocol.KindDirect && m.Kind != protocol.KindGroup:
		return invalid("kind must be 1 (direct) or 2 (group)")
	case !protocol.ValidID(m.Target):
		return invalid("target is not a valid id")
	case m.Flags&^protocol.SendFlags != 0:
		return invalid("flags has unknown bits")
	}
	if err := checkContent(m.ContentType, m.Content); err != nil {
		return err
	}
	for _, u := range m.Mentions {
		if u != protocol.MentionAll && !protocol.ValidID(u) {
			return invalid("mentions has an invalid user id")
		}
	}
	if m.Kind == protocol.KindGroup { // there are no groups yet, so nobody is a member of any
		return &protocol.Error{Code: protocol.CodeForbidden, Message: "not a member", Reason: protocol.ReasonNotMember}
	}
	return nil
}

func checkContent(contentType uint16, content []byte) error {
	switch {
	case !clientContentType(contentType):
		return invalid("content_type must be 1 to 7 or 100 to 999")
	case contentType == protocol.ContentText && !utf8.Valid(content):
		return invalid("content of type 1 must be UTF-8")
	}
	return nil
}

// clientContentType tells whether a client may send content of this type: the defined ones and the app's own. The rest is reserved.
func clientContentType(t uint16) bool {
	return t >= protocol.ContentText && t <= protocol.ContentQuote || t >= protocol.ContentApp && t < protocol.ContentServer
}

func invalid(message string) error {
	return &protocol.Error{Code: protocol.CodeInvalidArgument, Message: message}
}

// record makes the log's record of a checked SEND with a body of that size.
func (l *Logic) record(s *session, requestID uint32, m *protocol.Send, size int, in *intake) *storage.Record {
	if m.Target != s.target {
		s.conversation = protocol.DirectConversation(s.User, m.Target)
		s.target = string(append([]byte(nil), m.Target...)) // not the arena's
	}
	id := protocol.NewMessageID(s.conversation, s.User, m.ClientMsgID)
	in.records = append(in.records, storage.Record{
		Message: protocol.Message{
			ConversationID: s.conversation, ServerMsgID: in.idText(id), ClientMsgID: m.ClientMsgID, Sender: s.User,
			ContentType: m.ContentType, Content: m.Content, SendTimeMS: in.nowMS, Flags: m.Flags, Mentions: m.Mentions,
		},
		ID:     id,
		Origin: storage.Origin{Session: s.ID, RequestID: requestID},
		Held:   size,
	})
	return &in.records[len(in.records)-1]
}
