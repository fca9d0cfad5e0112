package logic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// history is what clients have seen, over any number of crashes: the closing checker holds it against what is stored.
type history struct {
	acks  map[string]protocol.SendAck  // by sender, conversation and client_msg_id
	shown map[string]map[uint64]string // conversation → seq → server_msg_id, pushed or pulled
	sent  map[string]bool              // as acks: ever handed in

	changes map[string]map[uint64]uint64 // conversation → change_seq → seq
	hidden  map[string]map[uint64]bool   // user and conversation → seq, as was answered
	cleared map[string]uint64            // user and conversation → min_seq, as was answered
}

func newHistory() *history {
	return &history{
		acks: map[string]protocol.SendAck{}, shown: map[string]map[uint64]string{}, sent: map[string]bool{},
		changes: map[string]map[uint64]uint64{}, hidden: map[string]map[uint64]bool{}, cleared: map[string]uint64{},
	}
}

func sendKey(sender, conversation, clientMsgID string) string {
	return sender + " " + conversation + " " + clientMsgID
}

// see notes what a device got so far. Two sights of one thing must not differ.
func (h *history) see(t *testing.T, d *device) {
	for _, f := range d.frames {
		switch f.Command {
		case protocol.CmdSendAck:
			var ack protocol.SendAck
			must(t, protocol.Unmarshal(f.Body, &ack))
			key := sendKey(d.session.User, ack.ConversationID, ack.ClientMsgID)
			if before, ok := h.acks[key]; ok && before != ack {
				t.Errorf("acked as %+v and as %+v", before, ack)
			}
			h.acks[key] = ack
			h.show(t, ack.ConversationID, ack.Seq, ack.ServerMsgID)
		case protocol.CmdPush:
			var p protocol.Push
			must(t, protocol.Unmarshal(f.Body, &p))
			h.showAll(t, p.Messages)
		case protocol.CmdPull.Reply():
			var p protocol.PullReply
			must(t, protocol.Unmarshal(f.Body, &p))
			h.showAll(t, p.Messages)
		default:
			h.seeChange(t, d, &f)
		}
	}
}

// asked is what a request was about, for replies that do not say.
type asked struct {
	conversation string
	seq          uint64
}

// seeChange notes what a device got answered to REVOKE, EDIT, REACT, DELETE and CLEAR.
func (h *history) seeChange(t *testing.T, d *device, f *protocol.Frame) {
	q := d.asked[f.RequestID]
	who := d.session.User + " " + q.conversation
	switch f.Command {
	case protocol.CmdRevoke.Reply(), protocol.CmdEdit.Reply(), protocol.CmdReact.Reply():
		var r protocol.ChangeReply
		must(t, protocol.Unmarshal(f.Body, &r))
		h.change(t, q.conversation, r.ChangeSeq, q.seq)
	case protocol.CmdDelete.Reply():
		if h.hidden[who] == nil {
			h.hidden[who] = map[uint64]bool{}
		}
		h.hidden[who][q.seq] = true
	case protocol.CmdClear.Reply():
		var r protocol.ClearReply
		must(t, protocol.Unmarshal(f.Body, &r))
		h.cleared[who] = max(h.cleared[who], r.MinSeq)
	}
}

// change notes that a message has a change of that number, which no other message may have.
func (h *history) change(t *testing.T, conversation string, changeSeq, seq uint64) {
	if changeSeq == 0 { // a change that changes nothing, of a message that never changed
		return
	}
	if h.changes[conversation] == nil {
		h.changes[conversation] = map[uint64]uint64{}
	}
	if before, ok := h.changes[conversation][changeSeq]; ok && before != seq {
		t.Errorf("%s: change %d is of seq %d and of seq %d", conversation, changeSeq, before, seq)
	}
	h.changes[conversation][changeSeq] = seq
}

func (h *history) showAll(t *testing.T, list []protocol.Message) {
	for _, m := range list {
		if placeholder(&m) {
			continue
		}
		h.show(t, m.ConversationID, m.Seq, m.ServerMsgID)
		h.change(t, m.ConversationID, m.ChangeSeq, m.Seq)
	}
}

