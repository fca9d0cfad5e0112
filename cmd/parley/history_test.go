package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

// history is everything that the server ever told anybody, in all rounds. What it is told twice must be the same both times.
type history struct {
	mu       sync.Mutex
	byID     map[string]*sent // by sender and client_msg_id
	bySender map[string][]*sent
	seen     map[string]map[uint64]protocol.Message // conversation, seq: pushed or pulled
	tops     map[string]uint64                      // the highest seq that anybody was told
	acks     int
	repeats  int // acks of an id that had been acked before
	pulls    int
	faults   []error
	progress chan struct{} // closed at the next ack or fault, and then replaced
}

// sent is a message that was sent at least once.
type sent struct {
	sender, target, id string
	content            []byte
	serverMsgID        string // set by the first ack
	seq                uint64
	timeMS             int64
}

func (m *sent) request() *protocol.Send {
	return &protocol.Send{ClientMsgID: m.id, Kind: protocol.KindDirect, Target: m.target, ContentType: protocol.ContentText, Content: m.content}
}

func (m *sent) conversation() string { return protocol.DirectConversation(m.sender, m.target) }

func newHistory() *history {
	return &history{
		byID: map[string]*sent{}, bySender: map[string][]*sent{}, seen: map[string]map[uint64]protocol.Message{},
		tops: map[string]uint64{}, progress: make(chan struct{}),
	}
}

// create makes a new message of the user to a random one. The first two talk to each other mostly, so that there is a
// conversation with many buckets.
func (h *history) create(rng *rand.Rand, user string, users []string, round int) *sent {
	target := users[rng.IntN(len(users))]
	if rng.IntN(2) == 0 && (user == users[0] || user == users[1]) {
		target = users[0]
		if user == users[0] {
			target = users[1]
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.bySender[user])
	m := &sent{sender: user, target: target, id: fmt.Sprintf("%s-%d-%d", user, round, n)}
	m.content = fmt.Appendf(nil, "%s to %s, number %d: %x", user, target, n, rng.Uint64())
	h.byID[user+" "+m.id] = m
	h.bySender[user] = append(h.bySender[user], m)
	return m
}

// repeatOf is one in every so many times a message that the user sent before, acked or not; else nil.
func (h *history) repeatOf(rng *rand.Rand, user string, every int) *sent {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.bySender[user]
	if len(list) == 0 || rng.IntN(every) != 0 {
		return nil
	}
	if rng.IntN(2) == 0 { // of the newest: in flight, or cut off by the last kill
		list = list[max(0, len(list)-4*killWindow):]
	}
	return list[rng.IntN(len(list))]
}

func (h *history) acked(m *sent, ack *protocol.SendAck) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ack.ClientMsgID != m.id || ack.ConversationID != m.conversation() || ack.Seq == 0 {
		return fmt.Errorf("the ack of %s is %+v", m.id, *ack)
	}
	if m.seq != 0 {
		h.repeats++
		if ack.ServerMsgID != m.serverMsgID || ack.Seq != m.seq || ack.SendTimeMS != m.timeMS {
			return fmt.Errorf("%s was acked as %s, seq %d, at %d, and then as %s, seq %d, at %d", m.id,
				m.serverMsgID, m.seq, m.timeMS, ack.ServerMsgID, ack.Seq, ack.SendTimeMS)
		}
		return nil
	}
	m.serverMsgID, m.seq, m.timeMS = ack.ServerMsgID, ack.Seq, ack.SendTimeMS
	h.acks++
	h.raise(ack.ConversationID, ack.Seq)
	h.signal()
	return nil
}

// saw notes a message that was pushed or pulled.
func (h *history) saw(m *protocol.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.seen[m.ConversationID]
	if of == nil {
		of = map[uint64]protocol.Message{}
		h.seen[m.ConversationID] = of
	}
	if before, ok := of[m.Seq]; ok && !equal(&before, m) {
		return fmt.Errorf("%s, seq %d, was shown as %s and then as %s", m.ConversationID, m.Seq, brief(&before), brief(m))
	}
	of[m.Seq] = *m
	h.raise(m.ConversationID, m.Seq)
	return nil
}

// pulled checks that a page of up to 200 has each seq that was asked for, and notes them.
func (h *history) pulled(pull *protocol.Pull, reply *protocol.PullReply) error {
	want := pull.ToSeq - pull.FromSeq + 1
	if uint64(len(reply.Messages)) != want {
		return fmt.Errorf("%s: %d of seqs %d to %d came (more: %t), the tail is %d",
			pull.ConversationID, len(reply.Messages), pull.FromSeq, pull.ToSeq, reply.More, reply.MaxSeq)
	}
	for i := range reply.Messages {
		seq := pull.FromSeq + uint64(i)
		if pull.NewestFirst {
			seq = pull.ToSeq - uint64(i)
		}
		if reply.Messages[i].Seq != seq {
			return fmt.Errorf("%s: entry %d of a page from %d to %d is seq %d", pull.ConversationID, i, pull.FromSeq, pull.ToSeq, reply.Messages[i].Seq)
		}
		if err := h.saw(&reply.Messages[i]); err != nil {
			return err
		}
	}
	h.mu.Lock()
	h.pulls++
	h.mu.Unlock()
	return nil
}

