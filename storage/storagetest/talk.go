package storagetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Talk writes one conversation and remembers, as plain slices, what it wrote: the model that a backend is held against. One goroutine
// uses it at a time.
type Talk struct {
	ID      string
	Members []string
	Slots   []storage.Slot  // by seq - 1
	Ends    []storage.State // after each run, without its stamp
	nowMS   int64
	counts  storage.Counts
	active  int64
	marks   marks // what was done to the messages; marks.go
}

// NewTalk is an empty conversation. The members are taken from the id of a direct one.
func NewTalk(id string, members ...string) *Talk {
	if kind, a, b := protocol.ParseConversation(id); kind == protocol.KindDirect {
		members = []string{a, b}
		if a == b {
			members = []string{a}
		}
	}
	return &Talk{ID: id, Members: members, nowMS: 1_700_000_000_000}
}

// Direct is an empty direct conversation.
func Direct(a, b string) *Talk { return NewTalk(protocol.DirectConversation(a, b)) }

// Tail is the highest seq that was made.
func (k *Talk) Tail() uint64 { return uint64(len(k.Slots)) }

// Run makes the next n messages, with random senders, bodies and flags, and takes them into the model.
func (k *Talk) Run(r *rand.Rand, n int) *storage.Run {
	k.nowMS += r.Int64N(10)
	run := &storage.Run{Conversation: k.ID, First: k.Tail() + 1, LogTimeMS: k.nowMS, Before: k.counts}
	for range n {
		m := k.message(r)
		k.count(m)
		k.Slots = append(k.Slots, storage.Slot{Message: *m, LogTimeMS: k.nowMS, Counts: k.counts})
		run.Messages = append(run.Messages, m)
		run.Wire = protocol.AppendBody(run.Wire, m)
	}
	run.After, run.ActiveMS = k.counts, k.active
	if run.First == 1 {
		run.Members = k.Members
	}
	k.Ends = append(k.Ends, storage.State{Tail: k.Tail(), Counts: k.counts, ActiveMS: k.active})
	return run
}

func (k *Talk) message(r *rand.Rand) *protocol.Message {
	m := &protocol.Message{
		ConversationID: k.ID, Seq: k.Tail() + 1, ClientMsgID: fmt.Sprintf("%016x", r.Uint64()), Sender: k.Members[r.IntN(len(k.Members))],
		ContentType: protocol.ContentText, Content: content(r), SendTimeMS: k.nowMS - r.Int64N(50), Run: 1,
	}
	if r.IntN(8) == 0 {
		m.ContentType = protocol.ContentServer + uint16(r.IntN(4))
	}
	if r.IntN(8) == 0 {
		m.Flags = protocol.FlagNoUnread
	}
	for range r.IntN(3) {
		m.Mentions = append(m.Mentions, k.Members[r.IntN(len(k.Members))])
	}
	m.ServerMsgID = protocol.NewMessageID(k.ID, m.Sender, m.ClientMsgID).String()
	return m
}

