package logic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

func (d *device) delete(seqs ...uint64) error {
	d.t.Helper()
	return d.call(protocol.CmdDelete, &protocol.Delete{ConversationID: aliceBob, Seqs: seqs}, &protocol.Empty{})
}

func (d *device) clear(upTo uint64) (uint64, error) {
	d.t.Helper()
	var r protocol.ClearReply
	err := d.call(protocol.CmdClear, &protocol.Clear{ConversationID: aliceBob, UpToSeq: upTo}, &r)
	return r.MinSeq, err
}

// stream is the own stream of the device's user.
func (d *device) stream() []protocol.OwnState {
	d.t.Helper()
	var all []protocol.OwnState
	for _, m := range d.pullAll(protocol.UserStream(d.session.User), 0) {
		var state protocol.OwnState
		must(d.t, protocol.Unmarshal(m.Content, &state))
		if m.ContentType != protocol.ContentOwnState || m.Sender != d.session.User {
			d.t.Errorf("in the stream: %+v", m)
		}
		all = append(all, state)
	}
	return all
}

func (d *device) conversation(id string) protocol.Conversation {
	d.t.Helper()
	var list protocol.SyncReply
	must(d.t, d.call(protocol.CmdSync, &protocol.Sync{}, &list))
	for _, c := range list.Conversations {
		if c.ConversationID == id {
			return c
		}
	}
	return protocol.Conversation{}
}

func sendMany(d *device, n int) {
	for i := range n {
		d.send(text(fmt.Sprint("m", i), "bob"))
	}
}

func TestDelete(t *testing.T) {
	s := startServer(t, nil, nil)
	alice, bob := s.online("alice"), s.online("bob")
	sendMany(alice, 10)
	phone := s.online("alice")
	must(t, alice.delete(3, 4, 5, 4, 10))
	e := phone.waitEvent(protocol.EventDeleted)
	var data protocol.DeletedData
	must(t, protocol.Unmarshal(e.Data, &data))
	if e.ConversationID != aliceBob || e.Seq != 10 || e.User != "alice" || !slices.Equal(data.Seqs, []uint64{3, 4, 5, 10}) {
		t.Errorf("event %+v, %v", e, data)
	}
	pushed := phone.waitPushed(1)[0]
	if pushed.ConversationID != "u:alice" || pushed.Seq != 1 || pushed.ContentType != protocol.ContentOwnState {
		t.Errorf("pushed %+v", pushed)
	}
	tablet := s.online("alice") // was away
	for _, d := range []*device{alice, phone, tablet} {
		if m := d.at(4); m.Status != protocol.StatusHidden || m.Content != nil || m.Sender != "" {
			t.Errorf("hidden: %+v", m)
		}
		if got := d.stream(); len(got) != 1 || got[0].Op != protocol.OwnDelete || !slices.Equal(got[0].Seqs, []uint64{3, 4, 5, 10}) {
			t.Errorf("stream %+v", got)
		}
		if c := d.conversation(aliceBob); c.LastMessage.Status != protocol.StatusHidden || c.MaxSeq != 10 {
			t.Errorf("list: %+v", c)
		}
		if c := d.conversation("u:alice"); c.MaxSeq != 1 || c.Unread != 0 {
			t.Errorf("list: %+v", c)
		}
	}
	if m := bob.at(4); m.Status != protocol.StatusNormal || len(bob.pullAll(aliceBob, 0)) != 10 {
		t.Errorf("bob sees %+v", m)
	}
	if c := bob.conversation("u:alice"); c.ConversationID != "" {
		t.Errorf("bob has alice's stream: %+v", c)
	}
	wantCode(t, bob.call(protocol.CmdPull, &protocol.Pull{ConversationID: "u:alice"}, nil), protocol.CodeForbidden)
	must(t, alice.delete(3)) // again
	if got := phone.stream(); len(got) != 2 {
		t.Errorf("stream %+v", got)
	}
}

