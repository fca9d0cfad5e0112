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

// owned is what OnDeleted and OnCleared got, in order.
func (r *recorder) owned() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.own {
		list = append(list, fmt.Sprintf("%s %s %v%d", s.Op, s.ConversationID, s.Seqs, s.UpToSeq))
	}
	return list
}

func (r *recorder) wantOwned(t *testing.T, want ...string) {
	t.Helper()
	if got := r.owned(); !slices.Equal(got, want) {
		t.Errorf("OnDeleted and OnCleared got\n%q, want\n%q", got, want)
	}
}

// What the user does on other devices reaches this one: online, away, with lost pushes; once and in order. The stream itself is not shown.
func TestOwnFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 20)
		state := NewMemoryState()
		lasting := func(o *Options) { o.State = state }
		c, r := connect(t, f, lasting)
		ready(t, c)
		synctest.Wait()
		f.locked(func() { f.hide(nil, bob, 3, 7) })
		synctest.Wait()
		f.locked(func() {
			f.onPush = func(*peer, *protocol.Message) bool { return true } // lost
			f.hide(nil, bob, 4)
			f.onPush = nil
			f.clear(nil, bob, 5)
		})
		synctest.Wait()
		want := []string{"delete " + bob + " [3 7]0", "delete " + bob + " [4]0", "clear " + bob + " []5"}
		r.wantOwned(t, want...)
		if len(r.events) != 0 {
			t.Errorf("OnEvent got %+v", r.events)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		want = nil
		f.locked(func() {
			for seq := uint64(6); seq <= 20; seq++ {
				f.hide(nil, bob, seq)
				want = append(want, fmt.Sprintf("delete %s [%d]0", bob, seq))
			}
			f.clear(nil, bob, 0)
		})
		want = append(want, "clear "+bob+" []20")
		c, r = connect(t, f, lasting, func(o *Options) { o.PageSize = 4 })
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantOwned(t, want...)
		if len(r.messages) != 0 || len(r.changes) != 0 {
			t.Errorf("shown: %+v, %+v", r.messages, r.changes)
		}
		for _, p := range r.pages {
			for _, cv := range p.Conversations {
				if cv.ConversationID != bob {
					t.Errorf("the list has %s", cv.ConversationID)
				}
			}
		}
		for cv, err := range c.AllConversations(t.Context()) {
			if err != nil || cv.ConversationID != bob {
				t.Errorf("AllConversations has %s, %v", cv.ConversationID, err)
			}
		}
	})
}

// A device that knows nothing yet has nothing to delete: what the stream says is in what it pulls.
func TestOwnOnNewDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 10)
		f.locked(func() { f.hide(nil, bob, 9); f.clear(nil, bob, 4) })
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		if got := r.seqs(bob); !slices.Equal(got, []uint64{5, 6, 7, 8, 10}) {
			t.Errorf("the app got %v", got)
		}
		r.wantOwned(t)
		f.locked(func() { f.hide(nil, bob, 10) })
		synctest.Wait()
		r.wantOwned(t, "delete "+bob+" [10]0")
	})
}

