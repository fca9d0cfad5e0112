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

// changed is what OnChange got, as "seq/change_seq".
func (r *recorder) changed() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.changes {
		list = append(list, fmt.Sprint(m.Seq, "/", m.ChangeSeq))
	}
	return list
}

func (r *recorder) wantChanges(t *testing.T, want ...string) {
	t.Helper()
	if got := r.changed(); !slices.Equal(got, want) {
		t.Errorf("OnChange got %v, want %v", got, want)
	}
}

// alterLocked is alter from elsewhere.
func (f *fake) alterLocked(seq uint64, with func(*protocol.Message) bool) {
	f.locked(func() { f.alter(nil, bob, seq, with) })
}

// What a device changes itself it gets like all others: once, in order, as it then is.
func TestChangeCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		ctx := t.Context()
		for i, call := range []func() (uint64, error){
			func() (uint64, error) { return c.React(ctx, bob, 3, "+1", true) },
			func() (uint64, error) { return c.Edit(ctx, bob, 3, 0, []byte("better")) },
			func() (uint64, error) { return c.Edit(ctx, bob, 2, 150, []byte("other")) },
			func() (uint64, error) { return c.React(ctx, bob, 3, "+1", false) },
			func() (uint64, error) { return c.Revoke(ctx, bob, 4) },
		} {
			if n, err := call(); err != nil || n != uint64(i+1) {
				t.Errorf("call %d: change_seq %d, %v", i, n, err)
			}
			synctest.Wait()
		}
		if r.wantChanges(t, "3/1", "3/2", "2/3", "3/4", "4/5"); t.Failed() {
			return
		}
		if m := r.changes[1]; string(m.Content) != "better" || m.ContentType != protocol.ContentText || m.EditMS == 0 || len(m.Reactions) != 1 || !m.Reactions[0].Mine {
			t.Errorf("edited: %+v", m)
		}
		if m := r.changes[2]; string(m.Content) != "other" || m.ContentType != 150 {
			t.Errorf("edited: %+v", m)
		}
		if m := r.changes[4]; m.Status != protocol.StatusRevoked || m.Revoke == nil || m.Content != nil {
			t.Errorf("revoked: %+v", m)
		}
		// What changes nothing tells of the latest change, or of none at all.
		for seq, want := range map[uint64]uint64{4: 5, 1: 0} {
			n, err := c.React(ctx, bob, seq, "+1", false)
			if err != nil || n != want {
				t.Errorf("change_seq %d, %v, want %d", n, err, want)
			}
		}
		if _, err := c.Revoke(ctx, bob, 6); !errors.Is(err, &protocol.Error{Code: protocol.CodeNotFound}) {
			t.Errorf("a revoke of what is not there: %v", err)
		}
		f.alterLocked(1, revoked)
		synctest.Wait()
		r.wantChanges(t, "3/1", "3/2", "2/3", "3/4", "4/5", "1/6")
	})
}

// However often, and by whatever way, a device is told of a change, the app is told once.
func TestChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.alterLocked(3, revoked)
		again := protocol.Event{Type: protocol.EventMessageChanged, ConversationID: bob, Seq: 3, ChangeSeq: 1}
		f.locked(func() { f.tell(nil, again); f.tell(nil, again) })
		f.resync(0)
		if p, err := c.Pull(t.Context(), protocol.Pull{ConversationID: bob, Limit: 5}); err != nil || p.Messages[2].ChangeSeq != 1 {
			t.Errorf("Pull: %+v, %v", p, err)
		}
		rest(time.Second)
		r.wantChanges(t, "3/1")
		// A push of the changed message, again: the app has it.
		f.locked(func() { f.push(f.newest(), f.conversation(bob).log[2]) })
		f.cut()
		rest(time.Minute)
		r.wantChanges(t, "3/1")
		r.wantSeqs(t, bob, 1, 5)
	})
}

