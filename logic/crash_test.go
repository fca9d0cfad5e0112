package logic

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/protocol"
)

// history is what clients have seen, over any number of crashes: the closing checker holds it against what is stored.
type history struct {
	acks  map[string]protocol.SendAck  // by sender, conversation and client_msg_id
	shown map[string]map[uint64]string // conversation → seq → server_msg_id, pushed or pulled
	sent  map[string]bool              // as acks: ever handed in
}

func newHistory() *history {
	return &history{acks: map[string]protocol.SendAck{}, shown: map[string]map[uint64]string{}, sent: map[string]bool{}}
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
		}
	}
}

func (h *history) showAll(t *testing.T, list []protocol.Message) {
	for _, m := range list {
		h.show(t, m.ConversationID, m.Seq, m.ServerMsgID)
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

// check holds everything that was seen against the store, as its users read it.
func (h *history) check(t *testing.T, s *server) {
	stored := map[string]map[uint64]string{}
	for conversation := range h.shown {
		_, a, _ := protocol.ParseConversation(conversation)
		reader := s.online(a)
		ids := map[string]bool{}
		stored[conversation] = map[uint64]string{}
		for i, m := range reader.pullAll(conversation, 200) {
			if m.Seq != uint64(i+1) || ids[m.ServerMsgID] {
				t.Errorf("%s: at place %d stands seq %d, id %s", conversation, i+1, m.Seq, m.ServerMsgID)
			}
			if !h.sent[sendKey(m.Sender, conversation, m.ClientMsgID)] {
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
		reader.hangUp()
	}
	for key, ack := range h.acks {
		if stored[ack.ConversationID][ack.Seq] != ack.ServerMsgID {
			t.Errorf("%s was acked at seq %d, is not there", key, ack.Seq)
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
		_, a, b := protocol.ParseConversation(conversation)
		d := s.online(a)
		tail := uint64(len(d.pullAll(conversation, 200)))
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
		default:
			m := text(fmt.Sprint(rng.IntN(300)), to)
			sent[sendKey(d.session.User, conversation, m.ClientMsgID)] = true
			d.request(protocol.CmdSend, m)
		}
		d.throttle(n)
	}
}

// throttle waits until fewer than 16 requests have no reply.
func (d *device) throttle(requests int) {
	d.g.wait(d.t, "replies", func() bool {
		replies := 0
		for _, f := range d.frames {
			if f.Command != protocol.CmdPush {
				replies++
			}
		}
		return requests-replies < 16
	})
}