// What a device does itself comes like what others do, in the stream's order; the server does not push it.
func TestOwnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 500)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		ctx := t.Context()
		if err := c.Delete(ctx, bob, 3); err != nil {
			t.Error(err)
		}
		f.locked(func() { f.hide(nil, bob, 4) })
		if err := c.Delete(ctx, bob, 5, 6); err != nil {
			t.Error(err)
		}
		if n, err := c.Clear(ctx, bob, 10); n != 11 || err != nil {
			t.Errorf("Clear: %d, %v", n, err)
		}
		synctest.Wait()
		want := []string{"delete " + bob + " [3]0", "delete " + bob + " [4]0", "delete " + bob + " [5 6]0", "clear " + bob + " []10"}
		if r.wantOwned(t, want...); t.Failed() {
			return
		}
		before := len(f.sent(protocol.CmdDelete))
		var many []uint64
		for seq := uint64(11); seq <= 460; seq++ {
			many = append(many, seq)
		}
		if err := c.Delete(ctx, bob, many...); err != nil {
			t.Error(err)
		}
		if err := c.Delete(ctx, bob); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := len(f.sent(protocol.CmdDelete)) - before; n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
		var got []uint64
		for _, s := range r.own[4:] {
			got = append(got, s.Seqs...)
		}
		if !slices.Equal(got, many) {
			t.Errorf("OnDeleted got %v", brief(got))
		}
		if err := c.Delete(ctx, bob, 501); !errors.Is(err, &protocol.Error{Code: protocol.CodeNotFound}) {
			t.Errorf("Delete of what is not there: %v", err)
		}
		rest(time.Hour)
		if n := c.Stats().FetchesGivenUp; n != 0 {
			t.Errorf("%d fetches given up", n)
		}
	})
}

// Clearing all is clearing what there is at the moment, also when the reply is lost and the request goes out again after a message.
func TestClearAllOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 10)
		n := 0
		f.onFrame = func(p *peer, fr protocol.Frame) bool {
			if fr.Command != protocol.CmdClear {
				return false
			}
			if n++; n > 1 {
				return false
			}
			p.alter(fr)
			p.cut()
			f.write(bob)
			return true
		}
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		if low, err := c.Clear(t.Context(), bob, 0); low != 11 || err != nil || n != 2 {
			t.Errorf("Clear: %d, %v after %d requests", low, err, n)
		}
		rest(time.Minute)
		r.wantSeqs(t, bob, 1, 11)
		for _, s := range r.own {
			if s.Op != protocol.OwnClear || s.UpToSeq != 10 {
				t.Errorf("OnCleared got %+v", s)
			}
		}
		if _, err := c.Clear(t.Context(), "g:none", 0); !errors.Is(err, &protocol.Error{Code: protocol.CodeNotFound}) {
			t.Errorf("Clear of nothing: %v", err)
		}
	})
}

// What was deleted on another device while it waited for a slow app is not shown any more, nor what is pushed, or comes with a page, late.
func TestDeletedOnTheWay(t *testing.T) {
	for _, how := range []string{"held", "pushed late", "pulled late", "cleared", "cleared after a pull", "changed", "changed, cleared", "changed late"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testDeletedOnTheWay(t, how) })
		})
	}
}

