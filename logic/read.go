package logic

import (
	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// read raises the user's watermark. It never moves backwards, and not above the tail. Nothing is written to any message.
func (l *Logic) read(s *session, q *protocol.Position) (*protocol.ReadReply, error) {
	e, err := l.entry(s, q.ConversationID)
	if err != nil {
		return nil, err
	}
	if seq := min(q.Seq, e.State.Tail); seq > e.ReadSeq {
		if err := l.raiseRead(s, e, seq); err != nil {
			return nil, err
		}
	}
	unread, err := l.unreadOf(s.User, e)
	if err != nil {
		return nil, err
	}
	return &protocol.ReadReply{Seq: e.ReadSeq, Unread: unread}, nil
}

// raiseRead stores the new watermark in the entry, too, and tells the devices that are online.
func (l *Logic) raiseRead(s *session, e *storage.Entry, seq uint64) error {
	slot, err := l.slot(e.Conversation, "", seq)
	if err != nil {
		return err
	}
	count := slot.Counts[otherSide(s.User, e.Conversation)]
	view, raised, err := l.o.Directory.RaiseRead(l.ctx, s.User, e.Conversation, seq, count)
	if err != nil {
		return err
	}
	e.View = view
	if !raised { // another device was faster
		return nil
	}
	unread, err := l.unreadOf(s.User, e)
	if err != nil {
		return err
	}
	l.tellRead(s, e, unread)
	return nil
}

// tellRead sends EVENT 2: to one's other devices with what is unread now, to the other side without.
func (l *Logic) tellRead(s *session, e *storage.Entry, unread uint32) {
	event := protocol.Event{
		Type: protocol.EventRead, ConversationID: e.Conversation, Seq: e.ReadSeq, User: s.User, TimeMS: l.o.Now().UnixMilli(),
	}
	if peer, err := mayRead(s.User, e.Conversation); err == nil && peer != s.User {
		l.tell(peer, event, 0)
	}
	event.Data = protocol.AppendBody(nil, &protocol.ReadData{Unread: unread})
	l.tell(s.User, event, s.ID)
}

// tell sends an event to the user's devices that are online now, except one connection. A device that is not reached loses nothing: SYNC
// says the same.
func (l *Logic) tell(user string, event protocol.Event, except protocol.SessionID) {
	frame := protocol.AppendFrame(nil, protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{event}})
	l.broadcast(user, protocol.Delivery{Frames: frame}, except)
}

// broadcast delivers to the user's devices, except one connection.
func (l *Logic) broadcast(user string, d protocol.Delivery, except protocol.SessionID) {
	routes, err := l.o.Routes.Online(l.ctx, []string{user}, nil)
	if err != nil {
		l.m.unrouted.Inc()
		return
	}
	var o outbox
	o.addSessions(routes[0], except)
	if d.To = o.sessions; len(d.To) > 0 {
		l.deliver(d)
	}
}
