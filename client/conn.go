package client

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-im/parley/protocol"
)

// maxUncounted bounds the bytes that wait to be written when a frame that may be dropped (SIGNAL, PUSH_ACK) is added.
// Requests are bounded by max_inflight and max_body.
const maxUncounted = 256 << 10

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
	hangUp(k.nc)
	for _, r := range pending {
		r.result <- result{err: &lostError{err}}
	}
}

// hangUp closes a connection at once. Over TLS that leaves out the farewell, which could wait for a peer that does not read; frames
// say themselves whether they are whole.
func hangUp(nc net.Conn) {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	nc.Close()
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