func testDeletedOnTheWay(t *testing.T, how string) {
	f := newFake(t)
	f.fill(bob, 3)
	f.fill("g:other", 1)
	gate := make(chan struct{})
	r := &recorder{}
	c, _ := connect(t, f, r.options, func(o *Options) { o.OnEvent = func(context.Context, protocol.Event) { <-gate } })
	defer stop(t, f, c)
	ready(t, c)
	synctest.Wait()
	step := func(do func()) { f.locked(do); synctest.Wait() }
	// The handlers are busy, and the stream is the next that they take.
	busy := func() {
		step(func() { f.tell(nil, protocol.Event{Type: protocol.EventRead}) })
		step(func() { f.hide(nil, "g:other", 1) })
	}
	var four, five protocol.Message
	step(func() {
		four, five = f.write(bob), f.write(bob)
		if strings.HasPrefix(how, "changed") {
			f.push(f.newest(), four, five)
		}
	})
	switch how {
	case "held":
		busy()
		step(func() { f.push(f.newest(), four, five) })
		step(func() { f.hide(nil, bob, 4) })
	case "cleared", "cleared after a pull":
		busy()
		if step(func() { f.push(f.newest(), five) }); how == "cleared" {
			f.locked(func() { f.push(f.newest(), four) })
		}
		step(func() { f.clear(nil, bob, 4) })
	case "changed", "changed, cleared":
		busy()
		step(func() { f.alter(nil, bob, 4, edited(1, "not to be seen")) })
		step(func() {
			if how == "changed" {
				f.hide(nil, bob, 4)
			} else {
				f.clear(nil, bob, 4)
			}
		})
	case "changed late":
		var late []byte
		f.locked(func() { f.onFrame = f.capture(protocol.CmdChanges, &late) })
		step(func() { f.alter(nil, bob, 4, edited(1, "not to be seen")) })
		step(func() { f.onFrame = nil; f.hide(nil, bob, 4) })
		step(func() { f.newest().send(late) })
	case "pushed late":
		step(func() { f.hide(nil, bob, 4) })
		step(func() { f.push(f.newest(), four); f.push(f.newest(), five) })
	case "pulled late":
		var late []byte
		f.locked(func() { f.onFrame = f.capture(protocol.CmdPull, &late) })
		step(func() { f.push(f.newest(), five) }) // so that 4 is pulled
		step(func() { f.onFrame = nil; f.hide(nil, bob, 4) })
		step(func() { f.newest().send(late) })
	}
	close(gate)
	synctest.Wait()
	want := []uint64{1, 2, 3, 5}
	if strings.HasPrefix(how, "changed") {
		want = []uint64{1, 2, 3, 4, 5}
	}
	if got := r.seqs(bob); !slices.Equal(got, want) {
		t.Errorf("the app got %v, want %v", got, want)
	}
	r.wantChanges(t)
	if own := r.owned(); len(own) == 0 || own[len(own)-1] != "delete "+bob+" [4]0" && own[len(own)-1] != "clear "+bob+" []4" {
		t.Errorf("OnDeleted and OnCleared got %q", own)
	}
	if b := c.inbox; b.pushedBytes != 0 || b.fetchedBytes != 0 {
		t.Errorf("%d and %d bytes are still counted as held", b.pushedBytes, b.fetchedBytes)
	}
}

// capture keeps the reply to the first request of a command, as it is at that moment, instead of sending it.
func (f *fake) capture(cmd protocol.Command, reply *[]byte) func(*peer, protocol.Frame) bool {
	return func(p *peer, fr protocol.Frame) bool {
		if fr.Command != cmd || *reply != nil {
			return false
		}
		p.captured = reply
		p.answer(fr)
		p.captured = nil
		return true
	}
}

// An app that refuses a deletion gets it again after the next start, and nothing before it.
func TestOwnRefusedByApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 10)
		state := NewMemoryState()
		lasting := func(o *Options) { o.State = state }
		refuse := &recorder{}
		c, _ := connect(t, f, refuse.options, lasting, func(o *Options) {
			take := o.OnDeleted
			o.OnDeleted = func(ctx context.Context, id string, seqs []uint64) error {
				if seqs[0] == 2 {
					return errExpected
				}
				return take(ctx, id, seqs)
			}
			o.OnCleared = func(context.Context, string, uint64) error { return errExpected }
		})
		ready(t, c)
		synctest.Wait()
		f.locked(func() {
			for seq := uint64(1); seq <= 3; seq++ {
				f.hide(nil, bob, seq)
			}
			f.clear(nil, bob, 5)
		})
		<-c.Done()
		if err := c.Close(); !errors.Is(err, errExpected) {
			t.Errorf("Close returned %v", err)
		}
		refuse.wantOwned(t, "delete "+bob+" [1]0")
		c, r := connect(t, f, lasting)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		r.wantOwned(t, "delete "+bob+" [2]0", "delete "+bob+" [3]0", "clear "+bob+" []5")
	})
}

// The own stream has its place however many conversations there are, and without handlers nothing is missed.
func TestOwnAmongTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		c, r := connect(t, f, func(o *Options) { o.MaxConversations = 1 })
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.locked(func() { f.hide(nil, bob, 2) })
		synctest.Wait()
		r.wantOwned(t, "delete "+bob+" [2]0")
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		c, r := connect(t, f, func(o *Options) { o.OnDeleted, o.OnCleared, o.OnChange = nil, nil, nil })
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		f.locked(func() { f.hide(nil, bob, 2); f.clear(nil, bob, 3); f.alter(nil, bob, 5, revoked) })
		f.post(bob, 1)
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 6)
	})
}

