package logic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

const aliceBob = "p:alice:bob"

func (d *device) revoke(seq uint64) (uint64, error) {
	d.t.Helper()
	var r protocol.ChangeReply
	err := d.call(protocol.CmdRevoke, &protocol.Position{ConversationID: aliceBob, Seq: seq}, &r)
	return r.ChangeSeq, err
}

func (d *device) edit(seq uint64, text string) (uint64, error) {
	d.t.Helper()
	var r protocol.ChangeReply
	err := d.call(protocol.CmdEdit, &protocol.Edit{ConversationID: aliceBob, Seq: seq, ContentType: 1, Content: []byte(text)}, &r)
	return r.ChangeSeq, err
}

func (d *device) react(seq uint64, reaction string, on bool) (uint64, error) {
	d.t.Helper()
	var r protocol.ChangeReply
	err := d.call(protocol.CmdReact, &protocol.React{ConversationID: aliceBob, Seq: seq, Reaction: reaction, On: on}, &r)
	return r.ChangeSeq, err
}

func (d *device) changesSince(since uint64, limit uint16) protocol.ChangesReply {
	d.t.Helper()
	var r protocol.ChangesReply
	must(d.t, d.call(protocol.CmdChanges, &protocol.Changes{ConversationID: aliceBob, Since: since, Limit: limit}, &r))
	return r
}

// at is what the device sees at a seq.
func (d *device) at(seq uint64) protocol.Message {
	d.t.Helper()
	var r protocol.PullReply
	must(d.t, d.call(protocol.CmdPull, &protocol.Pull{ConversationID: aliceBob, FromSeq: seq, ToSeq: seq}, &r))
	if len(r.Messages) != 1 {
		d.t.Fatalf("seq %d: %+v", seq, r)
	}
	return r.Messages[0]
}

// wantChange fails the test unless the change got that number.
func wantChange(t *testing.T, want uint64) func(uint64, error) {
	return func(got uint64, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Fatalf("change_seq %d, %v; want %d", got, err, want)
		}
	}
}

// refused fails the test unless a change was refused so.
func refused(t *testing.T, code protocol.ErrorCode, reason uint16) func(uint64, error) {
	return func(_ uint64, err error) {
		t.Helper()
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != code || e.Reason != reason {
			t.Fatalf("got %v, want %v with reason %d", err, code, reason)
		}
	}
}

func TestRevoke(t *testing.T) {
	c := newClock()
	s := startServer(t, nil, c.options)
	alice, phone, bob := s.online("alice"), s.online("alice"), s.online("bob")
	secret := text("1", "bob")
	secret.Content = []byte("nobody shall know")
	alice.send(secret)
	alice.send(text("2", "bob"))

	wantChange(t, 1)(phone.revoke(1))
	for _, d := range []*device{alice, bob} {
		e := d.waitEvent(protocol.EventMessageChanged)
		if e.ConversationID != aliceBob || e.Seq != 1 || e.User != "alice" || e.ChangeSeq != 1 {
			t.Errorf("event %+v", e)
		}
	}
	for _, d := range []*device{alice, phone, bob} {
		m := d.at(1)
		if m.Status != protocol.StatusRevoked || m.Revoke == nil || m.Revoke.User != "alice" || m.Revoke.Role != protocol.RoleSender || m.ChangeSeq != 1 {
			t.Errorf("revoked: %+v", m)
		}
		r := d.changesSince(0, 0)
		if len(r.Messages) != 1 || r.Messages[0].Status != protocol.StatusRevoked || r.Next != 1 || r.More || r.Reset {
			t.Errorf("changes %+v", r)
		}
	}
	wantChange(t, 1)(alice.revoke(1)) // again: the same change
	wantChange(t, 2)(alice.revoke(2)) // the last message of the list
	for _, d := range []*device{alice, bob} {
		var list protocol.SyncReply
		must(t, d.call(protocol.CmdSync, &protocol.Sync{}, &list))
		last := list.Conversations[0].LastMessage
		if list.Conversations[0].ChangeSeq != 2 || last.Status != protocol.StatusRevoked || last.Content != nil {
			t.Errorf("list %+v, %+v", list.Conversations[0], last)
		}
	}
	var online []string
	for _, f := range bob.frames {
		if f.Command != protocol.CmdPush {
			online = append(online, string(f.Body))
		}
	}
	if strings.Contains(strings.Join(online, ""), "nobody shall know") {
		t.Error("revoked content was sent")
	}
}

