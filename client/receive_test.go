package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

// everything fetches all that there is of a conversation on the first SYNC.
func everything(o *Options) { o.History = 1 << 30 }

// At seq 90 a push of 105 arrives: 91 to 104 are fetched, then 105 is handed on.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 90)
		c, r := connect(t, f, everything)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 90)
		before := len(f.pulls())
		f.fill(bob, 14)
		f.post(bob, 1)
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 105)
		pulls := f.pulls()[before:]
		if len(pulls) != 1 || pulls[0].FromSeq != 91 || pulls[0].ToSeq != 104 || pulls[0].NewestFirst {
			t.Errorf("PULLs %+v, want one of 91 to 104", pulls)
		}
	})
}

func TestPushesOutOfOrderAndTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		f.locked(func() {
			var list []protocol.Message
			for range 20 {
				list = append(list, f.write(bob))
			}
			p := f.peers[0]
			for _, seq := range []int{3, 1, 1, 2, 20, 3, 19, 7, 20, 4} {
				f.push(p, list[seq-1])
			}
			f.push(p, list...)
		})
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 20)
		if n := c.Stats().Duplicates; n == 0 {
			t.Error("no duplicates counted")
		}
	})
}

// A PUSH is acked after the app took everything in it, under its id.
func TestPushAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		gate := make(chan struct{})
		r := &recorder{gate: gate}
		c, _ := connect(t, f, r.options)
		defer stop(t, f, c)
		ready(t, c)
		var ids []uint32
		f.locked(func() {
			a, b, other := f.write(bob), f.write(bob), f.write("g:team")
			ids = append(ids, f.push(f.peers[0], a, b, other))
			ids = append(ids, f.push(f.peers[0], a)) // once more
		})
		for range 3 {
			synctest.Wait()
			if n := len(f.sent(protocol.CmdPushAck)); n == 2 {
				t.Error("acked before the app took it")
			}
			gate <- struct{}{}
		}
		synctest.Wait()
		var acked []uint32
		for _, s := range f.sent(protocol.CmdPushAck) {
			acked = append(acked, s.RequestID)
			if len(s.Body) != 0 {
				t.Error("PUSH_ACK with a body")
			}
		}
		slices.Sort(acked)
		if !slices.Equal(acked, ids) {
			t.Errorf("acked %v, want %v", acked, ids)
		}
	})
}

// What one's own message comes by, an ack with a seq or a PUSH, it comes once and in order.
func TestOwnMessages(t *testing.T) {
	for _, noSeq := range []bool{false, true} {
		t.Run(fmt.Sprintf("noSeq %v", noSeq), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.noSeq = noSeq
				c, r := connect(t, f)
				defer stop(t, f, c)
				ready(t, c)
				for i := range 10 {
					ack, err := c.Send(t.Context(), Text(User("bob"), fmt.Sprint("m", i)))
					if err != nil || (ack.Seq == 0) != noSeq {
						t.Fatalf("ack %+v, %v", ack, err)
					}
					f.post(bob, 1)
				}
				// Another device of mine.
				f.locked(func() {
					m := f.append(f.conversation(bob), protocol.Message{Sender: me, ClientMsgID: "there", ContentType: 1})
					f.push(f.peers[0], m)
				})
				synctest.Wait()
				r.wantSeqs(t, bob, 1, 21)
				if n := len(f.pulls()); n != 0 {
					t.Errorf("%d PULLs", n)
				}
			})
		})
	}
}

// An ack that shows that other messages are missing: they are fetched, and come first.
func TestOwnMessageBeyondGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		f.fill(bob, 5)
		if _, err := c.Send(t.Context(), Text(User("bob"), "six")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 6)
		if string(r.messages[5].Content) != "six" {
			t.Errorf("6 is %+v", r.messages[5])
		}
	})
}

