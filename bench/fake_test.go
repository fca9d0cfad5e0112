//go:build linux

package bench

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
)

// fake is a tiny server: it takes any token as a user's name, numbers and acks what is sent, and pushes it to the target. One lock
// orders everything, so that what it does wrong is exactly what fault makes it do.
type fake struct {
	listener net.Listener
	welcome  protocol.Welcome

	mu    sync.Mutex
	conns map[string]net.Conn
	seqs  map[string]uint64
	log   map[string][]*fakeMessage // what PULL answers, by conversation
	sends int
	zero  int // sends of connection 0
	// fault decides, with the lock held, what goes out for a message; nil is honest.
	fault func(s *fake, m *fakeMessage) []out
	done  sync.WaitGroup
}

// fakeMessage is a message on its way through the fake.
type fakeMessage struct {
	request uint32
	id      msgID
	message protocol.Message
	target  string
}

// out is a frame for a user.
type out struct {
	to    string
	frame []byte
}

func startFake(t *testing.T, fault func(*fake, *fakeMessage) []out) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fake{
		listener: l, conns: map[string]net.Conn{}, seqs: map[string]uint64{}, log: map[string][]*fakeMessage{}, fault: fault,
		welcome: protocol.Welcome{HeartbeatS: 60, MaxBody: protocol.DefaultMaxBody, MaxInflight: 32, MaxDown: protocol.DefaultMaxDown},
	}
	s.done.Go(s.accept)
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.done.Wait()
	})
	return s
}

func (s *fake) addr() string { return s.listener.Addr().String() }

func (s *fake) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.done.Go(func() {
			defer c.Close()
			s.serve(c)
		})
	}
}

func (s *fake) serve(c net.Conn) {
	r := bufio.NewReader(c)
	user := ""
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		s.mu.Lock()
		switch f.Command {
		case protocol.CmdHello:
			user = s.hello(c, f)
		case protocol.CmdPing:
			c.Write(protocol.AppendFrame(nil, protocol.CmdPong, f.RequestID, &protocol.Pong{}))
		case protocol.CmdSend:
			s.send(user, f)
		case protocol.CmdPull:
			s.pull(c, f)
		}
		s.mu.Unlock()
	}
}

func readFrame(r io.Reader) (protocol.Frame, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return protocol.Frame{}, err
	}
	b := make([]byte, len(head)+int(binary.BigEndian.Uint32(head)))
	copy(b, head)
	if _, err := io.ReadFull(r, b[4:]); err != nil {
		return protocol.Frame{}, err
	}
	f, _, err := protocol.Split(b, len(b))
	return f, err
}

func (s *fake) hello(c net.Conn, f protocol.Frame) string {
	var h protocol.Hello
	if err := protocol.Unmarshal(f.Body, &h); err != nil || h.Token == "bad" {
		c.Write(protocol.AppendFrame(nil, protocol.CmdError, f.RequestID, protocol.Errorf(protocol.CodeUnauthenticated, "no")))
		c.Close()
		return ""
	}
	w := s.welcome
	w.UserID = h.Token
	s.conns[w.UserID] = c
	c.Write(protocol.AppendFrame(nil, protocol.CmdWelcome, f.RequestID, &w))
	return w.UserID
}

func (s *fake) send(user string, f protocol.Frame) {
	var m protocol.Send
	if err := protocol.Unmarshal(f.Body, &m); err != nil {
		panic(err)
	}
	s.sends++
	id, _ := parseID([]byte(m.ClientMsgID))
	if id.sender == 0 {
		s.zero++
	}
	fm := &fakeMessage{request: f.RequestID, id: id, target: m.Target, message: protocol.Message{
		ConversationID: protocol.DirectConversation(user, m.Target), ServerMsgID: "server-msg-id-of-22-ch", ClientMsgID: m.ClientMsgID,
		Sender: user, ContentType: m.ContentType, Content: m.Content, SendTimeMS: 1_700_000_000_000,
	}}
	var outs []out
	if s.fault != nil {
		outs = s.fault(s, fm)
	} else {
		outs = s.honest(fm)
	}
	for _, o := range outs {
		s.conns[o.to].Write(o.frame)
	}
}

// number gives the message the next seq of its conversation.
func (s *fake) number(m *fakeMessage) {
	s.seqs[m.message.ConversationID]++
	m.message.Seq = s.seqs[m.message.ConversationID]
	s.log[m.message.ConversationID] = append(s.log[m.message.ConversationID], m)
}

// pull answers with at most three messages.
func (s *fake) pull(c net.Conn, f protocol.Frame) {
	var p protocol.Pull
	if err := protocol.Unmarshal(f.Body, &p); err != nil {
		panic(err)
	}
	var r protocol.PullReply
	for _, m := range s.log[p.ConversationID] {
		if m.message.Seq >= p.FromSeq && len(r.Messages) < 3 {
			r.Messages = append(r.Messages, m.message)
		}
	}
	c.Write(protocol.AppendFrame(nil, protocol.CmdPull.Reply(), f.RequestID, &r))
}

// resync is the word that pushes were skipped.
func resync(user string) out {
	return out{user, protocol.AppendFrame(nil, protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{{Type: protocol.EventResync}}})}
}

func (s *fake) honest(m *fakeMessage) []out {
	s.number(m)
	return []out{m.ack(), m.push()}
}

func (m *fakeMessage) ack() out {
	return out{m.message.Sender, protocol.AppendFrame(nil, protocol.CmdSendAck, m.request, &protocol.SendAck{
		ClientMsgID: m.message.ClientMsgID, ServerMsgID: m.message.ServerMsgID, ConversationID: m.message.ConversationID,
		SendTimeMS: m.message.SendTimeMS, Seq: m.message.Seq,
	})}
}

func (m *fakeMessage) push() out { return m.pushTo(m.target) }

func (m *fakeMessage) pushTo(user string) out {
	return out{user, protocol.AppendFrame(nil, protocol.CmdPush, 1, &protocol.Push{Messages: []protocol.Message{m.message}})}
}

func (m *fakeMessage) refuse(e *protocol.Error) out {
	return out{m.message.Sender, protocol.AppendFrame(nil, protocol.CmdError, m.request, e)}
}

// is tells whether this is message index of connection sender.
func (m *fakeMessage) is(sender uint32, index uint64) bool {
	return m.id.sender == sender && m.id.index == index
}

// atMessage makes wrong of one message, the sixth of connection 0, and is honest about the rest.
func atMessage(wrong func(*fake, *fakeMessage) []out) func(*fake, *fakeMessage) []out {
	return func(s *fake, m *fakeMessage) []out {
		if m.is(0, 5) {
			return wrong(s, m)
		}
		return s.honest(m)
	}
}
