package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/parley-im/parley/client"
	"github.com/parley-im/parley/protocol"
)

// screen is a device whose app shows what it is told of, and notes how it was told.
type screen struct {
	t     *testing.T
	c     *client.Client
	state *client.MemoryState

	mu    sync.Mutex
	grew  chan struct{} // closed and replaced when something was told
	shown map[string]map[uint64]protocol.Message
	told  []string
}

// screen makes a device. After close, open makes it anew, with what it had.
func (s *server) screen(user, device string, platform protocol.Platform) (v *screen, open func()) {
	v = &screen{t: s.t, state: client.NewMemoryState(), grew: make(chan struct{}), shown: map[string]map[uint64]protocol.Message{}}
	open = func() {
		v.c = s.device(user, device, platform, v.options)
		if err := v.c.Ready(within(s.t)); err != nil {
			s.t.Fatal(err)
		}
	}
	open()
	return v, open
}

func (v *screen) options(o *client.Options) {
	o.State = v.state
	o.OnMessage = func(_ context.Context, m protocol.Message) error {
		return v.tell("", func() { v.show(m) })
	}
	o.OnChange = func(_ context.Context, m protocol.Message) error {
		return v.tell(fmt.Sprint("change ", m.ConversationID, " ", m.Seq, "/", m.ChangeSeq), func() { v.show(m) })
	}
	o.OnDeleted = func(_ context.Context, id string, seqs []uint64) error {
		return v.tell(fmt.Sprint("deleted ", id, " ", seqs), func() {
			for _, seq := range seqs {
				delete(v.shown[id], seq)
			}
		})
	}
	o.OnCleared = func(_ context.Context, id string, upTo uint64) error {
		return v.tell(fmt.Sprint("cleared ", id, " ", upTo), func() {
			for seq := range v.shown[id] {
				if seq <= upTo {
					delete(v.shown[id], seq)
				}
			}
		})
	}
	o.OnStale = func(_ context.Context, id string) error { return v.tell("stale "+id, func() {}) }
	o.OnList = func(_ context.Context, p client.ListPage) error {
		for _, cv := range p.Conversations {
			if kind, _, _ := protocol.ParseConversation(cv.ConversationID); kind == protocol.KindUser {
				return errors.New("the own stream is in the list")
			}
		}
		return nil
	}
}

func (v *screen) show(m protocol.Message) {
	if v.shown[m.ConversationID] == nil {
		v.shown[m.ConversationID] = map[uint64]protocol.Message{}
	}
	v.shown[m.ConversationID][m.Seq] = m
}

func (v *screen) tell(what string, do func()) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	do()
	if what != "" {
		v.told = append(v.told, what)
	}
	close(v.grew)
	v.grew = make(chan struct{})
	return nil
}

// await waits until something holds.
func (v *screen) await(what string, cond func() bool) {
	v.t.Helper()
	ctx := within(v.t)
	for {
		v.mu.Lock()
		ok, grew := cond(), v.grew
		v.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-grew:
		case <-ctx.Done():
			v.mu.Lock()
			defer v.mu.Unlock()
			v.t.Fatalf("%s does not come; told were %q", what, v.told)
		}
	}
}

func (v *screen) awaitSeq(id string, seq uint64) {
	v.t.Helper()
	v.await(fmt.Sprint(id, " ", seq), func() bool { return v.shown[id][seq].Seq == seq })
}

// wantTold waits for these and checks that there was nothing else, once each and in this order.
func (v *screen) wantTold(want ...string) {
	v.t.Helper()
	v.await(fmt.Sprint(len(want), " notices"), func() bool { return len(v.told) >= len(want) })
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Equal(v.told, want) {
		v.t.Errorf("told were\n%q, want\n%q", v.told, want)
	}
	v.told = nil
}

// wantServer waits until the screen shows what the server does.
func (v *screen) wantServer(id string) {
	v.t.Helper()
	var list []protocol.Message
	for from, more := uint64(1), true; more; {
		page, err := v.c.Pull(within(v.t), protocol.Pull{ConversationID: id, FromSeq: from, Limit: 200})
		if err != nil {
			v.t.Fatal(err)
		}
		if more = page.More; more {
			last := page.Messages[len(page.Messages)-1]
			from = last.Seq + uint64(max(last.Run, 1))
		}
		list = append(list, page.Messages...)
	}
	why := ""
	defer func() {
		if why != "" {
			v.t.Log(why)
		}
	}()
	v.await("what the server has", func() bool {
		why = v.differs(id, list)
		return why == ""
	})
}

// differs says what is shown otherwise than the server has it. v.mu is held.
func (v *screen) differs(id string, list []protocol.Message) string {
	n := 0
	for _, want := range list {
		if want.Status == protocol.StatusHidden || want.Status == protocol.StatusGone {
			continue
		}
		n++
		got := v.shown[id][want.Seq]
		got.IsRead = want.IsRead // is no change
		if string(protocol.AppendBody(nil, &got)) != string(protocol.AppendBody(nil, &want)) {
			return fmt.Sprintf("%d is shown as\n%+v, the server has\n%+v", want.Seq, got, want)
		}
	}
	if n != len(v.shown[id]) {
		return fmt.Sprintf("%d messages are shown, the server has %d", len(v.shown[id]), n)
	}
	return ""
}
