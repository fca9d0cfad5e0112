package client

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-im/parley/protocol"
)

// maxUncounted bounds the bytes that wait to be written when a frame that may be dropped (SIGNAL, PUSH_ACK) is added.
// Requests are bounded by max_inflight and max_body.
const maxUncounted = 256 << 10

// pingID is the request id of every PING: nobody waits for a certain PONG, any frame is a sign of life.
const pingID = 1<<32 - 1

// conn is one connection that is signed in. It ends once, by fail; everything that waits for it then gets a lostError.
type conn struct {
	nc      net.Conn
	in      *frames
	welcome protocol.Welcome
	timeout time.Duration // for a reply, and for a sign of life
	gen     uint64        // of the inbox, when this connection was taken on
	count   *counters

	born  time.Time
	sent  atomic.Int64  // when something was last written, since born
	heard atomic.Int64  // when something was last read, since born
	life  chan struct{} // capacity 1: something was read

	slots  chan struct{}      // one for each request in flight
	wake   chan struct{}      // capacity 1: there is something to write
	goaway chan time.Duration // capacity 1
	done   chan struct{}      // closed by fail

	mu       sync.Mutex
	err      error // why it ended
	out      []byte
	pending  map[uint32]*request
	lastID   uint32
	silent   int  // requests that timed out since the last reply
	retiring bool // ends when nothing is pending
}

// request is a request in flight.
type request struct {
	cmd     protocol.Command
	onReply func(body []byte) // called by the reading goroutine, in the order of the frames; may be nil
	result  chan result       // capacity 1
}

type result struct {
	body []byte
	err  error
}

func newConn(nc net.Conn, timeout time.Duration, count *counters) *conn {
	k := &conn{
		nc: nc, timeout: timeout, count: count, born: time.Now(), life: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), goaway: make(chan time.Duration, 1), done: make(chan struct{}),
		pending: map[uint32]*request{},
	}
	k.in = newFrames(nc, k.heardNow)
	return k
}

func (k *conn) heardNow() {
	k.heard.Store(int64(time.Since(k.born)))
	signal(k.life)
}

// signal makes a channel of capacity 1 ready.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// fail ends the connection, once. Any goroutine may call it.
func (k *conn) fail(err error) {
	k.mu.Lock()
	if k.err != nil {
		k.mu.Unlock()
		return
	}
	k.err = err
	pending := k.pending
	k.pending = nil
	close(k.done)
	k.mu.Unlock()
	k.nc.Close()
	for _, r := range pending {
		r.result <- result{err: &lostError{err}}
	}
}

// cause is why it ended; nil while it lives.
func (k *conn) cause() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *conn) alive() bool {
	select {
	case <-k.done:
		return false
	default:
		return true
	}
}

// retire ends the connection when the requests in flight have their replies, at the latest after the time for a reply.
func (k *conn) retire() {
	k.mu.Lock()
	k.retiring = true
	idle := len(k.pending) == 0
	k.mu.Unlock()
	if idle {
		k.fail(errRetired)
		return
	}
	time.AfterFunc(k.timeout, func() { k.fail(errRetired) })
}

// start sends a request. It waits for room in flight. onReply may be nil.
func (k *conn) start(ctx context.Context, cmd protocol.Command, body []byte, onReply func([]byte)) (*request, error) {
	select {
	case k.slots <- struct{}{}:
	case <-k.done:
		return nil, &lostError{k.cause()}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r := &request{cmd: cmd, onReply: onReply, result: make(chan result, 1)}
	if err := k.register(r, body); err != nil {
		<-k.slots
		return nil, err
	}
	signal(k.wake)
	return r, nil
}

func (k *conn) register(r *request, body []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return &lostError{k.err}
	}
	if k.retiring {
		return &lostError{errRetired}
	}
	id := k.freeID()
	k.pending[id] = r
	k.out = protocol.AppendRawFrame(k.out, r.cmd, id, body)
	return nil
}

func (k *conn) freeID() uint32 {
	for {
		k.lastID++
		if _, taken := k.pending[k.lastID]; k.lastID != 0 && k.lastID != pingID && !taken {
			return k.lastID
		}
	}
}

// wait waits for the reply to r. After an error of ctx or a timeout the request still counts as in flight, as it does for the server.
func (k *conn) wait(ctx context.Context, r *request) ([]byte, error) {
	timer := time.NewTimer(k.timeout)
	defer timer.Stop()
	select {
	case got := <-r.result:
		return got.body, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		k.late()
		return nil, ErrTimeout
	}
}

