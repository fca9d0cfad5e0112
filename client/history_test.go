package client

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

var (
	seeds    = flag.Int("seeds", 60, "how many random histories to run")
	fromSeed = flag.Uint64("seed", 1, "the first of them")
)

// A random history: a server that cuts connections, loses replies, refuses, delays, drops and doubles pushes and sends its
// clients away; a client that is closed and started again; messages both ways all the while, and both sides revoke, edit, react to,
// delete and clear them. At the end everything must be in its place.
func TestHistories(t *testing.T) {
	for i := range *seeds {
		seed := *fromSeed + uint64(i)
		ok := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newHistory(t, seed).run() })
		})
		if !ok {
			t.Fatalf("run it again with -run TestHistories -seed %d -seeds 1", seed)
		}
	}
}

type history struct {
	t        *testing.T
	rnd      *rand.Rand // of the actor; the server has its own, used with fake.mu held
	f        *fake
	server   *rand.Rand
	calm     bool // no more faults; guarded by fake.mu
	dirty    bool // pushes were dropped since the last resync
	pipeline int
	state    *MemoryState
	outbox   *MemoryOutbox
	c        *Client
	app      *recorder // of all clients, one after the other
	model    *model    // the same
	calls    sync.WaitGroup
	sent     map[Target][]string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), server: rand.New(rand.NewPCG(seed, 2)), f: newFake(t),
		state: NewMemoryState(), outbox: NewMemoryOutbox(), app: &recorder{}, model: newModel(), sent: map[Target][]string{},
	}
	h.pipeline = []int{1, 1, 8}[h.rnd.IntN(3)]
	h.f.noSeq = h.rnd.IntN(3) == 0
	h.f.onFrame, h.f.onPush, h.f.onHello, h.f.onEvent = h.onFrame, h.onPush, h.onHello, h.onEvent
	h.f.behind = []uint64{0, 40}[h.rnd.IntN(2)]
	slow := rand.New(rand.NewPCG(seed, 3))
	h.model.pause = func() {
		if slow.IntN(10) == 0 {
			time.Sleep(time.Duration(slow.Int64N(int64(time.Second))))
		}
	}
	h.model.refetch = func(id string, seq uint64) (m protocol.Message) {
		h.f.locked(func() { m = h.f.conversation(id).show(seq) })
		return m
	}
	return h
}

func (h *history) run() {
	h.start()
	for range 150 {
		h.act()
		time.Sleep(time.Duration(h.rnd.Int64N(int64(2 * time.Second))))
	}
	h.f.locked(func() { h.calm = true })
	h.f.resync(0)
	rest(5 * time.Minute)
	h.calls.Wait()
	h.f.resync(0)
	rest(time.Minute)
	h.check()
	stop(h.t, h.f, h.c)
}

func (h *history) start() {
	h.model.started()
	h.c, _ = connect(h.t, h.f, h.app.options, h.model.options, func(o *Options) {
		o.State, o.Outbox, o.Pipeline, o.PageSize = h.state, h.outbox, h.pipeline, 7
		o.HoldBytes = 8 << 10 // about 15 messages
		everything(o)
	})
}

var historyTargets = []Target{User("bob"), User("carol"), Group("team")}

func (h *history) act() {
	to := historyTargets[h.rnd.IntN(len(historyTargets))]
	switch n := h.rnd.IntN(100); {
	case n < 20:
		h.f.post(to.Conversation(me), 1+h.rnd.IntN(12))
	case n < 25: // and at once changed
		h.f.post(to.Conversation(me), 1+h.rnd.IntN(3))
		for range 1 + h.rnd.IntN(6) {
			h.alterElsewhere(to.Conversation(me))
		}
	case n < 60:
		for range 1 + h.rnd.IntN(5) {
			text := fmt.Sprint(to.ID, " ", len(h.sent[to]))
			m := Text(to, text)
			m.ClientMsgID = text // which nothing changes
			if _, err := h.c.Queue(h.t.Context(), m); err != nil {
				h.t.Fatal(err)
			}
			h.sent[to] = append(h.sent[to], text)
		}
	case n < 81:
		h.alter(to.Conversation(me))
	case n < 86:
		h.f.locked(func() { h.cutAll() })
	case n < 90:
		h.f.locked(func() { h.f.newest().write(protocol.CmdGoAway, 0, &protocol.GoAway{ReconnectWithinMS: 3000}) })
	case n < 92:
		h.f.locked(func() { h.f.newest().kick(protocol.Kick{Reason: protocol.KickServerFull, RetryAfterMS: 100}) })
	case n < 95:
		if err := h.c.Close(); err != nil {
			h.t.Fatal(err)
		}
		h.f.fill(to.Conversation(me), h.rnd.IntN(30))
		for range h.rnd.IntN(60) {
			h.alterElsewhere(to.Conversation(me))
		}
		h.start()
	default:
		h.f.resync(time.Second)
	}
}

