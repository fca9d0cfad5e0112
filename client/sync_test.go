package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

func (f *fake) resync(maxDelay time.Duration) {
	data := protocol.AppendBody(nil, &protocol.ResyncData{MaxDelayMS: uint32(maxDelay.Milliseconds())})
	f.locked(func() {
		for _, p := range f.peers {
			if p.welcomed {
				p.write(protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{{Type: protocol.EventResync, Data: data}}})
			}
		}
	})
}

// syncs returns the SYNCs that the client sent so far.
func (f *fake) syncs() (list []protocol.Sync) {
	for _, s := range f.sent(protocol.CmdSync) {
		var q protocol.Sync
		s.peer.decode(s.Frame, &q)
		list = append(list, q)
	}
	return list
}

func TestHistory(t *testing.T) {
	for _, tc := range []struct {
		history int
		from    uint64
	}{{0, 71}, {-1, 121}, {1, 120}, {10, 111}, {119, 2}, {120, 1}, {1 << 40, 1}} {
		t.Run(fmt.Sprint(tc.history), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.fill(bob, 120)
				c, r := connect(t, f, func(o *Options) { o.History = tc.history })
				defer stop(t, f, c)
				ready(t, c)
				synctest.Wait()
				r.wantSeqs(t, bob, tc.from, 120)
				f.post(bob, 2)
				f.post("g:new", 70) // comes into being: all of it
				synctest.Wait()
				r.wantSeqs(t, bob, tc.from, 122)
				r.wantSeqs(t, "g:new", 1, 70)
			})
		})
	}
}

// Whatever is pushed before the list came, or between its pages, is handed on.
func TestPushesDuringSync(t *testing.T) {
	for _, history := range []int{-1, 50} {
		for _, when := range []string{"before the reply", "after the reply", "between pages"} {
			t.Run(fmt.Sprint(history, " ", when), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testPushesDuringSync(t, history, when) })
			})
		}
	}
}

func testPushesDuringSync(t *testing.T, history int, when string) {
	f := newFake(t)
	for i := range 150 { // two pages
		f.fill(fmt.Sprintf("g:%03d", i), 100)
	}
	pushAll := func() {
		for _, id := range []string{"g:000", "g:149", "g:new", "g:050"} {
			for range 3 {
				f.push(f.peers[0], f.write(id))
			}
		}
	}
	f.onFrame = func(p *peer, fr protocol.Frame) bool {
		if fr.Command != protocol.CmdSync {
			return false
		}
		var q protocol.Sync
		p.decode(fr, &q)
		if q.Token != "" || (q.Cursor != "") != (when == "between pages") {
			return false
		}
		if when == "after the reply" {
			p.answer(fr)
			pushAll()
			return true
		}
		pushAll()
		return false
	}
	c, r := connect(t, f, func(o *Options) { o.History = history })
	defer stop(t, f, c)
	ready(t, c)
	synctest.Wait()
	// The SYNC's own replies may have the pushed messages already; those are still within the newest 50.
	for _, id := range []string{"g:000", "g:050", "g:149"} {
		got := r.seqs(id)
		if len(got) < 3 || got[len(got)-1] != 103 {
			t.Errorf("%s: the app got %s", id, brief(got))
			continue
		}
		first := got[0]
		if history < 0 && first != 101 || history > 0 && (first < 51 || first > 54) {
			t.Errorf("%s: the app got %s", id, brief(got))
		}
		r.wantSeqs(t, id, first, 103)
	}
	r.wantSeqs(t, "g:new", 1, 3)
}

// The list comes in pages; a later one has what changed; the token goes with it, over a restart too.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		for i := range 250 {
			f.fill(fmt.Sprintf("g:%03d", i), 1)
		}
		state := NewMemoryState()
		lasting := func(o *Options) { o.State = state }
		c, r := connect(t, f, lasting)
		ready(t, c)
		synctest.Wait()
		if len(r.pages) != 3 || !r.pages[0].First || r.pages[0].Last || r.pages[1].First || !r.pages[2].Last || !r.pages[0].Whole || len(r.messages) != 250 {
			t.Errorf("%d pages, %d messages", len(r.pages), len(r.messages))
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		f.fill("g:007", 3)
		f.fill("g:new", 200)
		c, r = connect(t, f, lasting)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		if len(r.pages) != 1 || r.pages[0].Whole || len(r.pages[0].Conversations) != 2 {
			t.Errorf("after a restart: %+v", r.pages)
		}
		r.wantSeqs(t, "g:007", 2, 4)
		r.wantSeqs(t, "g:new", 1, 200)
		if len(r.messages) != 203 {
			t.Errorf("%d messages after the restart", len(r.messages))
		}
		if s := f.syncs(); s[len(s)-1].Token != "250" {
			t.Errorf("SYNCs %+v", s)
		}
	})
}