func (h *history) raise(conversation string, seq uint64) {
	h.tops[conversation] = max(h.tops[conversation], seq)
}

func (h *history) top(conversation string) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tops[conversation]
}

func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Errorf(format, args...))
	h.signal()
}

func (h *history) signal() {
	close(h.progress)
	h.progress = make(chan struct{})
}

// waitForAcks waits for n more first acks, or a fault.
func (h *history) waitForAcks(t *testing.T, n int) {
	t.Helper()
	late := time.After(patience)
	h.mu.Lock()
	until := h.acks + n
	for h.acks < until && len(h.faults) == 0 {
		progress := h.progress
		h.mu.Unlock()
		select {
		case <-progress:
		case <-late:
			t.Fatalf("fewer than %d acks in %v", n, patience)
		}
		h.mu.Lock()
	}
	h.mu.Unlock()
}

func (h *history) summary() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%d messages sent, %d acked, %d repeats of those acked, %d pages pulled", len(h.byID), h.acks, h.repeats, h.pulls)
}

// report hands the faults to the test; it tells whether there were any.
func (h *history) report(t *testing.T) bool {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, err := range h.faults {
		if i == 20 {
			t.Errorf("… and %d more", len(h.faults)-i)
			break
		}
		t.Error(err)
	}
	return len(h.faults) > 0
}

// equal tells whether two views of a message say the same, but for what may change.
func equal(a, b *protocol.Message) bool {
	return a.ConversationID == b.ConversationID && a.Seq == b.Seq && a.ServerMsgID == b.ServerMsgID && a.ClientMsgID == b.ClientMsgID &&
		a.Sender == b.Sender && a.ContentType == b.ContentType && a.SendTimeMS == b.SendTimeMS && a.Status == b.Status &&
		bytes.Equal(a.Content, b.Content)
}

func brief(m *protocol.Message) string {
	return fmt.Sprintf("{%s %s from %s at %d, status %d: %q}", m.ServerMsgID, m.ClientMsgID, m.Sender, m.SendTimeMS, m.Status, m.Content)
}

// checkHistory holds a server that has just come back against the history.
func checkHistory(t *testing.T, h *history, addr string, users, keys []string) {
	t.Helper()
	stored := map[string][]protocol.Message{}
	for i, user := range users {
		w := mustDial(t, addr, keys[i], "checker-of-"+user)
		listed, err := syncAll(w)
		if err != nil {
			t.Fatal(err)
		}
		for conversation, tail := range listed {
			all, err := pullAll(w, conversation)
			if err != nil {
				t.Fatalf("%s pulls %s: %v", user, conversation, err)
			}
			if uint64(len(all)) != tail {
				t.Errorf("%s has %d messages by PULL and %d by SYNC", conversation, len(all), tail)
			}
			if other, ok := stored[conversation]; ok && len(other) != len(all) {
				t.Errorf("%s is %d messages long to one side and %d to the other", conversation, len(other), len(all))
			}
			stored[conversation] = all
			for i := range all {
				if err := h.saw(&all[i]); err != nil { // against all that was ever shown, and the other side
					t.Error(err)
				}
			}
		}
	}
	h.checkStored(t, stored)
	for i, user := range users {
		w := mustDial(t, addr, keys[i], "prober-of-"+user)
		if err := h.probe(w, user, stored); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	h.report(t)
	t.Logf("%d conversations checked; %s", len(stored), h.summary())
}

// checkStored: every acked message is stored once under what its ack said, what was shown is stored, nothing else is.
func (h *history) checkStored(t *testing.T, stored map[string][]protocol.Message) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	times := map[*sent]int{}
	for conversation, all := range stored {
		for i := range all {
			m := h.byID[all[i].Sender+" "+all[i].ClientMsgID]
			switch {
			case m == nil || m.conversation() != conversation:
				t.Errorf("%s, seq %d: nobody sent %s", conversation, all[i].Seq, brief(&all[i]))
				continue
			case !bytes.Equal(m.content, all[i].Content):
				t.Errorf("%s, seq %d is %q, %q was sent", conversation, all[i].Seq, all[i].Content, m.content)
			case m.seq != 0 && (m.seq != all[i].Seq || m.serverMsgID != all[i].ServerMsgID || m.timeMS != all[i].SendTimeMS):
				t.Errorf("%s was acked as %s, seq %d, at %d, and is stored as %s, seq %d, at %d", m.id,
					m.serverMsgID, m.seq, m.timeMS, all[i].ServerMsgID, all[i].Seq, all[i].SendTimeMS)
			}
			times[m]++
		}
	}
	for _, m := range h.byID {
		if n := times[m]; n > 1 || n == 0 && m.seq != 0 {
			t.Errorf("%s (acked: %t) is stored %d times", m.id, m.seq != 0, n)
		}
	}
	for conversation, of := range h.seen {
		for seq := range of {
			if seq > uint64(len(stored[conversation])) {
				t.Errorf("%s, seq %d was shown, and the conversation ends at %d", conversation, seq, len(stored[conversation]))
			}
		}
	}
}

