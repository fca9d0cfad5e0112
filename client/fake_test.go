package client

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

const (
	me     = "alice"
	device = "alice-phone"
)

// fake is a server of one user, me, in the memory of a test. It does what protocol.md says, unless a hook does otherwise. It
// speaks over net.Pipe, so a write returns when the client has read it.
type fake struct {
	t *testing.T

	// Hooks. They run with mu held, on the goroutine that reads from the peer.
	onHello func(p *peer, h protocol.Hello) (handled bool)
	onFrame func(p *peer, f protocol.Frame) (handled bool)
	onPush  func(p *peer, m *protocol.Message) (drop bool)
	onEvent func(p *peer, e *protocol.Event) (drop bool)
	tune    func(w *protocol.Welcome)
	// noSeq: acks come without a seq, and the message in a PUSH.
	noSeq bool
	// behind is how far behind CHANGES may be asked for; 0: any.
	behind uint64

	mu     sync.Mutex
	epoch  string
	stamp  int
	convs  map[string]*fakeConversation
	peers  []*peer // in the order in which they came
	frames []seen
	pushID uint32
	wg     sync.WaitGroup
}

type fakeConversation struct {
	id      string
	log     []protocol.Message // seq i+1 at i
	minSeq  uint64
	changes []uint64 // the seq of change i+1 at i
	hidden  map[uint64]bool
	stamp   int
}

// seen is a frame that the client sent.
type seen struct {
	peer *peer
	at   time.Time
	protocol.Frame
}

// peer is the server's end of a connection.
type peer struct {
	f        *fake
	nc       net.Conn
	n        int // 0 is the first
	hello    protocol.Hello
	welcomed bool
	ended    bool // by us: nothing that still comes is looked at
	// captured, when set, gets what is written instead of the client.
	captured *[]byte
}

// cut ends the connection, without a word.
func (p *peer) cut() {
	p.nc.Close()
	p.welcomed, p.ended = false, true
}

func newFake(t *testing.T) *fake {
	return &fake{t: t, epoch: "e1", convs: map[string]*fakeConversation{}}
}

func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	f.take(ours)
	return theirs, nil
}

func (f *fake) take(nc net.Conn) {
	f.mu.Lock()
	p := &peer{f: f, nc: nc, n: len(f.peers)}
	f.peers = append(f.peers, p)
	f.mu.Unlock()
	f.wg.Go(p.serve)
}