// TestDeleteRefused: nothing is stored of what is refused, in the stream neither.
func TestDeleteRefused(t *testing.T) {
	s := startServer(t, nil, nil)
	alice, eve := s.online("alice"), s.online("eve")
	sendMany(alice, 3)
	wantCode(t, alice.delete(1_000_000_000_000), protocol.CodeNotFound)
	wantCode(t, alice.delete(1, 4), protocol.CodeNotFound)
	wantCode(t, alice.delete(0, 1), protocol.CodeInvalidArgument)
	wantCode(t, alice.delete(), protocol.CodeInvalidArgument)
	wantCode(t, eve.delete(1), protocol.CodeForbidden)
	negative := alice.requestBytes(protocol.CmdDelete, []byte("\x92\xabp:alice:bob\x91\xff")) // [-1]
	if err := alice.reply(negative, nil); err == nil {
		t.Error("a negative seq was taken")
	}
	many := make([]uint64, protocol.MaxSeqs+1)
	for i := range many {
		many[i] = 1
	}
	wantCode(t, alice.delete(many...), protocol.CodeInvalidArgument)
	_, err := eve.clear(0)
	wantCode(t, err, protocol.CodeForbidden)
	must(t, alice.call(protocol.CmdClear, &protocol.Clear{ConversationID: aliceBob, UpToSeq: 1}, nil))
	wantCode(t, alice.call(protocol.CmdDelete, &protocol.Delete{ConversationID: "u:alice", Seqs: []uint64{1}}, nil), protocol.CodeInvalidArgument)
	wantCode(t, alice.call(protocol.CmdClear, &protocol.Clear{ConversationID: "u:alice"}, nil), protocol.CodeInvalidArgument)
	wantCode(t, alice.call(protocol.CmdRevoke, &protocol.Position{ConversationID: "u:alice", Seq: 1}, nil), protocol.CodeForbidden)
	if got := alice.stream(); len(got) != 1 || got[0].Op != protocol.OwnClear {
		t.Errorf("stream %+v", got)
	}
	if got := alice.pullAll(aliceBob, 0); len(got) != 2 || got[0].Status != protocol.StatusNormal || got[1].Status != protocol.StatusNormal {
		t.Errorf("alice sees %+v", got)
	}
}

func TestClear(t *testing.T) {
	s := startServer(t, nil, nil)
	alice, bob := s.online("alice"), s.online("bob")
	sendMany(alice, 10)
	phone := s.online("bob")
	lowest, err := bob.clear(4)
	if must(t, err); lowest != 5 {
		t.Errorf("min_seq %d", lowest)
	}
	if e := phone.waitEvent(protocol.EventCleared); e.ConversationID != aliceBob || e.Seq != 4 || e.User != "bob" {
		t.Errorf("event %+v", e)
	}
	for _, d := range []*device{bob, phone} {
		if c := d.conversation(aliceBob); c.MinSeq != 5 || c.Unread != 6 {
			t.Errorf("list %+v", c)
		}
		if got := d.pullAll(aliceBob, 3); len(got) != 6 || got[0].Seq != 5 {
			t.Errorf("sees %+v", got)
		}
		if got := d.stream(); len(got) != 1 || got[0].Op != protocol.OwnClear || got[0].UpToSeq != 4 {
			t.Errorf("stream %+v", got)
		}
	}
	if lowest, _ = phone.clear(2); lowest != 5 { // never back
		t.Errorf("min_seq %d", lowest)
	}
	if lowest, _ = phone.clear(0); lowest != 11 {
		t.Errorf("min_seq %d", lowest)
	}
	if lowest, _ = phone.clear(1 << 40); lowest != 11 {
		t.Errorf("min_seq %d", lowest)
	}
	if c := bob.conversation(aliceBob); c.MinSeq != 11 || c.Unread != 0 || c.LastMessage != nil {
		t.Errorf("list %+v", c)
	}
	if got := alice.pullAll(aliceBob, 0); len(got) != 10 {
		t.Errorf("alice sees %d", len(got))
	}
	alice.send(text("after", "bob"))
	if got := bob.pullAll(aliceBob, 0); len(got) != 1 || got[0].Seq != 11 {
		t.Errorf("bob sees %+v", got)
	}
}

