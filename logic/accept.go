package logic

import (
	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// accept decodes a request of which the log decides, and hands it to its verb, which appends it there. Its reply comes from behind the
// log; here only refusals are answered.
func accept[Q any, PQ interface {
	*Q
	protocol.Body
}](s *session, j job, verb func(*session, job, PQ) error) error {
	q := PQ(new(Q))
	if err := protocol.UnmarshalAlias(j.body, q); err != nil {
		return err
	}
	return verb(s, j, q)
}

// origin is where the reply to a job goes.
func origin(s *session, j job) storage.Origin {
	return storage.Origin{Session: s.ID, RequestID: j.requestID, Command: j.command}
}

// answerOrigin replies to a request whose record is done.
func (l *Logic) answerOrigin(o storage.Origin, body protocol.Body) {
	l.reply(o.Session, job{command: o.Command, requestID: o.RequestID}, body)
}

// refuseOrigin tells the sender of a record that nothing came of it.
func (l *Logic) refuseOrigin(o storage.Origin, err error) {
	command := o.Command
	if command == 0 {
		command = protocol.CmdSend
	}
	l.refuse(o.Session, o.RequestID, command, err)
}
