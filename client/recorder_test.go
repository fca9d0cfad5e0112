package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

// recorder is an app: it keeps what its handlers were given.
type recorder struct {
	mu       sync.Mutex
	messages []protocol.Message
	changes  []protocol.Message
	stale    []string
	pages    []ListPage
	events   []protocol.Event
	signals  []protocol.Signal
	own      []protocol.OwnState // what OnDeleted and OnCleared were told
	states   []ConnState
	ends     []error // of OnConnState
	results  []result2
	// gate, when set, is waited for by OnMessage.
	gate chan struct{}
}

type result2 struct {
	entry Entry
	ack   protocol.SendAck
	err   error
}

func (r *recorder) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recorder) options(o *Options) {
	o.OnMessage = func(ctx context.Context, m protocol.Message) error {
		if r.gate != nil {
			select {
			case <-r.gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.locked(func() { r.messages = append(r.messages, m) })
		return nil
	}
	o.OnChange = func(_ context.Context, m protocol.Message) error {
		r.locked(func() { r.changes = append(r.changes, m) })
		return nil
	}
	o.OnStale = func(_ context.Context, id string) error {
		r.locked(func() { r.stale = append(r.stale, id) })
		return nil
	}
	o.OnList = func(_ context.Context, p ListPage) error {
		r.locked(func() { r.pages = append(r.pages, p) })
		return nil
	}
	own := func(s protocol.OwnState) error {
		r.locked(func() { r.own = append(r.own, s) })
		return nil
	}
	o.OnDeleted = func(_ context.Context, id string, seqs []uint64) error {
		return own(protocol.OwnState{Op: protocol.OwnDelete, ConversationID: id, Seqs: seqs})
	}
	o.OnCleared = func(_ context.Context, id string, upTo uint64) error {
		return own(protocol.OwnState{Op: protocol.OwnClear, ConversationID: id, UpToSeq: upTo})
	}
	o.OnEvent = func(_ context.Context, e protocol.Event) { r.locked(func() { r.events = append(r.events, e) }) }
	o.OnSignal = func(_ context.Context, s protocol.Signal) { r.locked(func() { r.signals = append(r.signals, s) }) }
	o.OnSent = func(e Entry, a protocol.SendAck, err error) {
		r.locked(func() { r.results = append(r.results, result2{e, a, err}) })
	}
	o.OnConnState = func(s ConnState, err error) {
		r.locked(func() { r.states, r.ends = append(r.states, s), append(r.ends, err) })
	}
}

// seqs is what OnMessage got of a conversation, in order.
func (r *recorder) seqs(conversation string) (list []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.messages {
		if m.ConversationID == conversation {
			list = append(list, m.Seq)
		}
	}
	return list
}

// wantSeqs checks that OnMessage got exactly from..to of a conversation, in order.
func (r *recorder) wantSeqs(t *testing.T, conversation string, from, to uint64) {
	t.Helper()
	var want []uint64
	for seq := from; seq <= to; seq++ {
		want = append(want, seq)
	}
	if got := r.seqs(conversation); !slices.Equal(got, want) {
		t.Errorf("%s: the app got %v, want %d..%d", conversation, brief(got), from, to)
	}
}

func brief(list []uint64) string {
	if len(list) <= 40 {
		return fmt.Sprint(list)
	}
	return fmt.Sprintf("%v … %v (%d)", list[:20], list[len(list)-20:], len(list))
}

// connect makes a client of the fake and starts it. stop closes both.
func connect(t *testing.T, f *fake, tune ...func(*Options)) (c *Client, r *recorder) {
	t.Helper()
	r = &recorder{}
	o := Options{
		Addr: "fake:1", Plaintext: true, DialContext: f.dial, DeviceID: device, Platform: protocol.PlatformLinux,
		Token: func(context.Context) (string, error) { return "token", nil },
	}
	r.options(&o)
	for _, fn := range tune {
		fn(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.Start()
	return c, r
}

// stop closes both ends.
func stop(t *testing.T, f *fake, c *Client) {
	t.Helper()
	if err := c.Close(); err != nil && !errors.Is(err, errExpected) {
		t.Errorf("the client had stopped: %v", err)
	}
	f.close()
}

var errExpected = errors.New("a handler failed")

// rest lets time pass in a bubble, and then everything come to rest.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