func (h *history) show(t *testing.T, conversation string, seq uint64, id string) {
	if h.shown[conversation] == nil {
		h.shown[conversation] = map[uint64]string{}
	}
	if before, ok := h.shown[conversation][seq]; ok && before != id {
		t.Errorf("%s/%d was shown as %s and as %s", conversation, seq, before, id)
	}
	h.shown[conversation][seq] = id
}

// check holds everything that was seen against what is stored.
func (h *history) check(t *testing.T, s *server) {
	stored := map[string]map[uint64]string{}
	for conversation := range h.shown {
		kind, _, _ := protocol.ParseConversation(conversation)
		ids := map[string]bool{}
		stored[conversation] = map[uint64]string{}
		for i, slot := range s.slots(conversation, "") {
			m := &slot.Message
			if m.Seq != uint64(i+1) || ids[m.ServerMsgID] {
				t.Errorf("%s: at place %d stands seq %d, id %s", conversation, i+1, m.Seq, m.ServerMsgID)
			}
			if kind == protocol.KindDirect && !h.sent[sendKey(m.Sender, conversation, m.ClientMsgID)] {
				t.Errorf("%s/%d was never sent", conversation, m.Seq)
			}
			ids[m.ServerMsgID] = true
			stored[conversation][m.Seq] = m.ServerMsgID
		}
		for seq, id := range h.shown[conversation] {
			if stored[conversation][seq] != id {
				t.Errorf("%s/%d was shown as %s, is stored as %q", conversation, seq, id, stored[conversation][seq])
			}
		}
		h.checkChanges(t, s, conversation)
	}
	h.checkOwn(t, s)
	for key, ack := range h.acks {
		if stored[ack.ConversationID][ack.Seq] != ack.ServerMsgID {
			t.Errorf("%s was acked at seq %d, is not there", key, ack.Seq)
		}
	}
}

// slots is all of a conversation as it is stored, for a viewer.
func (s *server) slots(conversation, viewer string) (all []*storage.Slot) {
	r := storage.Range{Conversation: conversation, Viewer: viewer, From: 1, To: math.MaxInt64}
	must(s.t, s.store.Read(s.t.Context(), r, func(slot *storage.Slot) bool {
		all = append(all, slot)
		return true
	}))
	return all
}

// checkChanges: every change that was seen is there, or a later one of the same message, and has its note.
func (h *history) checkChanges(t *testing.T, s *server, conversation string) {
	slots := s.slots(conversation, "")
	noted := map[uint64]uint64{}
	must(t, s.store.Notes(t.Context(), conversation, 0, func(n storage.Note) bool {
		noted[n.ChangeSeq] = n.Seq
		return true
	}))
	for changeSeq, seq := range h.changes[conversation] {
		if got := slots[seq-1].Labels.ChangeSeq; got < changeSeq {
			t.Errorf("%s/%d: change %d was seen, %d is stored", conversation, seq, changeSeq, got)
		}
	}
	for _, slot := range slots {
		if c := slot.Labels.ChangeSeq; c != 0 && noted[c] != slot.Message.Seq {
			t.Errorf("%s/%d: change %d has the note %d", conversation, slot.Message.Seq, c, noted[c])
		}
	}
}

// checkOwn: what users were told is hidden from them, is.
func (h *history) checkOwn(t *testing.T, s *server) {
	for who, seqs := range h.hidden {
		user, conversation, _ := strings.Cut(who, " ")
		slots := s.slots(conversation, user)
		for seq := range seqs {
			if !slots[seq-1].Labels.Hidden {
				t.Errorf("%s/%d is not hidden from %s", conversation, seq, user)
			}
		}
	}
	for who, minSeq := range h.cleared {
		user, conversation, _ := strings.Cut(who, " ")
		entries, err := s.store.Entries(t.Context(), user, []string{conversation})
		if must(t, err); len(entries) != 1 || entries[0].MinSeq < minSeq {
			t.Errorf("%s has %+v, min_seq was %d", who, entries, minSeq)
		}
	}
}

// TestPowerCuts runs random histories over a disk that loses what was not synced, whole or in part, at random moments: clients send, repeat what they
// have sent before, and pull, until the power goes. Whatever any of them saw before is there after the cut, in its place.
func TestPowerCuts(t *testing.T) {
	histories := 60
	if testing.Short() {
		histories = 10
	}
	for seed := range histories {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { powerCuts(t, uint64(seed)) })
	}
}