// probe repeats messages of the user, stored and not, and then sends a new one to each conversation: it must be the next.
func (h *history) probe(w *wire, user string, stored map[string][]protocol.Message) error {
	const newest = 200
	list := h.bySender[user]
	for _, m := range list[max(0, len(list)-newest):] {
		var ack protocol.SendAck
		if err := w.ask(protocol.CmdSend, m.request(), &ack); err != nil {
			return fmt.Errorf("repeating %s: %w", m.id, err)
		}
		conversation := m.conversation()
		if ack.Seq == uint64(len(stored[conversation])+1) { // it was never acked, and had not been stored
			stored[conversation] = append(stored[conversation], protocol.Message{Seq: ack.Seq, ServerMsgID: ack.ServerMsgID, ClientMsgID: m.id})
		}
		if ack.Seq == 0 || ack.Seq > uint64(len(stored[conversation])) {
			return fmt.Errorf("a repeat of %s got seq %d, the conversation ends at %d", m.id, ack.Seq, len(stored[conversation]))
		}
		if at := stored[conversation][ack.Seq-1]; at.ClientMsgID != m.id || at.ServerMsgID != ack.ServerMsgID {
			return fmt.Errorf("a repeat of %s got seq %d and %s, where %s is stored as %s", m.id, ack.Seq, ack.ServerMsgID, at.ClientMsgID, at.ServerMsgID)
		}
		if err := h.acked(m, &ack); err != nil {
			return err
		}
	}
	for conversation := range stored {
		if err := probeNext(w, user, conversation, stored); err != nil {
			return err
		}
	}
	return nil
}

func probeNext(w *wire, user, conversation string, stored map[string][]protocol.Message) error {
	_, a, b := protocol.ParseConversation(conversation)
	if user != a && user != b {
		return nil
	}
	target := a
	if user == a {
		target = b
	}
	var ack protocol.SendAck
	next := &protocol.Send{ClientMsgID: "after-all-" + user, Kind: protocol.KindDirect, Target: target, ContentType: protocol.ContentText, Content: []byte("next")}
	if err := w.ask(protocol.CmdSend, next, &ack); err != nil {
		return err
	}
	if want := uint64(len(stored[conversation]) + 1); ack.Seq != want {
		return fmt.Errorf("the next message of %s got seq %d, want %d", conversation, ack.Seq, want)
	}
	stored[conversation] = append(stored[conversation], protocol.Message{Seq: ack.Seq, ServerMsgID: ack.ServerMsgID, ClientMsgID: next.ClientMsgID})
	return nil
}

// syncAll is the tail of each conversation on the user's list.
func syncAll(w *wire) (map[string]uint64, error) {
	tails := map[string]uint64{}
	for cursor := ""; ; {
		var page protocol.SyncReply
		if err := w.ask(protocol.CmdSync, &protocol.Sync{Cursor: cursor, Limit: 100}, &page); err != nil {
			return nil, err
		}
		for _, c := range page.Conversations {
			tails[c.ConversationID] = c.MaxSeq
		}
		if cursor = page.NextCursor; cursor == "" {
			return tails, nil
		}
	}
}

// pullAll reads a conversation from its first message to its last, which must be 1, 2, 3 …
func pullAll(w *wire, conversation string) ([]protocol.Message, error) {
	var all []protocol.Message
	for {
		var page protocol.PullReply
		next := uint64(len(all)) + 1
		if err := w.ask(protocol.CmdPull, &protocol.Pull{ConversationID: conversation, FromSeq: next, Limit: 200}, &page); err != nil {
			return nil, err
		}
		for i := range page.Messages {
			if page.Messages[i].Seq != next+uint64(i) {
				return nil, fmt.Errorf("seq %d comes after %d", page.Messages[i].Seq, next+uint64(i)-1)
			}
		}
		all = append(all, page.Messages...)
		if !page.More {
			return all, nil
		}
		if len(page.Messages) == 0 {
			return nil, errors.New("an empty page says that there is more")
		}
	}
}