// Gone, hidden and cleared seqs are passed over; revoked messages are shown as such; pages end where they end.
func TestPagesWithRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 1000)
		var want []uint64
		f.locked(func() {
			cv := f.conversation(bob)
			cv.minSeq = 11
			for seq := uint64(11); seq <= 1000; seq++ {
				m := &cv.log[seq-1]
				switch {
				case seq < 40 || seq > 300 && seq <= 700:
					*m = protocol.Message{ConversationID: bob, Seq: seq, Status: protocol.StatusGone}
				case seq%50 == 7 || seq > 980:
					*m = protocol.Message{ConversationID: bob, Seq: seq, Status: protocol.StatusHidden}
				case seq%50 == 9:
					m.Status, m.Content, m.Revoke = protocol.StatusRevoked, nil, &protocol.Revoke{User: "bob", Role: protocol.RoleSender}
					want = append(want, seq)
				default:
					want = append(want, seq)
				}
			}
		})
		c, r := connect(t, f, everything, func(o *Options) { o.PageSize = 30 })
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		if got := r.seqs(bob); !slices.Equal(got, want) {
			t.Errorf("the app got %v", brief(got))
		}
		for _, m := range r.messages {
			if (m.Seq%50 == 9) != (m.Status == protocol.StatusRevoked) {
				t.Errorf("seq %d has the status %d", m.Seq, m.Status)
			}
		}
		for _, q := range f.pulls() {
			if q.Limit > 30 {
				t.Errorf("PULL with the limit %d", q.Limit)
			}
		}
		// The cursor is at the end: what comes next needs no PULL.
		before := len(f.pulls())
		f.post(bob, 1)
		synctest.Wait()
		if got := r.seqs(bob); got[len(got)-1] != 1001 || len(f.pulls()) != before {
			t.Errorf("after the last run: %v, %d PULLs more", brief(got), len(f.pulls())-before)
		}
	})
}

// Pushed placeholders move the cursor too, whatever they overlap.
func TestPushedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		f.locked(func() {
			for range 10 {
				f.write(bob)
			}
			cv := f.conversation(bob)
			gone := func(seq uint64, run uint32) protocol.Message {
				return protocol.Message{ConversationID: bob, Seq: seq, Status: protocol.StatusGone, Run: run}
			}
			p := f.peers[0]
			f.push(p, gone(6, 3))                        // 6 7 8, held
			f.push(p, cv.log[9])                         // 10
			f.push(p, gone(1, 1), cv.log[1], gone(3, 5)) // 3 to 7, over 6
			f.push(p, gone(7, 2), cv.log[8])
		})
		synctest.Wait()
		if got := r.seqs(bob); !slices.Equal(got, []uint64{2, 9, 10}) {
			t.Errorf("the app got %v", got)
		}
		if c.inbox.pushedBytes != 0 {
			t.Errorf("%d bytes are still counted as held", c.inbox.pushedBytes)
		}
	})
}

// A slow app costs no memory beyond the bound, no connection, and no message.
func TestSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, size = 4000, 16 << 10 // 64 MB
		f := newFake(t)
		gate := make(chan struct{})
		r := &recorder{gate: gate}
		c, _ := connect(t, f, func(o *Options) {
			r.options(o)
			take := o.OnMessage
			o.OnMessage = func(ctx context.Context, m protocol.Message) error {
				if len(m.Content) != size {
					t.Errorf("seq %d has %d bytes", m.Seq, len(m.Content))
				}
				m.Content = nil
				return take(ctx, m)
			}
			o.HoldBytes = 1 << 20
			o.OnSignal = func(context.Context, protocol.Signal) {}
		})
		defer stop(t, f, c)
		ready(t, c)
		content := []byte(strings.Repeat("x", size)) // shared by all, so that only the client's copies take memory
		before := heap()
		f.locked(func() {
			for range n {
				m := f.append(f.conversation(bob), protocol.Message{Sender: "bob", ContentType: 1, Content: content})
				f.push(f.peers[0], m)
				f.peers[0].write(protocol.CmdSignal, 0, &protocol.Signal{Sender: "bob", Data: content})
			}
		})
		rest(10 * time.Minute)
		if grown := heap() - before; grown > 16<<20 {
			t.Errorf("%d MB more in use while the app is slow", grown>>20)
		}
		if f.connections() != 1 {
			t.Error("the connection did not last")
		}
		st := c.Stats()
		if st.PushesDropped < n/2 || st.SignalsDropped < n/2 {
			t.Errorf("dropped %d pushes and %d signals: the test is too small", st.PushesDropped, st.SignalsDropped)
		}
		close(gate)
		synctest.Wait()
		r.wantSeqs(t, bob, 1, n)
		if b := c.inbox; b.pushedBytes != 0 || b.fetchedBytes != 0 {
			t.Errorf("%d and %d bytes are still counted as held", b.pushedBytes, b.fetchedBytes)
		}
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Events that have no room are made good by a SYNC.
func TestLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 1)
		gate := make(chan struct{})
		r := &recorder{gate: gate}
		c, _ := connect(t, f, r.options)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait() // the handler waits with the first message
		f.locked(func() {
			for i := range 2 * maxNotes {
				f.peers[0].write(protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{{Type: protocol.EventRead, Seq: uint64(i + 1)}}})
			}
		})
		synctest.Wait()
		if n := c.Stats().EventsDropped; n != maxNotes {
			t.Errorf("%d events dropped, want %d", n, maxNotes)
		}
		syncs := len(f.sent(protocol.CmdSync))
		rest(maxLostEvent)
		close(gate)
		synctest.Wait()
		if n := len(f.sent(protocol.CmdSync)); n != syncs+1 {
			t.Errorf("%d SYNCs more, want one", n-syncs)
		}
		if len(r.events) != maxNotes {
			t.Errorf("the app got %d events", len(r.events))
		}
	})
}