// What the list said is fetched even when the process ended right after the token was saved.
func TestRestartBeforeFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 120)
		f.onFrame = func(_ *peer, fr protocol.Frame) bool { return fr.Command == protocol.CmdPull } // never answered
		state := NewMemoryState()
		lasting := func(o *Options) { o.State = state; everything(o) }
		c, r := connect(t, f, lasting)
		ready(t, c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		r.wantSeqs(t, bob, 1, 0)
		f.locked(func() { f.onFrame = nil })
		c, r = connect(t, f, lasting)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 120)
	})
}

// Pushes that never came are made good by a SYNC within the time that the event says.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		f.post(bob, 3)
		f.fill(bob, 200) // not pushed
		f.fill("g:new", 5)
		before := len(f.syncs())
		for range 5 {
			f.resync(3 * time.Second)
		}
		rest(3*time.Second + time.Millisecond)
		r.wantSeqs(t, bob, 1, 203)
		r.wantSeqs(t, "g:new", 1, 5)
		if n := len(f.syncs()) - before; n != 1 {
			t.Errorf("%d SYNCs for five events, want 1", n)
		}
		if len(r.events) != 0 {
			t.Errorf("the app got %v", r.events)
		}
		f.fill(bob, 1)
		f.locked(func() { // without data: at once
			f.peers[0].write(protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{{Type: protocol.EventResync, Data: []byte{1}}}})
		})
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 204)
	})
}

// SYNC is tried again after errors, a token that cannot be read is dropped, and a server without SYNC still pushes.
func TestSyncErrors(t *testing.T) {
	for _, tc := range []struct {
		code  protocol.ErrorCode
		times int
		token string // that the State had
		first string // what the app gets of bob's 30 messages first, with History 10
	}{
		{protocol.CodeUnavailable, 3, "", "21"},
		{protocol.CodeInvalidArgument, 1, "old", "1"},
		{protocol.CodeForbidden, 2, "", "21"},
		{protocol.CodeUnknownCommand, 1000, "", "1"}, // nothing tells that there was a history
	} {
		t.Run(tc.code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.fill(bob, 30)
				n := 0
				f.onFrame = func(p *peer, fr protocol.Frame) bool {
					if fr.Command != protocol.CmdSync || n >= tc.times {
						return false
					}
					n++
					p.fail(fr.RequestID, tc.code, 0)
					return true
				}
				state := NewMemoryState()
				state.Save(t.Context(), Session{User: me, Epoch: "e1", Token: tc.token})
				c, r := connect(t, f, func(o *Options) { o.History, o.State = 10, state })
				defer stop(t, f, c)
				ready(t, c)
				synctest.Wait()
				f.post(bob, 1)
				synctest.Wait()
				if got := r.seqs(bob); len(got) == 0 || fmt.Sprint(got[0]) != tc.first || got[len(got)-1] != 31 {
					t.Errorf("the app got %v", got)
				}
				if f.connections() != 1 {
					t.Errorf("%d connections", f.connections())
				}
			})
		})
	}
}

