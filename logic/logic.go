package logic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Options for New. Log, Buckets, Routes, Directory, Changes and Gateway are required.
type Options struct {
	Log       storage.Log
	Buckets   storage.Buckets
	Routes    storage.Routes
	Directory storage.Directory
	Changes   storage.Changes
	Gateway   Gateway

	GatewayName string // how routes name the gateway; "" in a single process
	MaxBody     int    // bytes of a request's body; 0: protocol.DefaultMaxBody
	MaxDown     int    // bytes of a body from the server; 0: protocol.DefaultMaxDown
	Workers     int    // goroutines that answer reads; 0: 8 for each CPU
	StateBytes  int64  // memory for the states of conversations, a partition; 0: 512 MiB

	RevokeWithin time.Duration // how long senders may take a message back; 0: 24 hours
	EditWithin   time.Duration // and change it

	Now        func() time.Time      // nil: time.Now
	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: no metrics are exported
}

// messageOverhead is the most that a message's encoding is larger than the SEND it came from: conversation, sender, server_msg_id and fixed fields.
const messageOverhead = 512

// reactionsBytes is the most that the reactions on a message take.
const reactionsBytes = protocol.MaxReactions*(protocol.MaxReactionLen+16) + protocol.MaxReactors*(protocol.MaxIDLen+2)

// Logic answers the requests of the sessions of one gateway. It implements conn.Logic.
type Logic struct {
	o        Options
	log      *slog.Logger
	m        *metrics
	epoch    string
	sessions sessionTable
	pool     *pool
	consumer *sequencers
	pushID   atomic.Uint32
	known    known
	consumed chan error // Consume's return
	cancel   context.CancelFunc
	ctx      context.Context // ends when Close begins to give up on reads
	closing  sync.Once
	closeErr error
}

// New checks the options and reads the store's epoch.
func New(o Options) (*Logic, error) {
	if o.Log == nil || o.Buckets == nil || o.Routes == nil || o.Directory == nil || o.Changes == nil || o.Gateway == nil {
		return nil, errors.New("logic: Log, Buckets, Routes, Directory, Changes and Gateway are required")
	}
	setDefaults(&o)
	if least := leastMaxDown(o.MaxBody); o.MaxDown < least {
		return nil, fmt.Errorf("logic: max_down (%d) must be at least %d with a max_body of %d, or there could be replies that do not fit",
			o.MaxDown, least, o.MaxBody)
	}
	ctx, cancel := context.WithCancel(context.Background())
	epoch, err := o.Directory.Epoch(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("logic: read the store's epoch: %w", err)
	}
	l := &Logic{o: o, log: o.Logger, epoch: epoch, ctx: ctx, cancel: cancel,
		consumed: make(chan error, 1), known: make(known, knownPlaces)}
	if l.m, err = newMetrics(o.Registerer); err != nil {
		cancel()
		return nil, fmt.Errorf("logic: register metrics: %w", err)
	}
	l.pool = newPool(o.Workers, l.serve)
	l.consumer = newSequencers(l)
	return l, nil
}

// leastMaxDown has room for any one message with all that may be on it, and for a hundred conversations without one.
func leastMaxDown(maxBody int) int {
	return replyOverhead + max(maxBody+messageOverhead+reactionsBytes, protocol.MaxArray*conversationBytes)
}

