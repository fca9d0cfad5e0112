package client

import (
	"bytes"
	"context"
	"time"

	"github.com/parley-im/parley/protocol"
)

// request is a request in flight.
type request struct {
	cmd     protocol.Command
	onReply func(body []byte) // called by the reading goroutine, in the order of the frames; may be nil
	result  chan result       // capacity 1
	due     time.Time         // when the reply is late; of the goroutine that waits, set when it begins to
}

type result struct {
	body []byte
	err  error
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
	timer := k.lateTimer(r)
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

// waitOr waits until wait would not block any more; false when there was more before.
func (k *conn) waitOr(ctx context.Context, r *request, more <-chan struct{}) bool {
	timer := k.lateTimer(r)
	defer timer.Stop()
	select {
	case got := <-r.result:
		r.result <- got // for wait; there is never a second one
	case <-ctx.Done():
	case <-timer.C:
	case <-more:
		return false
	}
	return true
}

func (k *conn) lateTimer(r *request) *time.Timer {
	if r.due.IsZero() {
		r.due = time.Now().Add(k.timeout)
	}
	return time.NewTimer(time.Until(r.due))
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