// Another epoch: seqs, token and cache are dropped, what is in the outbox is kept.
func TestEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 100)
		gate := make(chan struct{}, 1000)
		for range 50 {
			gate <- struct{}{}
		}
		r := &recorder{gate: gate}
		state := NewMemoryState()
		c, _ := connect(t, f, r.options, func(o *Options) { o.State = state })
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantSeqs(t, bob, 51, 100)
		f.post(bob, 2) // 101 is with the handler, 102 waits
		synctest.Wait()
		p, _ := c.Queue(t.Context(), Text(User("carol"), "kept"))
		f.locked(func() {
			f.newest().cut()
			f.epoch = "e2" // the store was restored from a backup
			cv := f.conversation(bob)
			cv.log = cv.log[:60]
		})
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(gate)
		rest(time.Minute)
		got := r.seqs(bob)
		want := []uint64{101}
		for seq := uint64(11); seq <= 60; seq++ {
			want = append(want, seq)
		}
		if !slices.Equal(got[50:], want) {
			t.Errorf("the app got %v", brief(got[50:]))
		}
		if !slices.Equal(r.stale, []string{""}) {
			t.Errorf("OnStale got %q", r.stale)
		}
		if got := f.stored(User("carol").Conversation(me)); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("stored %v", got)
		}
		for _, s := range f.sent(protocol.CmdSync) {
			var q protocol.Sync
			if s.peer.decode(s.Frame, &q); s.peer.n == 1 && q.Token != "" {
				t.Errorf("SYNC in the new epoch has the old one's token %q", q.Token)
			}
		}
		saved, _ := state.Load(t.Context())
		if saved.Session.Epoch != "e2" || saved.Session.Token == "" || saved.Session.User != me {
			t.Errorf("the state has %+v", saved.Session)
		}
		for _, p := range saved.Positions {
			if p.ConversationID == bob && p.Seq != 60 {
				t.Errorf("the state has %+v", p)
			}
		}
	})
}

func TestWrongUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		defer f.close()
		state := NewMemoryState()
		state.Save(t.Context(), Session{User: "mallory", Epoch: "e1", Token: "x"})
		c, _ := connect(t, f, func(o *Options) { o.State = state })
		<-c.Done()
		if err := c.Close(); !errors.Is(err, ErrWrongUser) {
			t.Errorf("Close returned %v", err)
		}
		if n := len(f.sent(protocol.CmdSync)); n != 0 {
			t.Error("it asked for the list")
		}
	})
}

// Changes: of what the app has through OnChange, of what it does not have yet in the message itself.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 20)
		state := NewMemoryState()
		lasting := func(o *Options) { o.State = state; everything(o) }
		c, r := connect(t, f, lasting)
		ready(t, c)
		synctest.Wait()
		revoke := func(m *protocol.Message) { m.Status, m.Content = protocol.StatusRevoked, nil }
		f.locked(func() { // while online: an event
			f.change(bob, 7, revoke)
			f.peers[0].write(protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{
				{Type: protocol.EventMessageChanged, ConversationID: bob, Seq: 7, ChangeSeq: 1},
			}})
		})
		synctest.Wait()
		if len(r.changes) != 1 || r.changes[0].Seq != 7 || r.changes[0].Status != protocol.StatusRevoked || len(r.events) != 0 {
			t.Fatalf("changes %+v, events %+v", r.changes, r.events)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		f.fill(bob, 10)
		f.locked(func() { // while away: more than a page of changes
			for seq := uint64(1); seq <= 20; seq++ {
				for range 10 {
					f.change(bob, seq, func(m *protocol.Message) { m.Content = append(m.Content, '!') })
				}
			}
			f.change(bob, 25, revoke)
		})
		c, r = connect(t, f, lasting, func(o *Options) { o.PageSize = 5 })
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantSeqs(t, bob, 21, 30)
		if m := r.messages[4]; m.Seq != 25 || m.Status != protocol.StatusRevoked {
			t.Errorf("25 came as %+v", m)
		}
		var changed []uint64
		for _, m := range r.changes {
			if m.Seq <= 20 {
				changed = append(changed, m.Seq)
			}
		}
		want := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
		if !slices.Equal(changed, want) {
			t.Errorf("changes of %v", changed)
		}
		saved, _ := state.Load(t.Context())
		if p := saved.Positions[0]; p.ChangeSeq != 202 || p.KnownChangeSeq != 202 || p.Seq != 30 {
			t.Errorf("the state has %+v", p)
		}
	})
}

