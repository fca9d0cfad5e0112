package client

import (
	"slices"

	"github.com/parley-im/parley/protocol"
)

// show is a message as the user sees it.
func (cv *fakeConversation) show(seq uint64) protocol.Message {
	m := cv.log[seq-1]
	if (cv.hidden[seq] || seq < cv.minSeq) && m.Status != protocol.StatusGone {
		return protocol.Message{ConversationID: cv.id, Seq: seq, Status: protocol.StatusHidden, Run: 1}
	}
	return m
}

// shown is what the user now sees of a stored message.
func (f *fake) shown(m protocol.Message) protocol.Message {
	return f.conversation(m.ConversationID).show(m.Seq)
}

// answerAlter answers REVOKE, EDIT, REACT, DELETE and CLEAR.
func (p *peer) answerAlter(fr protocol.Frame) {
	if reply := p.alter(fr); reply != nil {
		p.write(fr.Command.Reply(), fr.RequestID, reply)
	} else {
		p.fail(fr.RequestID, protocol.CodeNotFound, 0)
	}
}

// alter does what such a request asks for; nil when there is no such message.
func (p *peer) alter(fr protocol.Frame) protocol.Body {
	switch fr.Command {
	case protocol.CmdRevoke:
		var q protocol.Position
		p.decode(fr, &q)
		return p.changeReply(q.ConversationID, q.Seq, revoked)
	case protocol.CmdEdit:
		var q protocol.Edit
		p.decode(fr, &q)
		return p.changeReply(q.ConversationID, q.Seq, edited(q.ContentType, string(q.Content)))
	case protocol.CmdReact:
		var q protocol.React
		p.decode(fr, &q)
		return p.changeReply(q.ConversationID, q.Seq, reacted(q.Reaction, q.On))
	case protocol.CmdDelete:
		var q protocol.Delete
		p.decode(fr, &q)
		if cv := p.f.conversation(q.ConversationID); slices.Max(q.Seqs) > uint64(len(cv.log)) || slices.Min(q.Seqs) == 0 {
			return nil
		}
		p.f.hide(p, q.ConversationID, q.Seqs...)
		return &protocol.Empty{}
	default:
		var q protocol.Clear
		p.decode(fr, &q)
		p.f.clear(p, q.ConversationID, q.UpToSeq)
		return &protocol.ClearReply{MinSeq: p.f.conversation(q.ConversationID).minSeq}
	}
}

func (p *peer) changeReply(id string, seq uint64, with func(*protocol.Message) bool) protocol.Body {
	cv := p.f.conversation(id)
	if seq == 0 || seq > uint64(len(cv.log)) || placeholder(new(cv.show(seq))) {
		return nil
	}
	return &protocol.ChangeReply{ChangeSeq: p.f.alter(p, id, seq, with)}
}

// alter changes a message for everybody, and tells every connection but one. It returns the change_seq. with says whether it changed
// anything.
func (f *fake) alter(but *peer, id string, seq uint64, with func(*protocol.Message) bool) uint64 {
	cv := f.conversation(id)
	m := cv.log[seq-1]
	if placeholder(&m) || !with(&m) {
		return m.ChangeSeq
	}
	f.change(id, seq, func(stored *protocol.Message) { *stored = m })
	n := uint64(len(cv.changes))
	f.tell(but, protocol.Event{Type: protocol.EventMessageChanged, ConversationID: id, Seq: seq, ChangeSeq: n})
	return n
}

// tell sends an event to every connection but one.
func (f *fake) tell(but *peer, e protocol.Event) {
	for _, p := range f.peers {
		if p != but && p.welcomed && (f.onEvent == nil || !f.onEvent(p, &e)) {
			p.write(protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{e}})
		}
	}
}

// What a change does to a message; false when it changes nothing.

func revoked(m *protocol.Message) bool {
	if m.Status == protocol.StatusRevoked {
		return false
	}
	m.Status, m.Content, m.Reactions, m.EditMS = protocol.StatusRevoked, nil, nil, 0
	m.Revoke = &protocol.Revoke{User: m.Sender, Role: protocol.RoleSender}
	return true
}

func edited(contentType uint16, text string) func(*protocol.Message) bool {
	return func(m *protocol.Message) bool {
		if m.Status == protocol.StatusRevoked || m.ContentType == contentType && string(m.Content) == text {
			return false
		}
		m.ContentType, m.Content, m.EditMS = contentType, []byte(text), m.SendTimeMS+1
		return true
	}
}

// reacted is me who reacts.
func reacted(kind string, on bool) func(*protocol.Message) bool {
	return func(m *protocol.Message) bool {
		i := slices.IndexFunc(m.Reactions, func(r protocol.Reaction) bool { return r.Reaction == kind })
		if m.Status == protocol.StatusRevoked || i >= 0 == on {
			return false
		}
		if on {
			m.Reactions = append(slices.Clone(m.Reactions), protocol.Reaction{Reaction: kind, Count: 1, Mine: true, Users: []string{me}})
		} else {
			m.Reactions = slices.Delete(slices.Clone(m.Reactions), i, i+1)
		}
		return true
	}
}

// hide hides messages from the user, and tells every connection but one.
func (f *fake) hide(but *peer, id string, seqs ...uint64) {
	cv := f.conversation(id)
	if cv.hidden == nil {
		cv.hidden = map[uint64]bool{}
	}
	for _, seq := range seqs {
		cv.hidden[seq] = true
	}
	f.own(but, protocol.OwnState{Op: protocol.OwnDelete, ConversationID: id, Seqs: seqs})
	f.tell(but, protocol.Event{
		Type: protocol.EventDeleted, ConversationID: id, Seq: slices.Max(seqs), User: me,
		Data: protocol.AppendBody(nil, &protocol.DeletedData{Seqs: seqs}),
	})
}

// clear hides everything up to a seq, 0 for all.
func (f *fake) clear(but *peer, id string, upTo uint64) {
	cv := f.conversation(id)
	if upTo == 0 || upTo > uint64(len(cv.log)) {
		upTo = uint64(len(cv.log))
	}
	cv.minSeq = max(cv.minSeq, upTo+1)
	f.stamp++
	cv.stamp = f.stamp
	f.own(but, protocol.OwnState{Op: protocol.OwnClear, ConversationID: id, UpToSeq: upTo})
	f.tell(but, protocol.Event{Type: protocol.EventCleared, ConversationID: id, Seq: upTo, User: me})
}

// own appends an entry to the user's own stream.
func (f *fake) own(but *peer, s protocol.OwnState) {
	m := f.append(f.conversation(protocol.UserStream(me)), protocol.Message{
		Sender: me, ContentType: protocol.ContentOwnState, Content: protocol.AppendBody(nil, &s),
	})
	for _, p := range f.peers {
		if p != but {
			f.push(p, m)
		}
	}
}
