package client

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
)

// model is an app that stores what it is told, and holds it against the rules as it comes: a message once and in order, a change once and in
// order, nothing that was deleted.
type model struct {
	mu     sync.Mutex
	faults []string
	convs  map[string]*modelConversation
	// refetch is what the server has of a message now, as an app asks that is told that its cache is stale.
	refetch func(conversation string, seq uint64) protocol.Message
	// pause is called by every handler first: the app may be slow.
	pause func()

	changes, deletions, clears, stale int // how many there were
}

type modelConversation struct {
	messages map[uint64]protocol.Message
	hidden   map[uint64]bool
	cleared  uint64
	seq      uint64          // the last one of OnMessage
	change   uint64          // the last ChangeSeq of OnChange since the app's start
	told     map[uint64]bool // every ChangeSeq since the app's start
}

func newModel() *model { return &model{convs: map[string]*modelConversation{}, pause: func() {}} }

func (a *model) lock() (unlock func()) {
	a.pause()
	a.mu.Lock()
	return a.mu.Unlock
}

// started is called when the app's process starts: what it took last may come again.
func (a *model) started() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cv := range a.convs {
		cv.change = 0
		clear(cv.told)
	}
}

func (a *model) conversation(id string) *modelConversation {
	cv := a.convs[id]
	if cv == nil {
		cv = &modelConversation{messages: map[uint64]protocol.Message{}, hidden: map[uint64]bool{}, told: map[uint64]bool{}}
		a.convs[id] = cv
	}
	return cv
}

func (a *model) fault(format string, args ...any) {
	a.faults = append(a.faults, fmt.Sprintf(format, args...))
}

func (a *model) options(o *Options) {
	o.OnMessage = func(_ context.Context, m protocol.Message) error {
		defer a.lock()()
		cv := a.conversation(m.ConversationID)
		if m.Seq <= cv.seq {
			a.fault("%s: message %d after %d", m.ConversationID, m.Seq, cv.seq)
		}
		cv.seq = m.Seq
		a.show(cv, m)
		return nil
	}
	o.OnChange = func(_ context.Context, m protocol.Message) error {
		defer a.lock()()
		a.changed(a.conversation(m.ConversationID), m)
		return nil
	}
	o.OnDeleted = func(_ context.Context, id string, seqs []uint64) error {
		defer a.lock()()
		a.deletions++
		cv := a.conversation(id)
		for _, seq := range seqs {
			cv.hidden[seq] = true
			delete(cv.messages, seq)
		}
		return nil
	}
	o.OnCleared = func(_ context.Context, id string, upTo uint64) error {
		defer a.lock()()
		a.clears++
		cv := a.conversation(id)
		cv.cleared = max(cv.cleared, upTo)
		for seq := range cv.messages {
			if seq <= upTo {
				delete(cv.messages, seq)
			}
		}
		return nil
	}
	o.OnStale = a.onStale
}

// show is what OnMessage and OnChange have in common.
func (a *model) show(cv *modelConversation, m protocol.Message) {
	if cv.hidden[m.Seq] || m.Seq <= cv.cleared {
		a.fault("%s: %d was shown after it was deleted", m.ConversationID, m.Seq)
		return
	}
	if m.ChangeSeq > 0 && cv.told[m.ChangeSeq] {
		a.fault("%s: the change %d, of %d, was told twice", m.ConversationID, m.ChangeSeq, m.Seq)
	}
	cv.told[m.ChangeSeq] = true
	if old, ok := cv.messages[m.Seq]; !ok || old.ChangeSeq < m.ChangeSeq {
		cv.messages[m.Seq] = m
	}
}

func (a *model) changed(cv *modelConversation, m protocol.Message) {
	a.changes++
	switch {
	case m.ChangeSeq <= cv.change:
		a.fault("%s: the change %d after %d", m.ConversationID, m.ChangeSeq, cv.change)
	case m.Seq > cv.seq:
		a.fault("%s: a change of %d, which the app does not have yet", m.ConversationID, m.Seq)
	}
	cv.change = m.ChangeSeq
	a.show(cv, m)
}

func (a *model) onStale(_ context.Context, id string) error {
	defer a.lock()()
	a.stale++
	cv := a.conversation(id)
	for seq, old := range cv.messages {
		if m := a.refetch(id, seq); placeholder(&m) {
			delete(cv.messages, seq)
		} else if m.ChangeSeq > old.ChangeSeq {
			cv.messages[seq] = m
		}
	}
	return nil
}

// check: the app has what the server shows, and nothing else.
func (a *model) check(t *testing.T, id string, tail uint64) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	cv := a.conversation(id)
	for seq := uint64(1); seq <= tail; seq++ {
		want := a.refetch(id, seq)
		got, ok := cv.messages[seq]
		switch {
		case placeholder(&want) && ok:
			t.Errorf("%s %d: the app has %q, which was deleted", id, seq, got.Content)
		case placeholder(&want):
		case !ok:
			t.Errorf("%s %d: the app does not have it", id, seq)
		case !bytes.Equal(protocol.AppendBody(nil, &got), protocol.AppendBody(nil, &want)):
			t.Errorf("%s %d: the app has\n%+v, the server\n%+v", id, seq, got, want)
		}
	}
	for _, f := range a.faults {
		t.Error(f)
	}
	a.faults = nil
}