// close ends all connections and waits for their goroutines.
func (f *fake) close() {
	f.mu.Lock()
	for _, p := range f.peers {
		p.nc.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

func (f *fake) locked(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (p *peer) serve() {
	defer p.nc.Close()
	in := newFrames(p.nc, func() {})
	in.limit = 1 << 20
	for {
		fr, err := in.next()
		if err != nil {
			p.f.locked(func() { p.welcomed = false })
			return
		}
		fr.Body = bytes.Clone(fr.Body)
		p.f.locked(func() {
			if p.ended {
				return
			}
			p.f.frames = append(p.f.frames, seen{p, time.Now(), fr})
			p.handle(fr)
		})
	}
}

// write sends a frame. An error only says that the connection is gone.
func (p *peer) write(cmd protocol.Command, id uint32, body protocol.Body) {
	b := protocol.AppendFrame(nil, cmd, id, body)
	if p.captured != nil {
		*p.captured = append(*p.captured, b...)
		return
	}
	p.send(b)
}

func (p *peer) send(b []byte) {
	p.nc.SetWriteDeadline(time.Now().Add(5 * time.Second))
	p.nc.Write(b)
}

func (p *peer) fail(id uint32, code protocol.ErrorCode, retryMS uint32) {
	p.write(protocol.CmdError, id, &protocol.Error{Code: code, RetryAfterMS: retryMS})
	if code.Closes() {
		p.cut()
	}
}

func (p *peer) kick(k protocol.Kick) {
	p.write(protocol.CmdKick, 0, &k)
	p.cut()
}

func (p *peer) handle(fr protocol.Frame) {
	if fr.Command == protocol.CmdHello {
		p.decode(fr, &p.hello)
		if p.f.onHello == nil || !p.f.onHello(p, p.hello) {
			p.welcome(fr.RequestID)
		}
		return
	}
	if p.f.onFrame != nil && p.f.onFrame(p, fr) {
		return
	}
	p.answer(fr)
}

func (p *peer) welcome(id uint32) {
	for _, o := range p.f.peers {
		if o.welcomed && o != p && o.hello.DeviceID == p.hello.DeviceID {
			o.kick(protocol.Kick{Reason: protocol.KickDisplaced, DeviceID: p.hello.DeviceID})
		}
	}
	w := protocol.Welcome{
		UserID: me, SessionID: strconv.Itoa(p.n), HeartbeatS: 60, MaxBody: 64 << 10, MaxInflight: 32, MaxDown: 512 << 10,
		ResendS: 300, Epoch: p.f.epoch,
	}
	if p.f.tune != nil {
		p.f.tune(&w)
	}
	p.welcomed = true
	p.write(protocol.CmdWelcome, id, &w)
}

func (p *peer) decode(fr protocol.Frame, into protocol.Body) {
	if err := protocol.Unmarshal(fr.Body, into); err != nil {
		p.f.t.Errorf("the client sent a bad %v: %v", fr.Command, err)
	}
}

// answer does what the protocol says.
func (p *peer) answer(fr protocol.Frame) {
	switch fr.Command {
	case protocol.CmdPing:
		p.write(protocol.CmdPong, fr.RequestID, &protocol.Pong{})
	case protocol.CmdSend:
		p.answerSend(fr, p.f.store(fr))
	case protocol.CmdSync:
		p.answerSync(fr)
	case protocol.CmdPull:
		p.answerPull(fr)
	case protocol.CmdChanges:
		p.answerChanges(fr)
	case protocol.CmdRead:
		var r protocol.Position
		p.decode(fr, &r)
		p.write(fr.Command.Reply(), fr.RequestID, &protocol.ReadReply{Seq: r.Seq})
	case protocol.CmdUnread:
		p.write(fr.Command.Reply(), fr.RequestID, &protocol.UnreadReply{Total: 7, Conversations: 2})
	case protocol.CmdGetConversation:
		p.answerGet(fr)
	case protocol.CmdSignOut:
		p.write(fr.Command.Reply(), fr.RequestID, nil)
	case protocol.CmdPushAck, protocol.CmdSignal:
	case protocol.CmdRevoke, protocol.CmdEdit, protocol.CmdReact, protocol.CmdDelete, protocol.CmdClear:
		p.answerAlter(fr)
	default:
		p.fail(fr.RequestID, protocol.CodeUnknownCommand, 0)
	}
}

func (f *fake) conversation(id string) *fakeConversation {
	cv := f.convs[id]
	if cv == nil {
		cv = &fakeConversation{id: id, minSeq: 1}
		f.convs[id] = cv
	}
	return cv
}

// store stores the message of a SEND, once, and pushes it to the user's other connections.
func (f *fake) store(fr protocol.Frame) protocol.Message {
	var s protocol.Send
	if err := protocol.Unmarshal(fr.Body, &s); err != nil {
		f.t.Errorf("the client sent a bad SEND: %v", err)
	}
	id := Target{s.Kind, s.Target}.Conversation(me)
	cv := f.conversation(id)
	for _, m := range cv.log {
		if m.Sender == me && m.ClientMsgID == s.ClientMsgID {
			return m
		}
	}
	return f.append(cv, protocol.Message{
		Sender: me, ClientMsgID: s.ClientMsgID, ContentType: s.ContentType, Content: s.Content, Flags: s.Flags, Mentions: s.Mentions,
	})
}

func (f *fake) append(cv *fakeConversation, m protocol.Message) protocol.Message {
	f.stamp++
	cv.stamp = f.stamp
	m.ConversationID, m.Seq, m.SendTimeMS = cv.id, uint64(len(cv.log)+1), time.Now().UnixMilli()
	m.ServerMsgID = protocol.NewMessageID(cv.id, m.Sender, m.ClientMsgID).String()
	cv.log = append(cv.log, m)
	return m
}

func (p *peer) answerSend(fr protocol.Frame, m protocol.Message) {
	ack := protocol.SendAck{
		ClientMsgID: m.ClientMsgID, ServerMsgID: m.ServerMsgID, ConversationID: m.ConversationID, SendTimeMS: m.SendTimeMS, Seq: m.Seq,
	}
	if p.f.noSeq {
		ack.Seq = 0
		p.f.push(p, p.f.shown(m))
	}
	for _, o := range p.f.peers {
		if o != p {
			p.f.push(o, p.f.shown(m))
		}
	}
	p.write(protocol.CmdSendAck, fr.RequestID, &ack)
}

// push pushes one message to one connection.
func (f *fake) push(p *peer, list ...protocol.Message) uint32 {
	if !p.welcomed || f.onPush != nil && len(list) == 1 && f.onPush(p, &list[0]) {
		return 0
	}
	f.pushID++
	p.write(protocol.CmdPush, f.pushID, &protocol.Push{Messages: list})
	return f.pushID
}

// post stores n messages of another user and pushes them.
func (f *fake) post(conversation string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		m := f.write(conversation)
		for _, p := range f.peers {
			f.push(p, m)
		}
	}
}

// write stores a message of another user, and pushes nothing.
func (f *fake) write(conversation string) protocol.Message {
	cv := f.conversation(conversation)
	text := fmt.Sprintf("%s %d", conversation, len(cv.log)+1)
	return f.append(cv, protocol.Message{Sender: "bob", ClientMsgID: text, ContentType: protocol.ContentText, Content: []byte(text)})
}

// fill stores n messages without pushing them.
func (f *fake) fill(conversation string, n int) {
	f.locked(func() {
		for range n {
			f.write(conversation)
		}
	})
}

// change changes a message, as a revoke does.
func (f *fake) change(conversation string, seq uint64, with func(m *protocol.Message)) {
	cv := f.conversation(conversation)
	f.stamp++
	cv.stamp = f.stamp
	cv.changes = append(cv.changes, seq)
	with(&cv.log[seq-1])
	cv.log[seq-1].ChangeSeq = uint64(len(cv.changes))
}

func (cv *fakeConversation) view() protocol.Conversation {
	return protocol.Conversation{
		ConversationID: cv.id, MaxSeq: uint64(len(cv.log)), MinSeq: cv.minSeq, ChangeSeq: uint64(len(cv.changes)),
	}
}

// answerSync: a token is a stamp; a cursor is "stamp of the token to come/offset".
func (p *peer) answerSync(fr protocol.Frame) {
	var s protocol.Sync
	p.decode(fr, &s)
	since, _ := strconv.Atoi(s.Token)
	upTo, offset := p.f.stamp, 0
	if s.Cursor != "" {
		fmt.Sscanf(s.Cursor, "%d/%d", &upTo, &offset)
	}
	var list []*fakeConversation
	for _, cv := range p.f.convs {
		if cv.stamp > since {
			list = append(list, cv)
		}
	}
	slices.SortFunc(list, func(a, b *fakeConversation) int { return strings.Compare(a.id, b.id) })
	reply := protocol.SyncReply{}
	end := min(offset+int(s.Limit), len(list))
	for _, cv := range list[min(offset, end):end] {
		reply.Conversations = append(reply.Conversations, cv.view())
	}
	if end < len(list) {
		reply.NextCursor = fmt.Sprintf("%d/%d", upTo, end)
	} else {
		reply.Token = strconv.Itoa(upTo)
	}
	p.write(fr.Command.Reply(), fr.RequestID, &reply)
}

func (p *peer) answerPull(fr protocol.Frame) {
	var q protocol.Pull
	p.decode(fr, &q)
	cv := p.f.convs[q.ConversationID]
	if cv == nil {
		p.fail(fr.RequestID, protocol.CodeNotFound, 0)
		return
	}
	p.write(fr.Command.Reply(), fr.RequestID, cv.pull(q))
}

func (cv *fakeConversation) pull(q protocol.Pull) *protocol.PullReply {
	tail := uint64(len(cv.log))
	reply := &protocol.PullReply{MinSeq: cv.minSeq, MaxSeq: tail}
	from, to := max(q.FromSeq, cv.minSeq), tail
	if q.ToSeq != 0 {
		to = min(to, q.ToSeq)
	}
	var all []protocol.Message
	for seq := from; seq <= to; {
		m := cv.show(seq)
		if placeholder(&m) { // a run of one status is one entry
			m.Run = 1
			for seq+uint64(m.Run) <= to && cv.show(seq+uint64(m.Run)).Status == m.Status {
				m.Run++
			}
			seq += uint64(m.Run) - 1
		}
		all = append(all, m)
		seq++
	}
	if q.NewestFirst {
		slices.Reverse(all)
	}
	n, size := 0, 0
	for n < len(all) && n < int(q.Limit) && size+len(all[n].Content) < 400<<10 {
		size += len(all[n].Content)
		n++
	}
	reply.Messages, reply.More = all[:n], n < len(all)
	return reply
}

func (p *peer) answerChanges(fr protocol.Frame) {
	var q protocol.Changes
	p.decode(fr, &q)
	cv := p.f.conversation(q.ConversationID)
	var reply protocol.ChangesReply
	reply.Next = q.Since
	if now := uint64(len(cv.changes)); q.Since > now || p.f.behind > 0 && now-q.Since > p.f.behind {
		p.write(fr.Command.Reply(), fr.RequestID, &protocol.ChangesReply{Next: now, Reset: true})
		return
	}
	for i := q.Since; i < uint64(len(cv.changes)); i++ {
		if len(reply.Messages) == int(q.Limit) {
			reply.More = true
			break
		}
		if m := cv.log[cv.changes[i]-1]; m.ChangeSeq == i+1 {
			reply.Messages = append(reply.Messages, cv.show(m.Seq))
		}
		reply.Next = i + 1
	}
	p.write(fr.Command.Reply(), fr.RequestID, &reply)
}

func (p *peer) answerGet(fr protocol.Frame) {
	var q protocol.GetConversations
	p.decode(fr, &q)
	var reply protocol.GetConversationsReply
	for _, id := range q.ConversationIDs {
		if cv := p.f.convs[id]; cv != nil {
			reply.Conversations = append(reply.Conversations, cv.view())
		}
	}
	p.write(fr.Command.Reply(), fr.RequestID, &reply)
}

// last is the newest connection.
func (f *fake) last() (p *peer) {
	f.locked(func() { p = f.newest() })
	return p
}

// newest is last, with mu held; without any connection one that is gone.
func (f *fake) newest() *peer {
	if n := len(f.peers); n > 0 {
		return f.peers[n-1]
	}
	return &peer{f: f, nc: deadConn{}}
}

// sent returns the frames of one command that the client sent so far.
func (f *fake) sent(cmd protocol.Command) (list []seen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.frames {
		if s.Command == cmd {
			list = append(list, s)
		}
	}
	return list
}

// pulls returns the PULLs that the client sent so far.
func (f *fake) pulls() (list []protocol.Pull) {
	for _, s := range f.sent(protocol.CmdPull) {
		var q protocol.Pull
		s.peer.decode(s.Frame, &q)
		list = append(list, q)
	}
	return list
}

// connections is how many there were so far.
func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.peers)
}

// deadConn is a connection that is gone.
type deadConn struct{ net.Conn }

func (deadConn) SetWriteDeadline(time.Time) error { return net.ErrClosed }
func (deadConn) Write([]byte) (int, error)        { return 0, net.ErrClosed }
func (deadConn) Close() error                     { return nil }