// A handler that fails stops the client, and the message comes again after the next start.
func TestHandlerError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 10)
		state := NewMemoryState()
		failAt := uint64(6)
		app := func(o *Options) {
			everything(o)
			o.State = state
			take := o.OnMessage
			o.OnMessage = func(ctx context.Context, m protocol.Message) error {
				if m.Seq == failAt {
					return errExpected
				}
				return take(ctx, m)
			}
		}
		c, r := connect(t, f, app)
		<-c.Done()
		if err := c.Close(); !errors.Is(err, errExpected) {
			t.Errorf("Close returned %v", err)
		}
		r.wantSeqs(t, bob, 1, 5)
		failAt = 0
		c, r = connect(t, f, app)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantSeqs(t, bob, 6, 10)
	})
}

// Handlers may call the client, and are never called two at a time.
func TestHandlersCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		var c *Client
		ready1 := make(chan struct{})
		inside := 0
		one := func() func() {
			if inside++; inside != 1 {
				t.Error("two handlers at once")
			}
			time.Sleep(time.Millisecond)
			return func() { inside-- }
		}
		c, r := connect(t, f, func(o *Options) {
			take, list := o.OnMessage, o.OnList
			o.OnMessage = func(ctx context.Context, m protocol.Message) error {
				defer one()()
				if m.Sender == "bob" && string(m.Content) != "done" {
					if _, err := c.Send(ctx, Text(User("bob"), "echo of "+string(m.Content))); err != nil {
						return err
					}
				}
				return take(ctx, m)
			}
			o.OnList = func(ctx context.Context, p ListPage) error {
				<-ready1
				defer one()()
				return list(ctx, p)
			}
			o.OnEvent = func(context.Context, protocol.Event) { defer one()() }
			o.OnSignal = func(context.Context, protocol.Signal) { defer one()() }
		})
		close(ready1)
		defer stop(t, f, c)
		ready(t, c)
		f.post(bob, 5)
		f.locked(func() {
			f.peers[0].write(protocol.CmdSignal, 0, &protocol.Signal{Sender: "bob"})
			resync := protocol.Event{Type: protocol.EventResync, Data: protocol.AppendBody(nil, &protocol.ResyncData{})}
			f.peers[0].write(protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{resync, {Type: protocol.EventRead}}})
		})
		rest(time.Minute)
		r.wantSeqs(t, bob, 1, 10)
		echoes := 0
		for _, m := range r.messages {
			echoes += b2i(m.Sender == me)
		}
		if echoes != 5 {
			t.Errorf("%d echoes, want 5", echoes)
		}
	})
}

// The own stream is applied, never shown.
func TestOwnStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		f.locked(func() {
			own := protocol.OwnState{Op: "delete", ConversationID: bob, Seqs: []uint64{3, 4}}
			for _, m := range []protocol.Message{
				{ContentType: protocol.ContentOwnState, Content: protocol.AppendBody(nil, &own)},
				{ContentType: protocol.ContentOwnState, Content: []byte("not of this version")},
				{ContentType: protocol.ContentText, Content: []byte("not shown")},
			} {
				f.push(f.peers[0], f.append(f.conversation(protocol.UserStream(me)), m))
			}
			own.Op = "not theirs to write"
			f.push(f.peers[0], f.append(f.conversation(bob), protocol.Message{
				ContentType: protocol.ContentOwnState, Content: protocol.AppendBody(nil, &own),
			}))
		})
		synctest.Wait()
		if len(r.messages) != 0 {
			t.Errorf("the app was shown %+v", r.messages)
		}
		if len(r.own) != 1 || r.own[0].Op != "delete" || !slices.Equal(r.own[0].Seqs, []uint64{3, 4}) {
			t.Errorf("OnOwnState got %+v", r.own)
		}
	})
}

