package logic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// heldDirectory holds up Changed, and runs something once after a SignedOut.
type heldDirectory struct {
	storage.Directory
	gate  chan struct{}
	after func()
}

func (d *heldDirectory) Changed(ctx context.Context, user string, since storage.Stamp) ([]storage.Entry, storage.Stamp, error) {
	<-d.gate
	return d.Directory.Changed(ctx, user, since)
}

func (d *heldDirectory) SignedOut(ctx context.Context, user, device string) (bool, error) {
	out, err := d.Directory.SignedOut(ctx, user, device)
	if f := d.after; f != nil && device == "victim" {
		d.after = nil
		f()
	}
	return out, err
}

// startHeld starts a server whose directory can be held up.
func startHeld(t *testing.T) (*server, *heldDirectory) {
	d := &heldDirectory{gate: make(chan struct{})}
	s := startServer(t, nil, func(o *Options) {
		if o.Directory != nil {
			d.Directory = o.Directory
			o.Directory = d
		}
	})
	return s, d
}

// TestMailboxIsBounded: requests that wait take bounded memory; what goes beyond is refused, and the rest answered.
func TestMailboxIsBounded(t *testing.T) {
	s, d := startHeld(t)
	a := s.online("alice")
	first := a.request(protocol.CmdSync, &protocol.Sync{}) // waits, and the others behind it
	large := &protocol.Edit{ConversationID: aliceBob, Seq: 1, ContentType: 100, Content: make([]byte, 60_000)}
	var ids []uint32
	for range 32 {
		ids = append(ids, a.request(protocol.CmdEdit, large))
	}
	l := s.l.sessions.get(a.session.ID)
	l.mu.Lock()
	held := l.mailBytes
	l.mu.Unlock()
	if held > maxMailboxBytes {
		t.Errorf("%d bytes wait", held)
	}
	close(d.gate)
	must(t, a.reply(first, nil))
	refused := 0
	for _, id := range ids {
		if errors.Is(a.reply(id, nil), &protocol.Error{Code: protocol.CodeRateLimited}) {
			refused++
		}
	}
	if want := 32 - maxMailboxBytes/60_000; refused < want || refused == 32 {
		t.Errorf("%d of 32 were refused, want about %d", refused, want)
	}
	must(t, a.call(protocol.CmdUnread, nil, nil))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mailBytes != 0 {
		t.Errorf("%d bytes are counted in an empty mailbox", l.mailBytes)
	}
}

// TestLargeSignals are dropped, before they are copied.
func TestLargeSignals(t *testing.T) {
	s := startServer(t, nil, nil)
	a, b := s.online("alice"), s.online("bob")
	for _, n := range []int{maxSignalData + 1, 60_000} {
		m := &protocol.Signal{Kind: 1, Target: "bob", Type: 1, Data: make([]byte, n)}
		s.l.Handle(a.session.ID, []protocol.Frame{{Header: protocol.Header{Command: protocol.CmdSignal}, Body: protocol.AppendBody(nil, m)}})
	}
	m := &protocol.Signal{Kind: 1, Target: "bob", Type: 2, Data: make([]byte, maxSignalData)}
	s.l.Handle(a.session.ID, []protocol.Frame{{Header: protocol.Header{Command: protocol.CmdSignal}, Body: protocol.AppendBody(nil, m)}})
	s.g.wait(t, "a signal", func() bool { return len(b.frames) > 0 })
	var got protocol.Signal
	must(t, protocol.Unmarshal(b.frames[0].Body, &got))
	if got.Type != 2 || len(got.Data) != maxSignalData {
		t.Errorf("got %d with %d bytes", got.Type, len(got.Data))
	}
}

// TestSignedOutMeanwhile: a SIGN_OUT of a device that is just signing in ends it.
func TestSignedOutMeanwhile(t *testing.T) {
	s, d := startHeld(t)
	a := s.online("alice")
	d.after = func() { must(t, a.call(protocol.CmdSignOut, &protocol.SignOut{DeviceID: "victim"}, nil)) }
	if victim := s.dial("alice", "victim", protocol.PlatformOther, 0); victim.welcomed || victim.kick.Reason != protocol.KickSignedOut {
		t.Errorf("welcomed %t, kick %+v", victim.welcomed, victim.kick)
	}
}

// TestChosenIDs: whoever picks ids whose low bits are alike does not make the sequencer walk long chains.
func TestChosenIDs(t *testing.T) {
	var r recent
	for i := range uint64(repeatMost) {
		var id protocol.MessageID
		binary.LittleEndian.PutUint64(id[:], i<<13)
		r.add(id, 1)
	}
	longest := 0
	for _, head := range r.heads {
		length := 0
		for depth := uint64(uint32(r.tail) - head); depth < uint64(r.count); length++ {
			back := r.at(r.tail - depth).back
			if back == 0 {
				break
			}
			depth += uint64(back)
		}
		longest = max(longest, length)
	}
	if longest > 40 { // of random ids: about 9
		t.Errorf("the longest chain has %d entries", longest)
	}
}

// TestPaddedSends: what a SEND holds in memory counts against the log's bound, also what no field of it needs.
func TestPaddedSends(t *testing.T) {
	full := &countingLog{}
	s := startServer(t, nil, func(o *Options) {
		if o.Log != nil {
			full.Log = o.Log
			o.Log = full
		}
	})
	a := s.online("alice")
	body := protocol.AppendBody(nil, text("1", "bob"))
	body[0] = 0x98 // an eighth element, of a later version
	body = append(append(body, 0xc5, 0xea, 0x60), make([]byte, 60_000)...)
	must(t, a.reply(a.requestBytes(protocol.CmdSend, body), nil))
	if full.held < 60_000 {
		t.Errorf("a SEND of %d bytes holds %d", len(body), full.held)
	}
}

type countingLog struct {
	storage.Log
	held int
}

func (l *countingLog) Append(rec *storage.Record) error {
	l.held += rec.Held
	return l.Log.Append(rec)
}

// TestConversationsOnce: an id that is asked for many times comes once.
func TestConversationsOnce(t *testing.T) {
	s := startServer(t, nil, nil)
	a := s.online("alice")
	a.send(text("1", "bob"))
	q := &protocol.GetConversations{}
	for range protocol.MaxArray {
		q.ConversationIDs = append(q.ConversationIDs, aliceBob)
	}
	var r protocol.GetConversationsReply
	if must(t, a.call(protocol.CmdGetConversation, q, &r)); len(r.Conversations) != 1 {
		t.Error(fmt.Sprint(len(r.Conversations), " conversations"))
	}
}