func TestRevokeRefused(t *testing.T) {
	c := newClock()
	s := startServer(t, nil, func(o *Options) { c.options(o); o.RevokeWithin, o.EditWithin = time.Hour, 2*time.Hour })
	alice, bob, eve := s.online("alice"), s.online("bob"), s.online("eve")
	alice.send(text("1", "bob"))
	alice.send(text("2", "bob"))
	refused(t, protocol.CodeForbidden, protocol.ReasonNotOwner)(bob.revoke(1))
	refused(t, protocol.CodeForbidden, protocol.ReasonNotOwner)(bob.edit(1, "mine now"))
	refused(t, protocol.CodeForbidden, protocol.ReasonNotMember)(eve.revoke(1))
	refused(t, protocol.CodeForbidden, protocol.ReasonNotMember)(eve.react(1, "x", true))
	for _, change := range []func(uint64) (uint64, error){
		alice.revoke, func(seq uint64) (uint64, error) { return alice.edit(seq, "x") }, func(seq uint64) (uint64, error) { return bob.react(seq, "x", true) },
	} {
		refused(t, protocol.CodeInvalidArgument, 0)(change(0))
		refused(t, protocol.CodeNotFound, 0)(change(3))
		refused(t, protocol.CodeNotFound, 0)(change(1_000_000_000_000))
	}
	refused(t, protocol.CodeInvalidArgument, 0)(alice.edit(1, "\xff"))
	refused(t, protocol.CodeInvalidArgument, 0)(alice.react(1, "", true))
	refused(t, protocol.CodeInvalidArgument, 0)(alice.react(1, "\xff", true))
	refused(t, protocol.CodeInvalidArgument, 0)(alice.react(1, strings.Repeat("x", 33), true))
	wantChange(t, 1)(alice.revoke(2))
	refused(t, protocol.CodeNotFound, 0)(alice.edit(2, "it was never revoked"))
	refused(t, protocol.CodeNotFound, 0)(bob.react(2, "x", true))
	c.add(time.Hour + time.Second)
	refused(t, protocol.CodeForbidden, protocol.ReasonNotOwner)(alice.revoke(1))
	wantChange(t, 1)(alice.revoke(2)) // is revoked already
	wantChange(t, 2)(alice.edit(1, "still in time"))
	c.add(time.Hour)
	refused(t, protocol.CodeForbidden, protocol.ReasonNotOwner)(alice.edit(1, "too late"))
	must(t, alice.call(protocol.CmdDelete, &protocol.Delete{ConversationID: aliceBob, Seqs: []uint64{1}}, &protocol.Empty{}))
	refused(t, protocol.CodeNotFound, 0)(alice.react(1, "x", true)) // hidden from her
	wantChange(t, 3)(bob.react(1, "x", true))
}

