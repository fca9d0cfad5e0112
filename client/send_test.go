package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

// onSend calls fn for each SEND, with its number from 0.
func (f *fake) onSend(fn func(n int, p *peer, fr protocol.Frame) bool) {
	n := 0
	f.onFrame = func(p *peer, fr protocol.Frame) bool {
		if fr.Command != protocol.CmdSend {
			return false
		}
		n++
		return fn(n-1, p, fr)
	}
}

// stored is the texts of a conversation, as the server has them.
func (f *fake) stored(conversation string) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.conversation(conversation).log {
		list = append(list, string(m.Content))
	}
	return list
}

func ids(t *testing.T, list []seen) (ids []string) {
	for _, s := range list {
		var m protocol.Send
		if err := protocol.Unmarshal(s.Body, &m); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ClientMsgID)
	}
	return ids
}

// Whatever happens between SEND and its ack, the message is repeated under the same id, stored once, and keeps its place.
func TestRepeats(t *testing.T) {
	for name, trouble := range map[string]func(p *peer, fr protocol.Frame){
		"cut before it is stored": func(p *peer, fr protocol.Frame) { p.cut() },
		"cut before the ack":      func(p *peer, fr protocol.Frame) { p.f.store(fr); p.cut() },
		"stored, no ack":          func(p *peer, fr protocol.Frame) { p.f.store(fr) },
		"nothing":                 func(p *peer, fr protocol.Frame) {},
		"unavailable":             func(p *peer, fr protocol.Frame) { p.fail(fr.RequestID, protocol.CodeUnavailable, 500) },
		"stored and unavailable":  func(p *peer, fr protocol.Frame) { p.f.store(fr); p.fail(fr.RequestID, protocol.CodeUnavailable, 0) },
		"internal":                func(p *peer, fr protocol.Frame) { p.fail(fr.RequestID, protocol.CodeInternal, 0) },
		"rate limited":            func(p *peer, fr protocol.Frame) { p.fail(fr.RequestID, protocol.CodeRateLimited, 7000) },
		"unknown with a delay":    func(p *peer, fr protocol.Frame) { p.fail(fr.RequestID, 300, 7000) },
		"token expired":           func(p *peer, fr protocol.Frame) { p.fail(fr.RequestID, protocol.CodeTokenExpired, 0) },
		"an ack for another": func(p *peer, fr protocol.Frame) {
			p.write(protocol.CmdSendAck, fr.RequestID, &protocol.SendAck{ClientMsgID: "x", Seq: 7})
		},
		"a bad ack": func(p *peer, fr protocol.Frame) {
			p.write(protocol.CmdSendAck, fr.RequestID, &protocol.Error{Message: "x"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.onSend(func(n int, p *peer, fr protocol.Frame) bool {
					if n == 0 || n == 2 {
						trouble(p, fr)
					}
					return n == 0 || n == 2
				})
				c, r := connect(t, f)
				defer stop(t, f, c)
				ready(t, c)
				var want []string
				var pending []*Pending
				for i := range 4 {
					want = append(want, fmt.Sprint("message ", i))
					p, err := c.Queue(t.Context(), Text(User("bob"), want[i]))
					if err != nil {
						t.Fatal(err)
					}
					pending = append(pending, p)
				}
				for i, p := range pending {
					if ack, err := p.Wait(t.Context()); err != nil || ack.Seq != uint64(i+1) {
						t.Errorf("ack %d: %+v, %v", i, ack, err)
					}
				}
				synctest.Wait()
				if got := f.stored(bob); !slices.Equal(got, want) {
					t.Errorf("stored %v", got)
				}
				r.wantSeqs(t, bob, 1, 4)
				sent := ids(t, f.sent(protocol.CmdSend))
				if len(sent) != 6 || sent[0] != sent[1] || sent[2] != sent[3] || len(slices.Compact(sent)) != 4 {
					t.Errorf("SENDs under the ids %v", sent)
				}
				if list, _ := c.opts.Outbox.List(t.Context()); len(list) != 0 || c.out.count != 0 || c.out.bytes != 0 {
					t.Errorf("left in the outbox: %v, %d, %d bytes", list, c.out.count, c.out.bytes)
				}
			})
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onSend(func(n int, p *peer, fr protocol.Frame) bool {
			if n < 3 {
				p.fail(fr.RequestID, protocol.CodeRateLimited, 7000)
			}
			return n < 3
		})
		c, _ := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		start := time.Now()
		if _, err := c.Send(t.Context(), Text(User("bob"), "x")); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 21*time.Second || d > 30*time.Second {
			t.Errorf("acked after %v, want three times 7 s and short delays", d)
		}
	})
}