// A change that only a PULL told of is fetched, with those before it.
func TestChangeToldByPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onEvent = func(*peer, *protocol.Event) bool { return true } // lost
		f.fill(bob, 5)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.alterLocked(3, revoked)
		f.alterLocked(5, revoked)
		synctest.Wait()
		r.wantChanges(t)
		if _, err := c.Pull(t.Context(), protocol.Pull{ConversationID: bob, FromSeq: 5, Limit: 5}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		r.wantChanges(t, "3/1", "5/2")
		// The same by a message that the client itself pulls.
		f.fill(bob, 2)
		f.alterLocked(1, revoked)
		f.alterLocked(6, revoked)
		f.locked(func() { f.push(f.newest(), f.conversation(bob).log[6]) })
		synctest.Wait()
		r.wantChanges(t, "3/1", "5/2", "1/3")
		// And by one that is pushed.
		f.fill(bob, 1)
		f.alterLocked(2, revoked)
		f.alterLocked(8, revoked)
		f.locked(func() { f.push(f.newest(), f.conversation(bob).log[7]) })
		synctest.Wait()
		r.wantChanges(t, "3/1", "5/2", "1/3", "2/5")
		if m := r.messages[5]; m.Seq != 6 || m.ChangeSeq != 4 {
			t.Errorf("6 came as %+v", m)
		}
	})
}

// A message that was changed before it was handed on is not told of again; what was changed while the device was away is, in order.
func TestChangesWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 10)
		state := NewMemoryState()
		lasting := func(o *Options) { o.State, o.PageSize = state, 3; everything(o) }
		c, r := connect(t, f, lasting)
		ready(t, c)
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 10)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		f.fill(bob, 10)
		var want []string
		for i := range uint64(20) { // old and new ones in turn, each twice
			seq := 1 + (i*11)%20
			f.alterLocked(seq, reacted("a", true))
		}
		for i := range uint64(20) {
			seq := 20 - (i*11)%20
			f.alterLocked(seq, reacted("b", true))
			if seq <= 10 {
				want = append(want, fmt.Sprint(seq, "/", 21+i))
			}
		}
		c, r = connect(t, f, lasting)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantSeqs(t, bob, 11, 20)
		r.wantChanges(t, want...)
		for _, m := range r.messages {
			if m.ChangeSeq <= 20 || len(m.Reactions) != 2 {
				t.Errorf("%d came as %+v", m.Seq, m)
			}
		}
		if c.inbox.told != 0 || c.inbox.fetchedBytes != 0 {
			t.Errorf("%d change_seqs, %d bytes are left", c.inbox.told, c.inbox.fetchedBytes)
		}
	})
}

// An event that overtakes the reply of a CHANGES is not swallowed by it.
func TestEventOvertakesChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		var late []byte
		f.onFrame = f.capture(protocol.CmdChanges, &late)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.alterLocked(3, revoked)
		synctest.Wait()
		f.alterLocked(4, revoked)
		synctest.Wait()
		r.wantChanges(t)
		f.locked(func() { f.newest().send(late) })
		synctest.Wait()
		r.wantChanges(t, "3/1", "4/2")
	})
}

// A change that a device hears of before the message: the copy that is pushed later is the older one, and not shown.
func TestChangeOvertakesPush(t *testing.T) {
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				if known {
					f.fill(bob, 2)
				}
				c, r := connect(t, f)
				defer stop(t, f, c)
				ready(t, c)
				synctest.Wait()
				var m protocol.Message
				f.locked(func() {
					m = f.write(bob)
					f.alter(nil, bob, m.Seq, revoked)
				})
				synctest.Wait()
				f.locked(func() { f.push(f.newest(), m) })
				synctest.Wait()
				r.wantSeqs(t, bob, 1, m.Seq)
				if got := r.messages[m.Seq-1]; got.Status != protocol.StatusRevoked || len(got.Content) != 0 {
					t.Errorf("it came as %+v", got)
				}
				r.wantChanges(t)
			})
		})
	}
}

// A message that was pushed before the first list, and changed before it: the list's change_seq has that change, so the pushed copy is not
// taken.
func TestChangeBeforeList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 3)
		f.onFrame = func(p *peer, fr protocol.Frame) bool {
			if fr.Command == protocol.CmdSync {
				m := f.write(bob)
				f.push(p, m)
				f.alter(nil, bob, m.Seq, revoked)
				f.onFrame = nil
			}
			return false
		}
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 4)
		if m := r.messages[3]; m.Status != protocol.StatusRevoked {
			t.Errorf("it came as %+v", m)
		}
	})
}

