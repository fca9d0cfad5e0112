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

// That something is stale is not lost either when positions are saved before the app was told.
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