// Errors that are final come back to the caller, and the next message goes out.
func TestFinalErrors(t *testing.T) {
	for _, code := range []protocol.ErrorCode{
		protocol.CodeBadFrame, protocol.CodeForbidden, protocol.CodeNotFound, protocol.CodeInvalidArgument, protocol.CodeTooLarge,
		protocol.CodeRejected, protocol.CodeUnknownCommand, 300,
	} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.onSend(func(n int, p *peer, fr protocol.Frame) bool {
					if n == 0 {
						p.fail(fr.RequestID, code, 0)
					}
					return n == 0
				})
				c, r := connect(t, f)
				defer stop(t, f, c)
				ready(t, c)
				bad, _ := c.Queue(t.Context(), Text(User("bob"), "refused"))
				good, _ := c.Queue(t.Context(), Text(User("bob"), "taken"))
				var e *protocol.Error
				if _, err := bad.Wait(t.Context()); !errors.As(err, &e) || e.Code != code {
					t.Errorf("error %v", err)
				}
				if _, err := good.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if got := f.stored(bob); !slices.Equal(got, []string{"taken"}) {
					t.Errorf("stored %v", got)
				}
				if len(r.results) != 2 || r.results[0].err == nil || r.results[1].ack.Seq != 1 {
					t.Errorf("OnSent got %+v", r.results)
				}
				if list, _ := c.opts.Outbox.List(t.Context()); len(list) != 0 {
					t.Errorf("left in the outbox: %v", list)
				}
			})
		})
	}
}

// What is refused without asking the server.
func TestRefusedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.tune = func(w *protocol.Welcome) { w.MaxBody = 1000 }
		c, _ := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		for name, m := range map[string]Outgoing{
			"no target":         {},
			"a bad target":      Text(User("a b"), "x"),
			"a user stream":     Text(Target{protocol.KindUser, "bob"}, "x"),
			"a long id":         {To: User("bob"), ClientMsgID: strings.Repeat("x", 65)},
			"not UTF-8":         {To: User("bob"), ClientMsgID: "\xff"},
			"the server's type": {To: User("bob"), ContentType: 1000},
			"101 mentions":      {To: User("bob"), Mentions: make([]string, 101)},
			"over max_body":     Text(User("bob"), strings.Repeat("x", 1000)),
		} {
			var e *protocol.Error
			if _, err := c.Send(t.Context(), m); !errors.As(err, &e) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := len(f.sent(protocol.CmdSend)); n != 0 || f.connections() != 1 {
			t.Errorf("%d SENDs on %d connections", n, f.connections())
		}
		if err := c.Signal(t.Context(), User("bob"), 1, make([]byte, 1000)); err == nil {
			t.Error("a signal over max_body was taken")
		}
	})
}

// One message in flight for each target, and never more requests than max_inflight.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.tune = func(w *protocol.Welcome) { w.MaxInflight = 3 }
		var waiting []protocol.Frame
		f.onSend(func(_ int, _ *peer, fr protocol.Frame) bool {
			waiting = append(waiting, fr)
			return true
		})
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		for i := range 10 {
			for to := range 5 {
				if _, err := c.Queue(t.Context(), Text(User(fmt.Sprint("user", to)), fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
		}
		for done := range 50 {
			synctest.Wait()
			f.locked(func() {
				want := min(3, 50-done)
				targets := map[string]bool{}
				for _, fr := range waiting {
					var s protocol.Send
					f.peers[0].decode(fr, &s)
					targets[s.Target] = true
				}
				if len(waiting) > want || len(targets) != len(waiting) {
					t.Errorf("%d requests to %d targets in flight", len(waiting), len(targets))
				}
				fr := waiting[0]
				waiting = waiting[1:]
				f.peers[0].answerSend(fr, f.store(fr))
			})
		}
		synctest.Wait()
		for to := range 5 {
			conv := User(fmt.Sprint("user", to)).Conversation(me)
			r.wantSeqs(t, conv, 1, 10)
			for i, text := range f.stored(conv) {
				if text != fmt.Sprint(i) {
					t.Errorf("%s: %q at %d", conv, text, i)
				}
			}
		}
	})
}

// With a pipeline many are in flight, in order, as long as none is refused; after a lost connection they all go again in order.
func TestPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		most, flying := 0, 0
		f.onSend(func(n int, p *peer, fr protocol.Frame) bool {
			if n < 16 {
				flying++
				most = max(most, flying)
				return true // no ack before the connection is cut
			}
			return false
		})
		c, r := connect(t, f, func(o *Options) { o.Pipeline = 16 })
		defer stop(t, f, c)
		ready(t, c)
		const n = 200
		var last *Pending
		for i := range n {
			p, err := c.Queue(t.Context(), Text(User("bob"), fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			last = p
		}
		synctest.Wait()
		if most != 16 {
			t.Errorf("%d in flight, want 16", most)
		}
		f.cut()
		if _, err := last.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.wantSeqs(t, bob, 1, n)
		for i, text := range f.stored(bob) {
			if text != fmt.Sprint(i) {
				t.Fatalf("%q at %d", text, i)
			}
		}
	})
}