// alter changes a message or deletes some, on this device or elsewhere.
func (h *history) alter(id string) {
	if h.rnd.IntN(2) == 0 {
		h.alterElsewhere(id)
		return
	}
	seq, kind, on := h.some(id), fmt.Sprint("kind ", h.rnd.IntN(3)), h.rnd.IntN(2) == 0
	if seq == 0 {
		return
	}
	c, ctx, n := h.c, h.t.Context(), h.rnd.IntN(20)
	h.calls.Go(func() {
		var err error
		switch {
		case n < 2:
			_, err = c.Revoke(ctx, id, seq)
		case n < 8:
			_, err = c.Edit(ctx, id, seq, 0, []byte(kind))
		case n < 14:
			_, err = c.React(ctx, id, seq, kind, on)
		case n < 19:
			err = c.Delete(ctx, id, seq, max(seq/2, 1))
		default:
			_, err = c.Clear(ctx, id, seq/2+1)
		}
		if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, &protocol.Error{Code: protocol.CodeNotFound}) {
			h.t.Errorf("a change of %s %d: %v", id, seq, err)
		}
	})
}

func (h *history) alterElsewhere(id string) {
	seq := h.some(id)
	if seq == 0 {
		return
	}
	n, text := h.rnd.IntN(40), fmt.Sprint("elsewhere ", h.rnd.IntN(5))
	h.f.locked(func() {
		switch {
		case n < 4:
			h.f.alter(nil, id, seq, revoked)
		case n < 16:
			h.f.alter(nil, id, seq, edited(protocol.ContentText, text))
		case n < 28:
			h.f.alter(nil, id, seq, reacted(text, n%2 == 0))
		case n < 39:
			h.f.hide(nil, id, seq, max(seq/2, 1))
		default:
			h.f.clear(nil, id, seq/3+1)
		}
	})
}

// some is the seq of a message, more often of a new one; 0 when there is none.
func (h *history) some(id string) uint64 {
	n := len(h.f.stored(id))
	if n == 0 {
		return 0
	}
	back := h.rnd.IntN(n)
	if h.rnd.IntN(2) == 0 {
		back = h.rnd.IntN(min(n, 5))
	}
	return uint64(n - back)
}

func (h *history) cutAll() {
	for _, p := range h.f.peers {
		p.cut()
	}
}

// onHello, onFrame and onPush are the server's faults; fake.mu is held.
func (h *history) onHello(p *peer, _ protocol.Hello) bool {
	if h.calm || h.server.IntN(100) < 90 {
		return false
	}
	if h.server.IntN(2) == 0 {
		p.fail(helloID, protocol.CodeUnavailable, 50)
	} else {
		p.cut()
	}
	return true
}

func (h *history) onFrame(p *peer, fr protocol.Frame) bool {
	if h.calm {
		return false
	}
	switch n := h.server.IntN(100); {
	case n < 4:
		p.cut()
	case n < 8: // done, but the reply is lost
		if altering(fr.Command) {
			p.alter(fr)
		}
		if fr.Command == protocol.CmdSend {
			m := h.f.store(fr)
			for _, o := range h.f.peers {
				if o != p {
					h.f.push(o, h.f.shown(m))
				}
			}
		}
		p.cut()
	case n < 14 && fr.Command.CountsInFlight():
		if fr.Command == protocol.CmdSend && h.server.IntN(2) == 0 {
			if m := h.f.store(fr); h.server.IntN(2) == 0 {
				h.f.push(p, h.f.shown(m))
			} else {
				h.dirty = true
			}
		}
		p.fail(fr.RequestID, protocol.CodeUnavailable, uint32(h.server.IntN(300)))
	case n < 24 && fr.Command != protocol.CmdSend: // a slow reply
		h.later(p, fr)
	default:
		return false
	}
	return true
}