// A server without CHANGES is not asked again on that connection; one that has lost the list of changes makes the cache stale.
func TestChangesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		reset := false
		f.onFrame = func(p *peer, fr protocol.Frame) bool {
			switch {
			case fr.Command != protocol.CmdChanges:
				return false
			case reset:
				p.write(fr.Command.Reply(), fr.RequestID, &protocol.ChangesReply{Next: 3, Reset: true})
			default:
				p.fail(fr.RequestID, protocol.CodeUnknownCommand, 0)
			}
			return true
		}
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.locked(func() {
			for range 3 {
				f.change(bob, 1, func(m *protocol.Message) {})
			}
		})
		for range 3 {
			f.resync(0)
			rest(time.Second)
		}
		if n := len(f.sent(protocol.CmdChanges)); n != 1 {
			t.Errorf("%d CHANGES, want 1", n)
		}
		f.locked(func() { reset = true })
		f.cut()
		rest(time.Minute)
		if !slices.Equal(r.stale, []string{bob}) || len(f.sent(protocol.CmdChanges)) != 2 {
			t.Errorf("OnStale got %q after %d CHANGES", r.stale, len(f.sent(protocol.CmdChanges)))
		}
	})
}

// History that was cleared is passed over, also in the middle of catching up.
func TestCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 50)
		c, r := connect(t, f, everything)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.fill(bob, 50)
		f.locked(func() { f.conversation(bob).minSeq = 91 })
		f.resync(0)
		rest(time.Second)
		f.fill(bob, 50)
		f.locked(func() { f.conversation(bob).minSeq = 141 })
		f.post(bob, 1) // 151: the list has not told
		synctest.Wait()
		var want []uint64
		for seq := uint64(1); seq <= 151; seq++ {
			if seq <= 50 || seq > 90 && seq <= 100 || seq > 140 {
				want = append(want, seq)
			}
		}
		if got := r.seqs(bob); !slices.Equal(got, want) {
			t.Errorf("the app got %v", got)
		}
	})
}

// After KICK 4 the pages are half as large, each time.
func TestSmallerPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 40)
		c, r := connect(t, f, everything, func(o *Options) { o.PageSize = 16 })
		defer stop(t, f, c)
		for want := 16; want >= 1; want /= 2 {
			ready(t, c)
			synctest.Wait()
			f.fill(bob, 20)
			f.resync(0)
			rest(time.Second)
			pulls, syncs := f.pulls(), f.syncs()
			if n := int(pulls[len(pulls)-1].Limit); n != want {
				t.Errorf("PULL with the limit %d, want %d", n, want)
			}
			if n := int(syncs[len(syncs)-1].Limit); n != want {
				t.Errorf("SYNC with the limit %d, want %d", n, want)
			}
			f.locked(func() { f.newest().kick(protocol.Kick{Reason: protocol.KickSlow}) })
			rest(2 * time.Minute)
		}
		rest(time.Minute)
		r.wantSeqs(t, bob, 1, 140)
	})
}

// A State that fails stops the client: it could not go on where it was.
type failingState struct {
	*MemoryState
	fail string
}

func (s *failingState) Load(ctx context.Context) (Saved, error) {
	if s.fail == "Load" {
		return Saved{}, errExpected
	}
	return s.MemoryState.Load(ctx)
}

func (s *failingState) Save(ctx context.Context, session Session) error {
	if s.fail == "Save" || s.fail == "Save token" && session.Token != "" {
		return errExpected
	}
	return s.MemoryState.Save(ctx, session)
}

func (s *failingState) SavePositions(ctx context.Context, list []Position) error {
	if s.fail == "SavePositions" {
		return errExpected
	}
	return s.MemoryState.SavePositions(ctx, list)
}

func TestStateFails(t *testing.T) {
	for _, what := range []string{"Load", "Save", "Save token", "SavePositions"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.fill(bob, 1)
				c, _ := connect(t, f, func(o *Options) { o.State = &failingState{NewMemoryState(), what} })
				<-c.Done()
				if !errors.Is(c.Err(), errExpected) {
					t.Errorf("Err is %v", c.Err())
				}
				stop(t, f, c)
			})
		})
	}
}

// An app whose list handler fails is stopped with that error.
func TestListHandlerError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 1)
		c, _ := connect(t, f, func(o *Options) {
			o.OnList = func(context.Context, ListPage) error { return errExpected }
		})
		<-c.Done()
		if !errors.Is(c.Err(), errExpected) {
			t.Errorf("Err is %v", c.Err())
		}
		stop(t, f, c)
	})
}