func TestEditAndReact(t *testing.T) {
	s := startServer(t, nil, nil)
	alice, bob := s.online("alice"), s.online("bob")
	alice.send(text("1", "bob"))
	wantChange(t, 1)(alice.edit(1, "better"))
	wantChange(t, 1)(alice.edit(1, "better")) // changes nothing
	wantChange(t, 2)(bob.react(1, "+1", true))
	wantChange(t, 2)(bob.react(1, "+1", true))
	wantChange(t, 3)(alice.react(1, "+1", true))
	wantChange(t, 3)(alice.react(1, "-1", false))
	m := bob.at(1)
	if string(m.Content) != "better" || m.EditMS == 0 || m.ChangeSeq != 3 || len(m.Reactions) != 1 ||
		m.Reactions[0].Count != 2 || !m.Reactions[0].Mine || !slices.Equal(m.Reactions[0].Users, []string{"bob", "alice"}) {
		t.Errorf("bob sees %+v", m)
	}
	wantChange(t, 4)(bob.react(1, "+1", false))
	if m = bob.at(1); m.Reactions[0].Count != 1 || m.Reactions[0].Mine || !alice.at(1).Reactions[0].Mine {
		t.Errorf("bob sees %+v", m.Reactions)
	}
	for i := range protocol.MaxReactions - 1 {
		wantChange(t, uint64(5+i))(bob.react(1, fmt.Sprint("kind ", i), true))
	}
	refused(t, protocol.CodeInvalidArgument, 0)(bob.react(1, "one more", true))
	wantChange(t, 20)(alice.react(1, "+1", false)) // the last of its kind
	wantChange(t, 21)(bob.react(1, "one more", true))
	wantChange(t, 22)(alice.revoke(1))
	if m = bob.at(1); m.Content != nil || m.Reactions != nil || m.EditMS != 0 {
		t.Errorf("revoked %+v", m)
	}
}

// TestReactLabels is the arithmetic beyond the users that a slot names.
func TestReactLabels(t *testing.T) {
	labels := &storage.Labels{}
	beside := make(map[string]bool)
	react := func(user, kind string, on, mine bool) bool {
		seen := *labels
		seen.Reactions = slices.Clone(labels.Reactions)
		for i := range seen.Reactions {
			seen.Reactions[i].Mine = mine && seen.Reactions[i].Kind == kind
		}
		next, reactor, err := reactLabels(&seen, &storage.Intent{Op: storage.OpReact, User: user, Reaction: kind, On: on})
		must(t, err)
		if next != nil {
			labels = next
		}
		if reactor != nil {
			beside[reactor.User] = reactor.On
		}
		return next != nil
	}
	for i := range 100 {
		if !react(fmt.Sprint("user", i), "+1", true, false) || react(fmt.Sprint("user", i), "+1", true, true) {
			t.Fatalf("user %d", i)
		}
	}
	if r := labels.Reactions[0]; r.Count != 100 || len(r.Users) != protocol.MaxReactors || len(beside) != 100-protocol.MaxReactors {
		t.Fatalf("%d counted, %d named, %d beside", r.Count, len(r.Users), len(beside))
	}
	react("user99", "-1", true, false) // no room for a name of another kind either
	if r := labels.Reactions[1]; r.Count != 1 || len(r.Users) != 0 {
		t.Fatalf("%+v", r)
	}
	for i := range 100 {
		if !react(fmt.Sprint("user", i), "+1", false, true) || react(fmt.Sprint("user", i), "+1", false, false) {
			t.Fatalf("user %d", i)
		}
	}
	if len(labels.Reactions) != 1 || labels.Reactions[0].Kind != "-1" {
		t.Fatalf("left: %+v", labels.Reactions)
	}
	for user, on := range beside {
		if on && user != "user99" {
			t.Errorf("%s is still beside", user)
		}
	}
}