func powerCuts(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	h := newHistory()
	fs := vfs.NewCrashableMem()
	for range 3 {
		fs = untilPowerCut(t, h, fs, rng)
	}
	s := startServer(t, fs, nil)
	h.check(t, s)
	// Numbers go on where they are.
	for conversation, shown := range h.shown {
		kind, a, b := protocol.ParseConversation(conversation)
		if kind != protocol.KindDirect {
			continue
		}
		d := s.online(a)
		tail := uint64(len(s.slots(conversation, "")))
		if ack := d.send(text("after all", b)); ack.Seq != tail+1 || int(tail) < len(shown) {
			t.Errorf("%s: the next message has seq %d, the tail was %d, %d were shown", conversation, ack.Seq, tail, len(shown))
		}
	}
	s.stop()
}

func untilPowerCut(t *testing.T, h *history, fs *vfs.MemFS, rng *rand.Rand) *vfs.MemFS {
	s := startServer(t, fs, nil)
	users := []string{"alice", "bob", "carol"}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var devices []*device
	var sent []map[string]bool
	for i := range 6 {
		d, mine := s.online(users[i%3]), map[string]bool{}
		devices, sent = append(devices, d), append(sent, mine)
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		wg.Go(func() { chatter(d, users, mine, own, stop) })
	}
	target := 1 + rng.IntN(400)
	s.g.wait(t, "enough traffic", func() bool {
		n := 0
		for _, d := range devices {
			n += len(d.frames)
		}
		return n >= target
	})
	s.g.mu.Lock() // first what was seen, then the cut: all of that must survive
	for _, d := range devices {
		h.see(t, d)
	}
	s.g.mu.Unlock()
	after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
	close(stop)
	wg.Wait()
	for _, mine := range sent {
		for key := range mine {
			h.sent[key] = true
		}
	}
	s.stop()
	return after
}

// chatter sends, repeats and pulls at random, without waiting for replies, up to some requests in flight.
func chatter(d *device, users []string, sent map[string]bool, rng *rand.Rand, stop chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		to := users[rng.IntN(len(users))]
		conversation := protocol.DirectConversation(d.session.User, to)
		switch rng.IntN(8) {
		case 0:
			d.request(protocol.CmdPull, &protocol.Pull{ConversationID: conversation, NewestFirst: true})
		case 1:
			d.changeSomething(conversation, rng)
		default:
			m := text(fmt.Sprint(rng.IntN(300)), to)
			sent[sendKey(d.session.User, conversation, m.ClientMsgID)] = true
			d.request(protocol.CmdSend, m)
		}
		d.throttle(n)
	}
}

// changeSomething makes a request of one of the kinds that change what is stored already; of a seq that there may not be.
func (d *device) changeSomething(conversation string, rng *rand.Rand) {
	seq := 1 + rng.Uint64N(40)
	d.g.mu.Lock()
	d.asked[d.nextID+1] = asked{conversation: conversation, seq: seq}
	d.g.mu.Unlock()
	switch rng.IntN(6) {
	case 0:
		d.request(protocol.CmdRevoke, &protocol.Position{ConversationID: conversation, Seq: seq})
	case 1, 2:
		content := []byte(fmt.Sprint("edit ", rng.IntN(5)))
		d.request(protocol.CmdEdit, &protocol.Edit{ConversationID: conversation, Seq: seq, ContentType: 1, Content: content})
	case 3:
		d.request(protocol.CmdReact, &protocol.React{ConversationID: conversation, Seq: seq, Reaction: "+1", On: rng.IntN(3) > 0})
	case 4:
		d.request(protocol.CmdDelete, &protocol.Delete{ConversationID: conversation, Seqs: []uint64{seq}})
	default:
		d.request(protocol.CmdClear, &protocol.Clear{ConversationID: conversation, UpToSeq: 1 + rng.Uint64N(10)})
	}
}

// throttle waits until fewer than 16 requests have no reply.
func (d *device) throttle(requests int) {
	d.g.wait(d.t, "replies", func() bool {
		replies := 0
		for _, f := range d.frames {
			if f.RequestID != 0 && f.Command != protocol.CmdPush {
				replies++
			}
		}
		return requests-replies < 16
	})
}