// A server that claims what it does not show, or answers what was not asked, is asked a few times and then left alone.
func TestPullThatBringsNothing(t *testing.T) {
	for name, answer := range map[string]func(q protocol.Pull) protocol.PullReply{
		"empty":              func(protocol.Pull) protocol.PullReply { return protocol.PullReply{MaxSeq: 50, More: true} },
		"a hole":             func(q protocol.Pull) protocol.PullReply { return page(q.ConversationID, q.FromSeq+1) },
		"another":            func(q protocol.Pull) protocol.PullReply { return page("g:other", q.FromSeq) },
		"seq 0":              func(q protocol.Pull) protocol.PullReply { return page(q.ConversationID, 0) },
		"a min_seq far away": func(protocol.Pull) protocol.PullReply { return protocol.PullReply{MinSeq: 1 << 50} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.fill(bob, 5)
				pulls := 0
				f.onFrame = func(p *peer, fr protocol.Frame) bool {
					if fr.Command != protocol.CmdPull {
						return false
					}
					pulls++
					var q protocol.Pull
					p.decode(fr, &q)
					reply := answer(q)
					p.write(fr.Command.Reply(), fr.RequestID, &reply)
					return true
				}
				c, r := connect(t, f)
				defer stop(t, f, c)
				ready(t, c)
				rest(time.Hour)
				if pulls > maxFruitless {
					t.Errorf("%d PULLs in an hour", pulls)
				}
				if len(r.messages) != 0 {
					t.Errorf("the app got %+v", r.messages)
				}
				f.locked(func() { f.onFrame = nil })
				f.post(bob, 1)
				synctest.Wait()
				if got := r.seqs(bob); len(got) == 0 || got[len(got)-1] != 6 {
					t.Errorf("after the server is well again the app got %v", got)
				}
			})
		})
	}
}

func page(id string, seq uint64) protocol.PullReply {
	return protocol.PullReply{MinSeq: 1, MaxSeq: 50, Messages: []protocol.Message{{ConversationID: id, Seq: seq, Sender: "bob"}}}
}

// A conversation that the server does not show (any more) holds up nothing else.
func TestPullRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill("g:left", 5)
		f.fill(bob, 5)
		f.fill("g:busy", 5)
		busy := 3
		f.onFrame = func(p *peer, fr protocol.Frame) bool {
			var q protocol.Pull
			if fr.Command != protocol.CmdPull {
				return false
			}
			p.decode(fr, &q)
			switch {
			case q.ConversationID == "g:left":
				p.fail(fr.RequestID, protocol.CodeForbidden, 0)
			case q.ConversationID == "g:busy" && busy > 0:
				busy--
				p.fail(fr.RequestID, protocol.CodeUnavailable, 1000)
			default:
				return false
			}
			return true
		}
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		start := time.Now()
		for len(r.seqs("g:busy")) == 0 {
			rest(10 * time.Millisecond)
		}
		if d := time.Since(start); d < 3*time.Second {
			t.Errorf("asked again sooner than the server said: %v", d)
		}
		r.wantSeqs(t, bob, 1, 5)
		r.wantSeqs(t, "g:busy", 1, 5)
		r.wantSeqs(t, "g:left", 1, 0)
		if n := c.Stats().FetchesGivenUp; n != 1 {
			t.Errorf("%d conversations given up, want 1", n)
		}
	})
}

func TestTooManyConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f, func(o *Options) { o.MaxConversations = 3 })
		defer stop(t, f, c)
		ready(t, c)
		for i := range 10 {
			f.post(fmt.Sprint("g:", i), 1)
		}
		synctest.Wait()
		if len(r.messages) != 3 || c.Stats().ConversationsIgnored != 7 {
			t.Errorf("%d messages, %d ignored", len(r.messages), c.Stats().ConversationsIgnored)
		}
	})
}
