package logic

import (
	"crypto/rand"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// What users change of their own view (DELETE, CLEAR) is stored in two steps: the effect, in absolute values, and then a message in the user's own
// stream, u:<user>, from which devices that are away now learn of it. The reply follows both. The effect comes first, so that whoever
// learns of it from the stream can see it; it is idempotent, so that a request that failed or was cut off between the two is just made
// again.

// applyOwn applies a change of the session's user's view, and appends what the user's devices are to learn of it. reply is the body that answers
// the request when that is durable.
func (l *Logic) applyOwn(s *session, j job, change *storage.Own, state *protocol.OwnState, reply protocol.Body) error {
	if err := l.o.Directory.ApplyOwn(l.ctx, []*storage.Own{change}); err != nil {
		return err
	}
	stream, client := protocol.UserStream(s.User), rand.Text()
	id := protocol.NewMessageID(stream, s.User, client)
	from := origin(s, j)
	from.Reply = protocol.AppendBody([]byte{}, reply)
	return l.o.Log.Append(&storage.Record{
		Message: protocol.Message{
			ConversationID: stream, ServerMsgID: id.String(), ClientMsgID: client, Sender: s.User, ContentType: protocol.ContentOwnState,
			Content: protocol.AppendBody(nil, state), SendTimeMS: l.o.Now().UnixMilli(),
		},
		ID: id, Origin: from,
	})
}

// ownEntry is the entry of a conversation of which a user wants to change their view.
func (l *Logic) ownEntry(s *session, conversation string) (*storage.Entry, error) {
	if kind, _, _ := protocol.ParseConversation(conversation); kind == protocol.KindUser {
		return nil, invalid("a user's own stream can not be deleted from")
	}
	return l.entry(s, conversation)
}

// tellOwn sends EVENT 3 or 4 for messages of a user's own stream to those of the user's devices that get the PUSH of them.
func (o *outbox) tellOwn(recs []*storage.Record, routes []storage.Route) {
	for _, rec := range recs {
		var state protocol.OwnState
		if rec.Message.ContentType != protocol.ContentOwnState || protocol.UnmarshalAlias(rec.Message.Content, &state) != nil {
			continue
		}
		event := protocol.Event{ConversationID: state.ConversationID, User: rec.Message.Sender, TimeMS: rec.Message.SendTimeMS}
		switch state.Op {
		case protocol.OwnDelete:
			event.Type, event.Seq = protocol.EventDeleted, state.Seqs[len(state.Seqs)-1]
			event.Data = protocol.AppendBody(nil, &protocol.DeletedData{Seqs: state.Seqs})
		case protocol.OwnClear:
			event.Type, event.Seq = protocol.EventCleared, state.UpToSeq
		default:
			continue
		}
		start, first := len(o.frames), len(o.sessions)
		if o.addSessions(routes, rec.Origin.Session); len(o.sessions) > first {
			o.frames = protocol.AppendFrame(o.frames, protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{event}})
			o.since(start, first, 0)
		}
	}
}