// What is queued while the pipeline waits for acks goes out at once, as far as there is room.
func TestPipelineTakesUpWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onSend(func(int, *peer, protocol.Frame) bool { return true }) // never acked
		c, _ := connect(t, f, func(o *Options) { o.Pipeline = 3 })
		defer stop(t, f, c)
		ready(t, c)
		for i, want := range []int{1, 2, 3, 3, 3} {
			if _, err := c.Queue(t.Context(), Text(User("bob"), fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := len(f.sent(protocol.CmdSend)); n != want {
				t.Errorf("%d in flight after %d were queued, want %d", n, i+1, want)
			}
		}
		time.Sleep(c.opts.ReplyTimeout - time.Millisecond)
		if f.connections() != 1 || c.Stats().Repeated != 0 {
			t.Error("an ack was late before its time")
		}
		rest(time.Minute)
		if c.Stats().Repeated == 0 {
			t.Error("nothing was repeated though no ack came")
		}
	})
}

// A pipeline of which one is to be repeated waits for the rest before it repeats.
func TestPipelineRepeatsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onSend(func(n int, p *peer, fr protocol.Frame) bool {
			if n == 3 || n == 4 {
				p.fail(fr.RequestID, protocol.CodeUnavailable, 100)
			}
			return n == 3 || n == 4
		})
		c, r := connect(t, f, func(o *Options) { o.Pipeline = 4 })
		defer stop(t, f, c)
		ready(t, c)
		for i := range 20 {
			if _, err := c.Queue(t.Context(), Text(User("bob"), fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		rest(time.Minute)
		r.wantSeqs(t, bob, 1, 20)
		got := f.stored(bob)
		slices.Sort(got)
		if len(slices.Compact(got)) != 20 {
			t.Errorf("stored %v", got)
		}
	})
}

func TestOutboxBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onHello = func(*peer, protocol.Hello) bool { return true } // never online
		c, _ := connect(t, f, func(o *Options) { o.OutboxLimit, o.OutboxBytes = 3, 100 })
		defer stop(t, f, c)
		if _, err := c.Queue(t.Context(), Text(User("bob"), strings.Repeat("x", 101))); !errors.Is(err, ErrOutboxFull) {
			t.Errorf("101 bytes: %v", err)
		}
		a := Outgoing{To: User("bob"), Content: []byte("x"), ClientMsgID: "a"}
		first, err := c.Queue(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := c.Queue(t.Context(), a); err != nil || again != first {
			t.Errorf("queued again: %v", err)
		}
		a.To = User("carol") // the same id to another is another message
		if other, err := c.Queue(t.Context(), a); err != nil || other == first {
			t.Errorf("to another target: %v", err)
		}
		c.Queue(t.Context(), Text(Group("g"), "x"))
		if _, err := c.Queue(t.Context(), Text(User("dave"), "x")); !errors.Is(err, ErrOutboxFull) {
			t.Errorf("a fourth: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := first.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		if n := len(c.out.lanes); n != 3 {
			t.Errorf("%d lanes, want 3", n)
		}
	})
}

// What was queued, or sent without an ack, outlives the process, keeps its order, and is stored once.
func TestOutboxSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		outbox, state := NewMemoryOutbox(), NewMemoryState()
		f.onSend(func(n int, p *peer, fr protocol.Frame) bool {
			if n == 1 {
				p.f.store(fr) // and no ack
			}
			return n >= 1
		})
		lasting := func(o *Options) { o.Outbox, o.State = outbox, state }
		c, _ := connect(t, f, lasting)
		var pending []*Pending
		for i := range 5 {
			p, err := c.Queue(t.Context(), Text(User("bob"), fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
		}
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := pending[0].Wait(t.Context()); err != nil {
			t.Errorf("the first was acked: %v", err)
		}
		if _, err := pending[1].Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("the second was not acked: %v", err)
		}
		f.onFrame = nil
		c, r := connect(t, f, lasting)
		defer stop(t, f, c)
		if p, err := c.Queue(t.Context(), Text(User("bob"), "5")); err != nil {
			t.Fatal(err)
		} else if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := f.stored(bob), []string{"0", "1", "2", "3", "4", "5"}; !slices.Equal(got, want) {
			t.Errorf("stored %v", got)
		}
		r.wantSeqs(t, bob, 2, 6)
		if len(r.results) != 5 {
			t.Errorf("OnSent was told of %d messages of the second run, want 5", len(r.results))
		}
	})
}

