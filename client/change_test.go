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