// Too far behind: the app is told once to fetch anew, nothing that was held before is shown as it was, and later changes come.
func TestChangesReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.behind = 5
		f.fill(bob, 5)
		gate := make(chan struct{})
		r := &recorder{}
		c, _ := connect(t, f, r.options, func(o *Options) {
			take := o.OnMessage
			o.OnMessage = func(ctx context.Context, m protocol.Message) error {
				if m.Seq == 6 {
					<-gate
				}
				return take(ctx, m)
			}
		})
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.post(bob, 1)
		synctest.Wait()
		f.post(bob, 2) // 6 is with the handler, 7 and 8 are held
		synctest.Wait()
		f.locked(func() {
			f.onEvent = func(_ *peer, e *protocol.Event) bool { return e.ChangeSeq < 6 }
			for i := range 6 {
				f.alter(nil, bob, 8, edited(100, fmt.Sprint("edit ", i)))
			}
		})
		synctest.Wait()
		close(gate)
		rest(time.Second)
		if !slices.Equal(r.stale, []string{bob}) {
			t.Errorf("OnStale got %q", r.stale)
		}
		r.wantSeqs(t, bob, 1, 8)
		if m := r.messages[7]; string(m.Content) != "edit 5" {
			t.Errorf("8 came as %q", m.Content)
		}
		f.alterLocked(2, revoked)
		synctest.Wait()
		r.wantChanges(t, "2/7")
		// A server that has fewer changes than the device knows: from there.
		f.locked(func() {
			cv := f.conversation(bob)
			cv.changes = cv.changes[:2]
			f.onEvent = nil
			f.tell(nil, protocol.Event{Type: protocol.EventMessageChanged, ConversationID: bob, ChangeSeq: 8})
		})
		synctest.Wait()
		f.alterLocked(1, revoked)
		synctest.Wait()
		r.wantChanges(t, "2/7", "1/3")
		if !slices.Equal(r.stale, []string{bob, bob}) {
			t.Errorf("OnStale got %q", r.stale)
		}
	})
}

// A server that announces changes which it does not have is asked once for each word.
func TestChangesThatAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		for _, n := range []uint64{7, protocol.MaxInt, 0} {
			f.locked(func() {
				f.tell(nil, protocol.Event{Type: protocol.EventMessageChanged, ConversationID: bob, ChangeSeq: n})
			})
			rest(time.Hour)
		}
		if n := len(f.sent(protocol.CmdChanges)); n != 3 {
			t.Errorf("%d CHANGES, want 3", n)
		}
		f.alterLocked(2, revoked)
		synctest.Wait()
		r.wantChanges(t, "2/1")
	})
}

// A message that an operator removed after it was changed comes once more, as gone; it has no change_seq.
func TestChangeOfGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.onFrame = func(p *peer, fr protocol.Frame) bool {
			if fr.Command == protocol.CmdChanges {
				p.write(fr.Command.Reply(), fr.RequestID, &protocol.ChangesReply{Next: 2, Messages: []protocol.Message{
					{ConversationID: bob, Seq: 3, Status: protocol.StatusGone, Run: 1}, {ConversationID: bob, Seq: 4, Status: protocol.StatusHidden, Run: 1},
				}})
				return true
			}
			return false
		}
		f.locked(func() { f.change(bob, 3, func(*protocol.Message) {}); f.change(bob, 4, func(*protocol.Message) {}) })
		f.resync(0)
		rest(time.Second)
		if len(r.changes) != 1 || r.changes[0].Seq != 3 || r.changes[0].Status != protocol.StatusGone {
			t.Errorf("OnChange got %+v", r.changes)
		}
	})
}

// An app that refuses a change gets it, and what follows, after the next start; not what it took.
func TestChangeRefusedByApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		state := NewMemoryState()
		lasting := func(o *Options) { o.State = state }
		refuse := &recorder{}
		c, _ := connect(t, f, refuse.options, lasting, func(o *Options) {
			take := o.OnChange
			o.OnChange = func(ctx context.Context, m protocol.Message) error {
				if m.Seq == 3 {
					return errExpected
				}
				return take(ctx, m)
			}
		})
		ready(t, c)
		synctest.Wait()
		f.locked(func() {
			f.onEvent = func(_ *peer, e *protocol.Event) bool { return e.ChangeSeq < 4 }
			for seq := uint64(1); seq <= 4; seq++ {
				f.alter(nil, bob, seq, revoked)
			}
		})
		<-c.Done()
		if err := c.Close(); !errors.Is(err, errExpected) {
			t.Errorf("Close returned %v", err)
		}
		refuse.wantChanges(t, "1/1", "2/2")
		c, r := connect(t, f, lasting)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantChanges(t, "3/3", "4/4")
	})
}