// late notes that a reply did not come in time. The server promises one, so the second in a row ends the connection.
func (k *conn) late() {
	k.mu.Lock()
	k.silent++
	broken := k.silent >= 2
	k.mu.Unlock()
	if broken {
		k.fail(ErrTimeout)
	}
}

// call is start and wait, with bodies.
func (k *conn) call(ctx context.Context, cmd protocol.Command, body, reply protocol.Body) error {
	var b []byte
	if body != nil {
		b = protocol.AppendBody(nil, body)
	}
	if err := k.fits(b); err != nil {
		return err
	}
	r, err := k.start(ctx, cmd, b, nil)
	if err != nil {
		return err
	}
	got, err := k.wait(ctx, r)
	if err != nil || reply == nil {
		return err
	}
	return k.decode(got, reply)
}

// decode decodes what the server sent. Bytes that are not of this protocol end the connection.
func (k *conn) decode(b []byte, into protocol.Body) error {
	if err := protocol.Unmarshal(b, into); err != nil {
		lost := &lostError{err}
		k.fail(lost)
		return lost
	}
	return nil
}

// fits refuses a body that the server would close the connection for.
func (k *conn) fits(body []byte) error {
	if len(body) > int(k.welcome.MaxBody) {
		return protocol.Errorf(protocol.CodeTooLarge, "the body has %d bytes, the limit is %d", len(body), k.welcome.MaxBody)
	}
	return nil
}

// settle gives a reply, or an error, to the request that it answers. Late and unknown ones are ignored.
func (k *conn) settle(f protocol.Frame, err error) {
	k.mu.Lock()
	r := k.pending[f.RequestID]
	if r == nil || err == nil && f.Command != r.cmd.Reply() {
		k.mu.Unlock()
		return
	}
	k.silent = 0
	if err == nil && r.onReply != nil {
		k.mu.Unlock() // this goroutine alone takes requests off pending, except fail
		r.onReply(f.Body)
		k.mu.Lock()
	}
	_, here := k.pending[f.RequestID]
	delete(k.pending, f.RequestID)
	last := k.retiring && len(k.pending) == 0
	k.mu.Unlock()
	if here {
		r.result <- result{body: bytes.Clone(f.Body), err: err}
		<-k.slots
	}
	if last {
		k.fail(errRetired)
	}
}

// post sends a frame that has no reply, or one that nobody waits for. It is dropped, and false, when too much waits already.
func (k *conn) post(cmd protocol.Command, id uint32, body protocol.Body) bool {
	k.mu.Lock()
	room := k.err == nil && len(k.out) < maxUncounted
	if room {
		k.out = protocol.AppendFrame(k.out, cmd, id, body)
	}
	k.mu.Unlock()
	if room {
		signal(k.wake)
	}
	return room
}

// ackPush tells the server that the app took a push.
func (k *conn) ackPush(id uint32) {
	if !k.post(protocol.CmdPushAck, id, nil) && k.alive() {
		k.count.acksDropped.Add(1)
	}
}

// write writes what is in out, until the connection ends.
func (k *conn) write() {
	var spare []byte
	for {
		select {
		case <-k.wake:
		case <-k.done:
			return
		}
		k.mu.Lock()
		out := k.out
		k.out = spare[:0]
		k.mu.Unlock()
		if err := k.flush(out); err != nil {
			k.fail(err)
			return
		}
		if spare = out; cap(spare) > keepBuffer {
			spare = nil
		}
	}
}

func (k *conn) flush(out []byte) error {
	if len(out) == 0 {
		return nil
	}
	if err := k.nc.SetWriteDeadline(time.Now().Add(k.timeout)); err != nil {
		return err
	}
	_, err := k.nc.Write(out)
	k.sent.Store(int64(time.Since(k.born)))
	return err
}

// heartbeat sends PING when nothing was sent, or nothing was heard, for the interval of WELCOME, and ends the connection when
// nothing comes back.
func (k *conn) heartbeat() {
	interval := time.Duration(k.welcome.HeartbeatS) * time.Second
	for {
		due := time.Duration(min(k.sent.Load(), k.heard.Load())) + interval - time.Since(k.born)
		if due <= 0 {
			if !k.ping() {
				return
			}
			continue
		}
		select {
		case <-time.After(due):
		case <-k.done:
			return
		}
	}
}

// ping is false when the connection ended.
func (k *conn) ping() bool {
	select {
	case <-k.life: // of before
	default:
	}
	k.post(protocol.CmdPing, pingID, nil)
	select {
	case <-k.life:
		// Until the PING is written too, so that it is not sent again at once.
		k.sent.Store(int64(time.Since(k.born)))
		return true
	case <-time.After(k.timeout):
		k.fail(errDead)
		return false
	case <-k.done:
		return false
	}
}