func altering(cmd protocol.Command) bool {
	switch cmd {
	case protocol.CmdRevoke, protocol.CmdEdit, protocol.CmdReact, protocol.CmdDelete, protocol.CmdClear:
		return true
	}
	return false
}

// later answers later: with what there is then, or with what there is now.
func (h *history) later(p *peer, fr protocol.Frame) {
	var reply []byte
	if h.server.IntN(2) == 0 {
		p.captured = &reply
		p.answer(fr)
		p.captured = nil
	}
	h.delayed(func() {
		if reply != nil {
			p.send(reply)
		} else {
			p.answer(fr)
		}
	})
}

// delayed does something within the next second.
func (h *history) delayed(do func()) {
	d := time.Duration(h.server.Int64N(int64(time.Second)))
	h.f.wg.Go(func() {
		time.Sleep(d)
		h.f.locked(do)
	})
}

// onEvent loses, doubles and delays events.
func (h *history) onEvent(p *peer, e *protocol.Event) (drop bool) {
	if h.calm {
		return false
	}
	late := &protocol.Events{Events: []protocol.Event{*e, *e}}
	switch n := h.server.IntN(100); {
	case n < 20:
		return true
	case n < 40:
		h.delayed(func() { p.write(protocol.CmdEvent, 0, late) })
		return true
	}
	return false
}

func (h *history) onPush(p *peer, m *protocol.Message) (drop bool) {
	if h.calm {
		return false
	}
	switch n := h.server.IntN(100); {
	case n < 15:
		if !h.dirty { // the server tells that it skipped something, a while later
			h.f.wg.Go(func() {
				time.Sleep(time.Second)
				h.f.locked(func() { h.dirty = false })
				h.f.resync(500 * time.Millisecond)
			})
		}
		h.dirty = true
		return true
	case n < 22:
		p.write(protocol.CmdPush, 1, &protocol.Push{Messages: []protocol.Message{*m, *m}})
	case n < 30: // as it is now, later
		late := *m
		h.delayed(func() { p.write(protocol.CmdPush, 3, &protocol.Push{Messages: []protocol.Message{late}}) })
		return true
	case n < 35: // with some that were pushed before
		cv := h.f.conversation(m.ConversationID)
		var list []protocol.Message
		for seq := max(m.Seq, 5) - 4; seq <= m.Seq; seq++ {
			list = append(list, cv.show(seq))
		}
		p.write(protocol.CmdPush, 2, &protocol.Push{Messages: list})
	}
	return false
}

// check: the app has every message of every conversation as the server shows it, and every message that was sent is stored once and
// in order.
func (h *history) check() {
	for _, to := range historyTargets {
		id := to.Conversation(me)
		h.model.check(h.t, id, uint64(len(h.f.stored(id))))
		h.checkStored(to)
	}
	h.app.locked(func() {
		for _, e := range h.app.ends {
			if e != nil && !errors.Is(e, ErrClosed) && strings.Contains(e.Error(), "bad_frame") {
				h.t.Errorf("a connection ended with %v", e)
			}
		}
	})
	if list, _ := h.outbox.List(h.t.Context()); len(list) != 0 {
		h.t.Errorf("left in the outbox: %+v", list)
	}
	if b := h.c.inbox; b.pushedBytes != 0 || b.fetchedBytes != 0 || b.told != 0 {
		h.t.Errorf("%d and %d bytes are still counted as held, %d changes as told", b.pushedBytes, b.fetchedBytes, b.told)
	}
}

func (h *history) checkStored(to Target) {
	var mine []string
	h.f.locked(func() {
		for _, m := range h.f.conversation(to.Conversation(me)).log {
			if m.Sender == me {
				mine = append(mine, m.ClientMsgID)
			}
		}
	})
	want := h.sent[to]
	if h.pipeline > 1 { // refusals may change the order
		mine, want = slices.Sorted(slices.Values(mine)), slices.Sorted(slices.Values(want))
	}
	if !slices.Equal(mine, want) {
		h.t.Errorf("%v: stored %v, sent %v", to, mine, want)
	}
}