// What is remembered of changes that the app has is bounded; beyond, it may be told twice, and that is counted.
func TestToldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 1)
		c, r := connect(t, f, everything)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		c.inbox.mu.Lock()
		c.inbox.maxTold = 3
		c.inbox.mu.Unlock()
		f.fill(bob, 5)
		var late []byte
		f.locked(func() {
			f.onFrame = f.capture(protocol.CmdChanges, &late)
			f.onEvent = func(*peer, *protocol.Event) bool { return true }
			for seq := uint64(2); seq <= 6; seq++ {
				f.alter(nil, bob, seq, revoked)
			}
		})
		f.resync(0)
		rest(time.Second)
		r.wantSeqs(t, bob, 1, 6)
		f.locked(func() { f.newest().send(late) })
		synctest.Wait()
		r.wantChanges(t, "5/4", "6/5")
		if n := c.Stats().ChangesForgotten; n != 2 {
			t.Errorf("%d forgotten, want 2", n)
		}
		if c.inbox.told != 0 {
			t.Errorf("%d change_seqs are left", c.inbox.told)
		}
	})
}

// Changes that wait for a slow app count for the room of what is fetched.
func TestChangesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const convs, hold = 50, 64 << 10
		f := newFake(t)
		for i := range convs {
			f.fill(fmt.Sprint("g:", i), 10)
		}
		gate := make(chan struct{})
		r := &recorder{}
		c, _ := connect(t, f, r.options, func(o *Options) {
			o.HoldBytes = hold
			o.OnEvent = func(context.Context, protocol.Event) { <-gate }
		})
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.locked(func() {
			f.tell(nil, protocol.Event{Type: protocol.EventRead, ConversationID: bob}) // now a handler waits
			for i := range convs {
				for seq := uint64(1); seq <= 10; seq++ {
					f.alter(nil, fmt.Sprint("g:", i), seq, edited(1, string(make([]byte, 1000))))
				}
			}
		})
		synctest.Wait()
		c.inbox.mu.Lock()
		n := c.inbox.fetchedBytes
		c.inbox.mu.Unlock()
		if n < hold/4 || n > hold/2+(fetchers+1)*10*1300 {
			t.Errorf("%d bytes of changes are held", n)
		}
		close(gate)
		synctest.Wait()
		if len(r.changes) != convs*10 || c.inbox.fetchedBytes != 0 {
			t.Errorf("%d changes, %d bytes are left", len(r.changes), c.inbox.fetchedBytes)
		}
	})
}

// An app that ends before it was told that something is stale is told after the next start: of a conversation, or of everything.
func TestStaleIsNotLost(t *testing.T) {
	for _, everythingIs := range []bool{false, true} {
		t.Run(fmt.Sprint(everythingIs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.behind = 2
				f.fill(bob, 5)
				state := NewMemoryState()
				lasting := func(o *Options) { o.State = state }
				c, _ := connect(t, f, lasting, func(o *Options) {
					o.OnStale = func(context.Context, string) error { return errExpected }
				})
				ready(t, c)
				synctest.Wait()
				want := bob
				f.locked(func() {
					if everythingIs {
						want, f.epoch = "", "e2"
						f.newest().cut()
						return
					}
					f.onEvent = func(_ *peer, e *protocol.Event) bool { return e.ChangeSeq < 4 }
					for range 2 {
						f.alter(nil, bob, 1, reacted("a", true))
						f.alter(nil, bob, 1, reacted("a", false))
					}
				})
				<-c.Done()
				if err := c.Close(); !errors.Is(err, errExpected) {
					t.Errorf("Close returned %v", err)
				}
				for i := range 2 { // and not a third time
					c, r := connect(t, f, lasting)
					ready(t, c)
					synctest.Wait()
					if got := r.stale; len(got) != 1-i || i == 0 && got[0] != want {
						t.Errorf("start %d: OnStale got %q", i, got)
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
				f.close()
			})
		})
	}
}