// TestOwnEffectFirst: when the effect can not be stored nothing is in the stream; when the stream can not be written, the request is
// answered so that it is made again, and that is as if it had worked at first.
func TestOwnEffectFirst(t *testing.T) {
	s := startServer(t, nil, nil)
	alice := s.online("alice")
	sendMany(alice, 3)
	s.l.o.Directory = failingOwn{s.store}
	if err := alice.delete(1); err == nil {
		t.Fatal("deleted without the effect")
	}
	s.l.o.Directory = s.store
	log := s.l.o.Log
	s.l.o.Log = fullLog{log}
	wantCode(t, alice.delete(1), protocol.CodeUnavailable)
	s.l.o.Log = log
	if got := alice.conversation("u:alice"); got.ConversationID != "" {
		t.Errorf("stream %+v", got)
	}
	must(t, alice.delete(1))
	if got := alice.stream(); len(got) != 1 || alice.at(1).Status != protocol.StatusHidden {
		t.Errorf("stream %+v", got)
	}
}

type failingOwn struct{ storage.Directory }

func (failingOwn) ApplyOwn(context.Context, []*storage.Own) error {
	return fmt.Errorf("the disk is tired")
}

type fullLog struct{ storage.Log }

func (fullLog) Append(*storage.Record) error { return storage.ErrFull }

// TestPullRuns: stretches with nothing to show come as one entry, in both directions and whatever the pages; taken apart they are every
// seq once.
func TestPullRuns(t *testing.T) {
	s := startServer(t, nil, nil)
	alice := s.online("alice")
	const n = 120
	sendMany(alice, n)
	r := rand.New(rand.NewPCG(1, 1))
	status := make([]protocol.Status, n+1)
	for range 8 {
		from, length := 1+r.Uint64N(n), 1+r.Uint64N(20)
		to := min(from+length, n)
		if r.IntN(2) == 0 {
			_, err := s.store.Purge(t.Context(), aliceBob, from, to)
			must(t, err)
		}
		for seq := from; seq <= to; seq++ {
			if status[seq] != protocol.StatusGone {
				must(t, alice.delete(seq))
			}
		}
		for seq := from; seq <= to; seq++ {
			status[seq] = alice.at(seq).Status
		}
	}
	for _, limit := range []uint16{1, 2, 7, 50, 200} {
		for _, down := range []bool{false, true} {
			checkRuns(t, alice, status, limit, down)
		}
	}
}

// checkRuns pages through the conversation and holds the entries against what each seq is.
func checkRuns(t *testing.T, d *device, status []protocol.Status, limit uint16, down bool) {
	t.Helper()
	top := uint64(len(status) - 1)
	q := protocol.Pull{ConversationID: aliceBob, Limit: limit, NewestFirst: down}
	want, got := uint64(1), 0
	if down {
		want = top
	}
	for more := true; more; {
		var page protocol.PullReply
		must(t, d.call(protocol.CmdPull, &q, &page))
		if len(page.Messages) == 0 || len(page.Messages) > int(limit) {
			t.Fatalf("limit %d: a page of %d", limit, len(page.Messages))
		}
		for i, m := range page.Messages {
			low, high := m.Seq, m.Seq+uint64(max(m.Run, 1))-1
			if !down && low != want || down && high != want {
				t.Fatalf("limit %d, down %t: entry %d to %d, want %d", limit, down, low, high, want)
			}
			for seq := low; seq <= high; seq++ {
				if got++; status[seq] != m.Status {
					t.Fatalf("seq %d comes as %d, is %d", seq, m.Status, status[seq])
				}
			}
			if want = high + 1; down {
				want = low - 1
			}
			if i > 0 && placeholder(&m) && page.Messages[i-1].Status == m.Status {
				t.Fatalf("limit %d: two entries where one would do, at %d", limit, m.Seq)
			}
		}
		more = page.More
		if q.FromSeq = want; down {
			q.FromSeq, q.ToSeq = 0, want
		}
	}
	if got != len(status)-1 {
		t.Fatalf("limit %d, down %t: %d seqs of %d", limit, down, got, len(status)-1)
	}
}