func setDefaults(o *Options) {
	if o.MaxBody == 0 {
		o.MaxBody = protocol.DefaultMaxBody
	}
	if o.MaxDown == 0 {
		o.MaxDown = protocol.DefaultMaxDown
	}
	if o.Workers == 0 {
		o.Workers = 8 * runtime.GOMAXPROCS(0)
	}
	if o.StateBytes == 0 {
		o.StateBytes = 512 << 20
	}
	o.RevokeWithin = cmp.Or(o.RevokeWithin, 24*time.Hour)
	o.EditWithin = cmp.Or(o.EditWithin, 24*time.Hour)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Start begins to take records off the log and to answer requests.
func (l *Logic) Start() error {
	l.pool.start()
	go func() {
		err := l.o.Log.Consume(l.consumer)
		l.consumer.close()
		l.consumed <- err
	}()
	return nil
}

// Ready is nil while sends are accepted.
func (l *Logic) Ready() error { return l.o.Log.Ready() }

// Close refuses new sends, finishes and answers what is queued, and stops. The gateway must have stopped handing in requests.
func (l *Logic) Close() error {
	l.closing.Do(func() {
		err := l.o.Log.Close()
		l.closeErr = errors.Join(err, <-l.consumed)
		l.pool.close()
		l.cancel()
	})
	return l.closeErr
}

// Handle takes the frames of one read of one session, in order. It is called on the session's event loop and does not block: a SEND
// is checked and appended to the log here; what reads the store waits in the session's mailbox. Bodies are copied.
func (l *Logic) Handle(id protocol.SessionID, frames []protocol.Frame) {
	s := l.sessions.get(id)
	if s == nil {
		return
	}
	var in *intake
	for i := range frames {
		f := &frames[i]
		switch f.Command {
		case protocol.CmdSend:
			if in == nil {
				in = newIntake(frames[i:], l.o.Now().UnixMilli())
			}
			l.send(s, f, in)
		case protocol.CmdPushAck:
			l.m.pushAcks.Inc()
		case protocol.CmdSignal:
			if !s.maySignal() || len(f.Body) > maxSignalBody {
				l.m.dropped.WithLabelValues(f.Command.String()).Inc()
				continue
			}
			l.enqueue(s, f)
		case jobClosed: // is no command, but for the pool
			l.refuse(s.ID, f.RequestID, f.Command, protocol.Errorf(protocol.CodeUnknownCommand, "command 0 is not known here"))
		default:
			l.enqueue(s, f)
		}
	}
}

// enqueue puts a request into the session's mailbox. The gateway bounds requests in flight; the mailbox has a bound of its own for
// frames that do not count, which have no reply to miss.
func (l *Logic) enqueue(s *session, f *protocol.Frame) {
	j := job{command: f.Command, requestID: f.RequestID, body: append([]byte(nil), f.Body...)}
	if l.pool.submit(s, j) {
		return
	}
	if !f.Command.CountsInFlight() {
		l.m.dropped.WithLabelValues(f.Command.String()).Inc()
		return
	}
	l.refuse(s.ID, f.RequestID, f.Command, &protocol.Error{Code: protocol.CodeRateLimited, Message: "too many requests wait", RetryAfterMS: 1000})
}

// serve answers one request, on a worker of the pool. The switch has a line a verb.
func (l *Logic) serve(s *session, j job) {
	var reply protocol.Body
	var err error
	switch j.command {
	case protocol.CmdSync:
		reply, err = answer(l, s, j, l.sync)
	case protocol.CmdPull:
		reply, err = answer(l, s, j, l.pull)
	case protocol.CmdGetConversation:
		reply, err = answer(l, s, j, l.getConversations)
	case protocol.CmdChanges:
		reply, err = answer(l, s, j, l.changes)
	case protocol.CmdRevoke:
		err = accept(s, j, l.revoke)
	case protocol.CmdEdit:
		err = accept(s, j, l.edit)
	case protocol.CmdReact:
		err = accept(s, j, l.react)
	case protocol.CmdDelete:
		err = accept(s, j, l.delete)
	case protocol.CmdClear:
		err = accept(s, j, l.clear)
	case protocol.CmdRead:
		reply, err = answer(l, s, j, l.read)
	case protocol.CmdUnread:
		reply, err = answer(l, s, j, l.unread)
	case protocol.CmdSignOut:
		err = l.signOut(s, j)
	case protocol.CmdSignal:
		l.signal(s, j)
		return
	case jobKnown:
		l.answerKnown(j)
		return
	case jobClosed:
		l.forget(s)
		return
	default:
		err = protocol.Errorf(protocol.CodeUnknownCommand, "command %d is not known here", j.command)
	}
	if err != nil {
		l.refuse(s.ID, j.requestID, j.command, err)
		return
	}
	if reply != nil { // or it was sent, or comes from behind the log
		l.reply(s.ID, j, reply)
	}
}

// answer decodes a request and hands it to its verb.
func answer[Q any, PQ interface {
	*Q
	protocol.Body
}, R any, PR interface {
	*R
	protocol.Body
}](_ *Logic, s *session, j job, verb func(*session, PQ) (PR, error)) (protocol.Body, error) {
	q := PQ(new(Q))
	if err := protocol.UnmarshalAlias(j.body, q); err != nil {
		return nil, err
	}
	r, err := verb(s, q)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// reply sends the reply to a request.
func (l *Logic) reply(id protocol.SessionID, j job, body protocol.Body) {
	l.m.requests.WithLabelValues(j.command.String(), "ok").Inc()
	frame := protocol.AppendFrame(nil, j.command.Reply(), j.requestID, body)
	l.deliver(protocol.Delivery{To: []protocol.SessionID{id}, Frames: frame, Replies: 1})
}

// refuse sends ERROR for a request: a code for the peer; what lies behind an error of the store is for the operator, in the log.
func (l *Logic) refuse(id protocol.SessionID, requestID uint32, command protocol.Command, err error) {
	e := l.errorFor(command, err)
	l.m.requests.WithLabelValues(commandLabel(command), e.Code.String()).Inc()
	frame := protocol.AppendFrame(nil, protocol.CmdError, requestID, e)
	l.deliver(protocol.Delivery{To: []protocol.SessionID{id}, Frames: frame, Replies: 1, Close: e.Code.Closes()})
}

// commandLabel keeps the label's values few, whatever numbers a client sends.
func commandLabel(c protocol.Command) string {
	if name := c.String(); name[0] < '0' || name[0] > '9' {
		return name
	}
	return "unknown"
}

// errorFor translates an error to what the peer is told: the one place where that is done.
func (l *Logic) errorFor(command protocol.Command, err error) *protocol.Error {
	var e *protocol.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, storage.ErrFull), errors.Is(err, storage.ErrClosed), errors.Is(err, storage.ErrStale),
		errors.Is(err, storage.ErrUnavailable), errors.Is(err, context.Canceled):
		return unavailable()
	case errors.Is(err, storage.ErrInvalidSeq):
		return protocol.Errorf(protocol.CodeInvalidArgument, "seq is out of range")
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrGone):
		return protocol.Errorf(protocol.CodeNotFound, "no such message")
	}
	l.log.Error("request failed", "command", command.String(), "err", err)
	return &protocol.Error{Code: protocol.CodeInternal, Message: "internal error", RetryAfterMS: 1000}
}

func unavailable() *protocol.Error {
	return &protocol.Error{Code: protocol.CodeUnavailable, Message: "try again", RetryAfterMS: 1000}
}

func (l *Logic) deliver(d protocol.Delivery) { l.o.Gateway.Deliver([]protocol.Delivery{d}) }