// A copy that is pushed late, of a message that is known to have changed, is not taken while the message is about to be pulled: after a
// CHANGES that had it, and after one that said to fetch anew.
func TestLatePushAfterChanges(t *testing.T) {
	for _, behind := range []uint64{0, 1} {
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.behind = behind
				f.fill(bob, 5)
				gate := make(chan struct{})
				c, r := connect(t, f, func(o *Options) {
					o.PageSize = 1
					o.OnEvent = func(context.Context, protocol.Event) { <-gate }
				})
				defer stop(t, f, c)
				ready(t, c)
				synctest.Wait()
				var six, seven protocol.Message
				var page []byte
				f.locked(func() {
					six, seven = f.write(bob), f.write(bob)
					f.tell(nil, protocol.Event{Type: protocol.EventRead}) // a handler waits
					if behind > 0 {
						f.push(f.newest(), six, seven)
					}
				})
				synctest.Wait()
				f.locked(func() {
					f.onEvent = func(_ *peer, e *protocol.Event) bool { return e.ChangeSeq < 2 }
					f.onFrame = f.capture(protocol.CmdPull, &page)
					f.alter(nil, bob, 7, revoked) // a page of its own
					f.alter(nil, bob, 6, revoked)
				})
				synctest.Wait()
				if page == nil {
					t.Fatal("6 was not pulled")
				}
				f.locked(func() { f.push(f.newest(), seven); f.push(f.newest(), six) })
				close(gate)
				synctest.Wait()
				f.locked(func() { f.newest().send(page) })
				synctest.Wait()
				r.wantSeqs(t, bob, 1, 7)
				for _, m := range r.messages[5:] {
					if m.Status != protocol.StatusRevoked {
						t.Errorf("%d came as %+v", m.Seq, m)
					}
				}
			})
		})
	}
}

// A message that waits for a slow app, and turns out to be gone, is not shown.
func TestGoneWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		gate := make(chan struct{})
		c, r := connect(t, f, func(o *Options) { o.OnEvent = func(context.Context, protocol.Event) { <-gate } })
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.locked(func() { f.tell(nil, protocol.Event{Type: protocol.EventRead}) })
		synctest.Wait()
		f.post(bob, 2)
		synctest.Wait()
		f.alterLocked(7, func(m *protocol.Message) bool {
			*m = protocol.Message{ConversationID: bob, Seq: 7, Status: protocol.StatusGone, Run: 1}
			return true
		})
		synctest.Wait()
		close(gate)
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 6)
		f.post(bob, 1)
		synctest.Wait()
		if got := r.seqs(bob); got[len(got)-1] != 8 {
			t.Errorf("the app got %v", got)
		}
	})
}

// After another epoch nothing of the old one's changes is handed on.
func TestChangesOfAnotherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		gate := make(chan struct{})
		r := &recorder{}
		c, _ := connect(t, f, r.options, func(o *Options) {
			take := o.OnChange
			o.OnChange = func(ctx context.Context, m protocol.Message) error {
				<-gate
				return take(ctx, m)
			}
		})
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.locked(func() {
			f.onEvent = func(_ *peer, e *protocol.Event) bool { return e.ChangeSeq < 2 }
			f.alter(nil, bob, 1, revoked)
			f.alter(nil, bob, 2, revoked)
		})
		synctest.Wait()
		f.locked(func() {
			f.epoch = "e2"
			f.newest().cut()
		})
		rest(time.Minute)
		close(gate)
		rest(time.Minute)
		r.wantChanges(t, "1/1")
		if !slices.Equal(r.stale, []string{""}) {
			t.Errorf("OnStale got %q", r.stale)
		}
	})
}

// Nor is it when positions are saved before the app was told.
func TestStaleIsNotSavedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.behind = 1
		f.fill(bob, 5)
		state := NewMemoryState()
		c, _ := connect(t, f, func(o *Options) {
			o.State, o.OnList = state, nil
			o.OnEvent = func(ctx context.Context, _ protocol.Event) { <-ctx.Done() } // a handler that never ends
		})
		ready(t, c)
		synctest.Wait()
		f.locked(func() {
			f.tell(nil, protocol.Event{Type: protocol.EventRead})
			f.alter(nil, bob, 1, reacted("a", true))
			f.alter(nil, bob, 1, reacted("b", true))
			f.alter(nil, bob, 1, reacted("c", true))
		})
		f.resync(0)
		rest(time.Second)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c, r := connect(t, f, func(o *Options) { o.State = state })
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		if !slices.Equal(r.stale, []string{bob}) {
			t.Errorf("OnStale got %q", r.stale)
		}
	})
}