// A message that was first tried longer ago than resend_s is looked for before it is sent again.
func TestFindsBeforeRepeating(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stored  bool
		after   int           // messages that followed
		away    time.Duration // since the first try
		epoch   string
		looks   bool
		repeats bool
	}{
		{name: "stored, long ago", stored: true, after: 450, away: time.Hour, looks: true},
		{name: "stored, long ago, the last", stored: true, away: time.Hour, looks: true},
		{name: "not stored, long ago", after: 450, away: time.Hour, looks: true, repeats: true},
		{name: "stored, just now", stored: true, after: 450, away: time.Minute, repeats: true},
		{name: "stored, just now, ten thousand messages ago", stored: true, after: 10_000, away: time.Minute, looks: true},
		{name: "stored, long ago, another epoch", stored: true, after: 30, away: time.Hour, epoch: "e2", looks: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.fill(bob, 120)
				f.onSend(func(_ int, p *peer, fr protocol.Frame) bool {
					if tc.stored {
						f.store(fr)
					}
					p.cut()
					f.onFrame = nil
					f.onHello = func(p *peer, _ protocol.Hello) bool { p.cut(); return true }
					return true
				})
				c, r := connect(t, f, func(o *Options) { o.PageSize = 200 })
				defer stop(t, f, c)
				ready(t, c)
				synctest.Wait()
				p, _ := c.Queue(t.Context(), Text(User("bob"), "mine"))
				synctest.Wait()
				f.fill(bob, tc.after)
				rest(tc.away)
				var newestFirst []protocol.Pull
				f.locked(func() {
					f.onHello = nil
					if tc.epoch != "" {
						f.epoch = tc.epoch
					}
					if tc.looks && tc.away < time.Hour { // the list must be known before, for it tells how far the conversation goes
						f.onSend(func(n int, p *peer, fr protocol.Frame) bool {
							if n == 0 {
								p.fail(fr.RequestID, protocol.CodeUnavailable, 3000)
							}
							return n == 0
						})
					}
				})
				ack, err := p.Wait(t.Context())
				if err != nil || ack.ConversationID != bob || ack.ServerMsgID == "" {
					t.Fatalf("ack %+v, %v", ack, err)
				}
				synctest.Wait()
				at := slices.Index(f.stored(bob), "mine")
				if ack.Seq != uint64(at+1) || slices.Index(f.stored(bob)[at+1:], "mine") >= 0 {
					t.Errorf("ack %+v, stored at %d", ack, at+1)
				}
				for _, q := range f.pulls() {
					if q.NewestFirst {
						newestFirst = append(newestFirst, q)
					}
				}
				if (len(newestFirst) > 0) != tc.looks {
					t.Errorf("looked with %+v", newestFirst)
				}
				for _, q := range newestFirst {
					if want := uint64(121); tc.epoch == "" && q.FromSeq != want || tc.epoch != "" && q.FromSeq != 1 {
						t.Errorf("looked from %d, want %d", q.FromSeq, want)
					}
				}
				if want := int(c.Stats().FoundStored); (want == 1) == tc.repeats {
					t.Errorf("%d found", want)
				}
				got := r.seqs(bob)
				if tc.epoch == "" && (got[len(got)-1] != uint64(len(f.stored(bob))) || len(got) != len(f.stored(bob))-70) {
					t.Errorf("the app got %s", brief(got))
				}
			})
		})
	}
}

// A store that fails keeps the message from being sent, and is tried again.
type flakyOutbox struct {
	*MemoryOutbox
	puts  int
	fails func(n int) bool
}

func (o *flakyOutbox) Put(ctx context.Context, e Entry) error {
	o.puts++
	if o.fails(o.puts) {
		return errors.New("disk full")
	}
	return o.MemoryOutbox.Put(ctx, e)
}

func TestOutboxFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		outbox := &flakyOutbox{NewMemoryOutbox(), 0, func(n int) bool { return n == 1 || n == 3 || n == 4 }}
		c, _ := connect(t, f, func(o *Options) { o.Outbox = outbox })
		defer stop(t, f, c)
		ready(t, c)
		if _, err := c.Send(t.Context(), Text(User("bob"), "x")); err == nil {
			t.Error("queued without being stored")
		}
		if _, err := c.Send(t.Context(), Text(User("bob"), "y")); err != nil {
			t.Error(err)
		}
		if got := f.stored(bob); !slices.Equal(got, []string{"y"}) || outbox.puts != 5 {
			t.Errorf("stored %v after %d puts", got, outbox.puts)
		}
	})
}
