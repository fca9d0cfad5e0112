package logic

import (
	"context"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// maxPushMessages bounds the messages of one PUSH.
const maxPushMessages = protocol.MaxArray

// outbox gathers what a batch has to say to connections, so that it goes to the gateway in one call. Its buffers are used again for
// the next batch; slices that were taken before a buffer grew stay valid.
type outbox struct {
	deliveries []protocol.Delivery
	frames     []byte
	sessions   []protocol.SessionID
	users      []string
	routes     [][]storage.Route
	ack        protocol.SendAck
}

// maxKeptFrames is the largest buffer that an outbox keeps.
const maxKeptFrames = 8 << 20

func (o *outbox) reset() {
	clear(o.deliveries)
	clear(o.users)
	clear(o.routes)
	o.deliveries, o.frames, o.sessions, o.users, o.routes = o.deliveries[:0], o.frames[:0], o.sessions[:0], o.users[:0], o.routes[:0]
	if cap(o.frames) > maxKeptFrames {
		o.frames = nil
	}
}

// since makes a delivery of the frames from start on, to the sessions from first on.
func (o *outbox) since(start, first, replies int) {
	o.deliveries = append(o.deliveries, protocol.Delivery{
		To: o.sessions[first:len(o.sessions):len(o.sessions)], Frames: o.frames[start:len(o.frames):len(o.frames)], Replies: replies,
	})
}

// emit acks a durable batch to its senders and pushes its messages to every other device of both sides. Within a
// conversation, and so on every connection, all goes out in the order of seq. A message is encoded once, in its run, and the same
// bytes go to all: nobody has labelled or read it yet, so they are what storage.Project makes of it for any viewer.
func (l *Logic) emit(b *batch) {
	o := &b.out
	o.reset()
	routes := l.findRoutes(o, b.parts)
	for i, p := range b.parts {
		if !p.refused {
			l.emitRun(o, p, routes[2*i:2*i+2])
		}
	}
	l.o.Gateway.Deliver(o.deliveries)
	for _, p := range b.parts {
		if p.refused {
			continue
		}
		// Not before: a worker that answers a repeat must not overtake what went out above, or a connection learns of a message
		// before the one below it.
		for _, rec := range p.recs {
			l.known.put(rec.ID, rec.Message.Seq)
		}
		l.emitRepeats(p)
		l.m.messages.Add(float64(len(p.recs)))
	}
}

// findRoutes looks up the devices of both users of each conversation, in one call. Without an answer nobody is pushed to: the
// messages are stored, and devices learn of them by SYNC.
func (l *Logic) findRoutes(o *outbox, parts []*part) [][]storage.Route {
	for _, p := range parts {
		o.users = append(o.users, p.c.users[0], p.c.users[1])
	}
	var err error
	if o.routes, err = l.o.Routes.Online(context.Background(), o.users, o.routes); err != nil || len(o.routes) != len(o.users) {
		l.log.Error("routes not found, messages are not pushed", "err", err)
		l.m.unrouted.Add(float64(len(o.users)))
		o.routes = append(o.routes[:0], make([][]storage.Route, len(o.users))...)
	}
	return o.routes
}

// emitRun takes the run's messages by stretches that came from one connection: that one gets acks, all others a PUSH.
func (l *Logic) emitRun(o *outbox, p *part, routes [][]storage.Route) {
	for from := 0; from < len(p.recs); {
		to := p.stretch(from, l.o.MaxDown)
		l.push(o, p, from, to, routes)
		o.acks(p.recs[from:to])
		if p.recs[from].Origin.Reply != nil {
			o.tellOwn(p.recs[from:to], routes[0])
		}
		from = to
	}
}

// stretch is the end of the messages from one connection that begin at from, as many as fit into a PUSH.
func (p *part) stretch(from, maxDown int) (to int) {
	origin := p.recs[from].Origin.Session
	for to = from + 1; to < len(p.recs) && to-from < maxPushMessages; to++ {
		if p.recs[to].Origin.Session != origin || p.wireStart(to+1)-p.wireStart(from) > maxDown-pushOverhead {
			break
		}
	}
	return to
}

const pushOverhead = 8 // bytes of a PUSH's body besides its messages, at most

func (l *Logic) push(o *outbox, p *part, from, to int, routes [][]storage.Route) {
	first := len(o.sessions)
	o.addSessions(routes[0], p.recs[from].Origin.Session)
	if p.c.users[0] != p.c.users[1] {
		o.addSessions(routes[1], p.recs[from].Origin.Session)
	}
	if len(o.sessions) == first {
		return
	}
	start := len(o.frames)
	wire := p.run.Wire[p.wireStart(from):p.wireStart(to)]
	o.frames = protocol.AppendPush(o.frames, l.nextPushID(), to-from, wire)
	o.since(start, first, 0)
	l.m.pushes.Add(float64((to - from) * (len(o.sessions) - first)))
}

func (o *outbox) addSessions(routes []storage.Route, except protocol.SessionID) {
	for i := range routes {
		if id := routes[i].Session; id != except {
			o.sessions = append(o.sessions, id)
		}
	}
}

// nextPushID gives a PUSH the id that PUSH_ACK echoes: never 0.
func (l *Logic) nextPushID() uint32 {
	for {
		if id := l.pushID.Add(1); id != 0 {
			return id
		}
	}
}

// acks answers records of one connection.
func (o *outbox) acks(recs []*storage.Record) {
	start, first := len(o.frames), len(o.sessions)
	for _, rec := range recs {
		if rec.Origin.Reply != nil {
			o.frames = protocol.AppendRawFrame(o.frames, rec.Origin.Command.Reply(), rec.Origin.RequestID, rec.Origin.Reply)
			continue
		}
		o.ack = ackOf(&rec.Message)
		o.frames = protocol.AppendFrame(o.frames, protocol.CmdSendAck, rec.Origin.RequestID, &o.ack)
	}
	o.sessions = append(o.sessions, recs[0].Origin.Session)
	o.since(start, first, len(recs))
}

func ackOf(m *protocol.Message) protocol.SendAck {
	return protocol.SendAck{
		ClientMsgID: m.ClientMsgID, ServerMsgID: m.ServerMsgID, ConversationID: m.ConversationID, SendTimeMS: m.SendTimeMS, Seq: m.Seq,
	}
}

// emitRepeats has repeats answered with what their original got. By now that is durable, also when it was in this same batch. It is read
// from the store by a worker, in the sender's own turn, so that who repeats much waits for it alone.
func (l *Logic) emitRepeats(p *part) {
	for _, r := range p.repeats {
		l.known.put(r.rec.ID, r.seq)
		s := l.sessions.get(r.rec.Origin.Session)
		if s == nil { // nobody waits for the answer
			continue
		}
		if !l.pool.submit(s, job{command: jobKnown, record: r.rec, seq: r.seq, repeat: true}) {
			l.refuseOrigin(r.rec.Origin, unavailable())
		}
	}
}

// slot reads one message, for a viewer or for nobody. That it is missing at or below the tail cannot be: the error is internal.
func (l *Logic) slot(conversation, viewer string, seq uint64) (slot *storage.Slot, err error) {
	err = l.o.Buckets.Slots(l.ctx, conversation, viewer, []uint64{seq}, func(s *storage.Slot) bool {
		slot = s
		return false
	})
	if err == nil && slot == nil {
		err = l.hole(conversation, seq)
	}
	return slot, err
}

// hole raises the alarm: a seq at or below the tail has nothing stored.
func (l *Logic) hole(conversation string, seq uint64) error {
	l.m.holes.Inc()
	l.log.Error("ALARM: nothing is stored at a seq below the tail", "conversation", conversation, "seq", seq)
	return &protocol.Error{Code: protocol.CodeInternal, Message: "internal error", RetryAfterMS: 1000}
}