// content is random bytes: mostly few, now and then many.
func content(r *rand.Rand) []byte {
	n := r.IntN(200)
	if r.IntN(50) == 0 {
		n = r.IntN(20_000)
	}
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

func (k *Talk) count(m *protocol.Message) {
	_, a, _ := protocol.ParseConversation(k.ID)
	if storage.CountsAsUnread(m) {
		k.counts[storage.Side(m.Sender, a)]++
	}
	if m.ContentType < protocol.ContentServer {
		k.active = max(k.active, m.SendTimeMS)
	}
}

// Cut takes the messages above tail, the end of a run, out of the model: they were lost in a crash, as they may.
func (k *Talk) Cut(tail uint64) {
	k.Slots = k.Slots[:tail]
	k.marks.cut(tail)
	k.counts, k.active = storage.Counts{}, 0
	for i, end := range k.Ends {
		if end.Tail > tail {
			k.Ends = k.Ends[:i]
			break
		}
		k.counts, k.active = end.Counts, end.ActiveMS
	}
}

// StateAt is the state when tail was the last message, without its stamp; ok tells whether a run ended there.
func (k *Talk) StateAt(tail uint64) (s storage.State, ok bool) {
	if tail == 0 {
		return s, true
	}
	for _, s := range k.Ends {
		if s.Tail == tail {
			return s, true
		}
	}
	return s, false
}

// Check holds all of the conversation against the model, when tail is its last message.
func (k *Talk) Check(tb testing.TB, b storage.Buckets, tail uint64) {
	tb.Helper()
	k.CheckState(tb, b, tail)
	k.CheckRecent(tb, b, tail)
	if tail > 0 {
		k.CheckRead(tb, b, 1, tail+10, false, tail)
		k.CheckRead(tb, b, 1, tail+10, true, tail)
	}
}

// CheckState holds State against the model.
func (k *Talk) CheckState(tb testing.TB, b storage.Buckets, tail uint64) {
	tb.Helper()
	got, err := b.State(context.Background(), k.ID)
	if err != nil {
		tb.Fatalf("%s: %v", k.ID, err)
	}
	want, ok := k.StateAt(tail)
	want.Stamp = got.Stamp
	if !ok || got != want {
		tb.Fatalf("%s: state %+v, want %+v", k.ID, got, want)
	}
	if (got.Stamp == 0) != (tail == 0) {
		tb.Fatalf("%s: stamp %d at tail %d", k.ID, got.Stamp, tail)
	}
}

// CheckRecent holds Recent, down to seq 1, against the model.
func (k *Talk) CheckRecent(tb testing.TB, b storage.Buckets, tail uint64) {
	tb.Helper()
	want := tail
	err := b.Recent(context.Background(), k.ID, func(r storage.RecentID) bool {
		if want == 0 {
			tb.Fatalf("%s: recent %d, which there is not", k.ID, r.Seq)
		}
		slot := &k.Slots[want-1]
		if r.Seq != want || r.ID.String() != slot.Message.ServerMsgID || r.LogTimeMS != slot.LogTimeMS {
			tb.Fatalf("%s: recent %d %s at %d, want %d %s at %d", k.ID, r.Seq, r.ID, r.LogTimeMS, want, slot.Message.ServerMsgID, slot.LogTimeMS)
		}
		want--
		return true
	})
	if err != nil || want != 0 {
		tb.Fatalf("%s: recent ended above %d: %v", k.ID, want, err)
	}
}

// CheckRead holds a Read for nobody against the model, when tail is the last message that there is.
func (k *Talk) CheckRead(tb testing.TB, b storage.Buckets, from, to uint64, newestFirst bool, tail uint64) {
	tb.Helper()
	k.CheckRange(tb, b, storage.Range{From: from, To: to, NewestFirst: newestFirst}, tail)
}

// CheckRange holds a Read of the conversation against the model, when tail is the last message that there is.
func (k *Talk) CheckRange(tb testing.TB, b storage.Buckets, q storage.Range, tail uint64) {
	tb.Helper()
	q.Conversation = k.ID
	var got []*storage.Slot
	err := b.Read(context.Background(), q, func(s *storage.Slot) bool {
		got = append(got, s)
		return true
	})
	if err != nil {
		tb.Fatalf("read %+v: %v", q, err)
	}
	to := min(q.To, tail)
	if want := int(to) - int(q.From) + 1; len(got) != max(want, 0) {
		tb.Fatalf("read %+v of %d yields %d slots", q, tail, len(got))
	}
	for i, slot := range got {
		seq := q.From + uint64(i)
		if q.NewestFirst {
			seq = to - uint64(i)
		}
		k.CheckView(tb, q.Viewer, seq, slot)
	}
}

// CheckSlots holds Slots against the model, when tail is the last message that there is.
func (k *Talk) CheckSlots(tb testing.TB, b storage.Buckets, viewer string, seqs []uint64, tail uint64) {
	tb.Helper()
	var want []uint64
	for _, seq := range seqs {
		if seq <= tail {
			want = append(want, seq)
		}
	}
	n := 0
	err := b.Slots(context.Background(), k.ID, viewer, seqs, func(s *storage.Slot) bool {
		if n == len(want) {
			tb.Fatalf("%s: slots %v yield %d more", k.ID, seqs, s.Message.Seq)
		}
		k.CheckView(tb, viewer, want[n], s)
		n++
		return true
	})
	if err != nil || n != len(want) {
		tb.Fatalf("%s: slots %v of %d yield %d: %v", k.ID, seqs, tail, n, err)
	}
}

// CheckSlot holds a slot that was read for nobody against the model.
func (k *Talk) CheckSlot(tb testing.TB, seq uint64, got *storage.Slot) {
	tb.Helper()
	k.CheckView(tb, "", seq, got)
}

// CheckView holds a slot that was read for a viewer against the model.
func (k *Talk) CheckView(tb testing.TB, viewer string, seq uint64, got *storage.Slot) {
	tb.Helper()
	want := k.View(viewer, seq)
	k.checkMessage(tb, &want, got)
	if l := &got.Labels; l.Gone { // whose it was matters no more
		l.Hidden, l.ChangeSeq = false, 0
	}
	if !SameLabels(&got.Labels, &want.Labels) {
		tb.Fatalf("%s: seq %d has for %q labels %s, want %s", k.ID, seq, viewer, describe(&got.Labels), describe(&want.Labels))
	}
}

// CheckStored holds a slot against what was stored, whatever was done to it since, but for a purge, of which the slot tells.
func (k *Talk) CheckStored(tb testing.TB, seq uint64, got *storage.Slot) {
	tb.Helper()
	want := k.Slots[seq-1]
	if got.Labels.Gone {
		want.Message = protocol.Message{ConversationID: k.ID, Seq: seq}
	}
	k.checkMessage(tb, &want, got)
}

// checkMessage holds everything but the labels against the model.
func (k *Talk) checkMessage(tb testing.TB, want, got *storage.Slot) {
	tb.Helper()
	seq := want.Message.Seq
	switch {
	case !bytes.Equal(protocol.AppendBody(nil, &got.Message), protocol.AppendBody(nil, &want.Message)):
		tb.Fatalf("%s: seq %d is %+v, want %+v", k.ID, seq, got.Message, want.Message)
	case got.LogTimeMS != want.LogTimeMS || got.Counts != want.Counts:
		tb.Fatalf("%s: seq %d has log time %d and counts %v, want %d and %v", k.ID, seq, got.LogTimeMS, got.Counts, want.LogTimeMS, want.Counts)
	}
}

// appendRuns stores runs and waits.
func appendRuns(tb testing.TB, b storage.Buckets, runs ...*storage.Run) {
	tb.Helper()
	c, err := b.Append(context.Background(), runs)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range runs {
		if r.Err != nil {
			tb.Fatalf("%s from %d: %v", r.Conversation, r.First, r.Err)
		}
	}
}