// TestChangesPages: each changed message comes once, in the order of its last change, whatever the pages.
func TestChangesPages(t *testing.T) {
	s := startServer(t, nil, nil)
	alice, bob := s.online("alice"), s.online("bob")
	const messages, changes = 30, 200
	for i := range messages {
		alice.send(text(fmt.Sprint(i), "bob"))
	}
	var order []uint64 // by last change
	for i := range uint64(changes) {
		seq := i*i%messages + 1
		wantChange(t, i+1)(alice.edit(seq, fmt.Sprint("change ", i)))
		order = append(slices.DeleteFunc(order, func(s uint64) bool { return s == seq }), seq)
	}
	for _, limit := range []uint16{0, 1, 7, 100} {
		var got []uint64
		for since, more := uint64(0), true; more; {
			r := bob.changesSince(since, limit)
			for _, m := range r.Messages {
				if m.ChangeSeq <= since || m.ChangeSeq > r.Next || string(m.Content) != fmt.Sprint("change ", m.ChangeSeq-1) {
					t.Fatalf("since %d: %+v, next %d", since, m, r.Next)
				}
				got = append(got, m.Seq)
			}
			if r.Reset || r.Next < since {
				t.Fatalf("since %d: %+v", since, r)
			}
			since, more = r.Next, r.More
			if !more && since != changes {
				t.Fatalf("ended at %d", since)
			}
		}
		if !slices.Equal(got, order) {
			t.Fatalf("limit %d: %v, want %v", limit, got, order)
		}
	}
	if r := bob.changesSince(changes, 0); len(r.Messages) > 0 || r.Next != changes || r.Reset || r.More {
		t.Errorf("nothing new: %+v", r)
	}
	if r := bob.changesSince(changes+1, 0); !r.Reset || r.Next != changes {
		t.Errorf("of a future: %+v", r)
	}
}

func TestChangesTooOld(t *testing.T) {
	s := startServer(t, nil, nil)
	alice := s.online("alice")
	alice.send(text("1", "bob"))
	for n := uint64(1); n <= maxChangesBehind+1; n++ {
		c := &storage.Change{Conversation: aliceBob, Seq: 1, ChangeSeq: n, Labels: storage.Labels{Edit: &storage.Edit{ContentType: 1}}}
		must(t, errors.Join(s.store.Apply(t.Context(), []*storage.Change{c}), c.Err))
	}
	if r := alice.changesSince(0, 0); !r.Reset || len(r.Messages) > 0 || r.Next != maxChangesBehind+1 {
		t.Errorf("too old: %+v", r)
	}
	if r := alice.changesSince(1, 0); r.Reset || len(r.Messages) != 1 || r.Next != maxChangesBehind+1 {
		t.Errorf("just in time: %+v", r)
	}
}

// TestLabelWithoutNote: the server ended between the label of a change and the note of it; the same request makes it whole.
func TestLabelWithoutNote(t *testing.T) {
	s := startServer(t, nil, func(o *Options) {})
	half := &halfChanges{Changes: s.store}
	s.l.o.Changes = half
	alice, bob := s.online("alice"), s.online("bob")
	alice.send(text("1", "bob"))
	half.label = func(slot *storage.Slot) {
		slot.Labels.Revoke, slot.Labels.ChangeSeq = &protocol.Revoke{User: "alice"}, 1
	}
	s.l.o.Buckets = &labelled{Buckets: s.store, half: half}
	wantChange(t, 1)(alice.revoke(1))
	if half.applied == nil || half.applied.ChangeSeq != 1 || half.applied.Labels.Revoke == nil || half.applied.Labels.Revoke.User != "alice" {
		t.Errorf("applied %+v", half.applied)
	}
	if e := bob.waitEvent(protocol.EventMessageChanged); e.ChangeSeq != 1 {
		t.Errorf("event %+v", e)
	}
}

// halfChanges and labelled are a store that has a label whose note is missing.
type halfChanges struct {
	storage.Changes
	label   func(*storage.Slot)
	applied *storage.Change
}

func (h *halfChanges) Apply(_ context.Context, changes []*storage.Change) error {
	h.applied = changes[0]
	return nil
}

type labelled struct {
	storage.Buckets
	half *halfChanges
}

func (b *labelled) Slots(ctx context.Context, conversation, viewer string, seqs []uint64, yield func(*storage.Slot) bool) error {
	return b.Buckets.Slots(ctx, conversation, viewer, seqs, func(s *storage.Slot) bool {
		b.half.label(s)
		return yield(s)
	})
}