// What is deleted in a conversation that the list has not come to yet is not shown when the list has come to it, as it was before.
func TestOwnBeforeTheListIsComplete(t *testing.T) {
	for _, cleared := range []bool{false, true} {
		t.Run(fmt.Sprint(cleared), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const late = "z:behind the stream in the list"
				f := newFake(t)
				f.fill(late, 3)
				f.locked(func() { f.hide(nil, late, 1) })
				var page []byte
				f.onFrame = func(p *peer, fr protocol.Frame) bool {
					var q protocol.Sync
					if fr.Command != protocol.CmdSync {
						return false
					}
					p.decode(fr, &q)
					return q.Cursor != "" && f.capture(protocol.CmdSync, &page)(p, fr)
				}
				c, r := connect(t, f, func(o *Options) { o.PageSize = 1 })
				defer stop(t, f, c)
				synctest.Wait()
				f.post(late, 1)
				synctest.Wait()
				f.locked(func() {
					if cleared {
						f.clear(nil, late, 4)
					} else {
						f.hide(nil, late, 4)
					}
				})
				synctest.Wait()
				if len(r.own) != 1 {
					t.Fatalf("OnDeleted and OnCleared got %+v", r.own)
				}
				f.locked(func() { f.newest().send(page) })
				ready(t, c)
				synctest.Wait()
				if got := r.seqs(late); slices.Contains(got, 4) {
					t.Errorf("the app got %v", got)
				}
			})
		})
	}
}

// That the stream, or the changes, could not be asked does not mean that nothing is there.
func TestAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 5)
		f.onEvent = func(*peer, *protocol.Event) bool { return true }
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		failed := map[protocol.Command]bool{}
		f.locked(func() {
			f.alter(nil, bob, 2, revoked)
			f.onFrame = func(p *peer, fr protocol.Frame) bool {
				switch {
				case fr.Command == protocol.CmdReact:
					p.write(fr.Command.Reply(), fr.RequestID, &protocol.ChangeReply{}) // it does not say
					return true
				case fr.Command != protocol.CmdPull && fr.Command != protocol.CmdChanges || failed[fr.Command]:
					return false
				}
				failed[fr.Command] = true
				p.fail(fr.RequestID, protocol.CodeUnavailable, 0)
				return true
			}
		})
		syncs := len(f.syncs())
		if err := c.Delete(t.Context(), bob, 3); err != nil {
			t.Error(err)
		}
		if n, err := c.React(t.Context(), bob, 4, "+1", false); n != 0 || err != nil {
			t.Errorf("React: %d, %v", n, err)
		}
		rest(time.Minute)
		r.wantOwned(t, "delete "+bob+" [3]0")
		r.wantChanges(t, "2/1")
		if len(failed) != 2 || len(f.syncs()) != syncs {
			t.Errorf("%v failed, %d SYNCs", failed, len(f.syncs())-syncs)
		}
	})
}

// A message that was deleted while it was held stays so when a later copy of it is pushed.
func TestDeletedThenPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 3)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		synctest.Wait()
		var page []byte
		f.locked(func() {
			f.write(bob)
			f.onFrame = f.capture(protocol.CmdPull, &page)
			f.push(f.newest(), f.write(bob)) // 5 is held while 4 is pulled
		})
		synctest.Wait()
		f.locked(func() { f.hide(nil, bob, 5) })
		synctest.Wait()
		f.locked(func() {
			five := f.conversation(bob).log[4]
			five.ChangeSeq = 1
			f.push(f.newest(), five)
			f.newest().send(page)
		})
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 4)
		r.wantOwned(t, "delete "+bob+" [5]0")
	})
}
