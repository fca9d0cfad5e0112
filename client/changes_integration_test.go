package client_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/parley-im/parley/client"
	"github.com/parley-im/parley/protocol"
)

// say sends texts and waits until all screens show them.
func say(from *screen, to string, n int, screens ...*screen) (last uint64) {
	from.t.Helper()
	for i := range n {
		ack, err := from.c.Send(within(from.t), client.Text(client.User(to), fmt.Sprint("text ", i)))
		if err != nil {
			from.t.Fatal(err)
		}
		last = ack.Seq
	}
	for _, v := range screens {
		v.awaitSeq(conversation, last)
	}
	return last
}

func wantCode(t *testing.T, err error, code protocol.ErrorCode, reason uint16) {
	t.Helper()
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != code || e.Reason != reason {
		t.Errorf("the error is %v, want %v, reason %d", err, code, reason)
	}
}

// Two devices of alice and one of bob: what each of them changes all see, what alice deletes and clears for herself is gone from both of
// her devices and from no other.
func TestChangesAgainstServer(t *testing.T) {
	s := newServer(t)
	phone, _ := s.screen("alice", "phone", protocol.PlatformIOS)
	desk, _ := s.screen("alice", "desk", protocol.PlatformLinux)
	bob, _ := s.screen("bob", "phone", protocol.PlatformAndroid)
	all := []*screen{phone, desk, bob}
	say(phone, "bob", 10, all...)
	ctx := within(t)
	for i, call := range []func() (uint64, error){
		func() (uint64, error) { return bob.c.React(ctx, conversation, 3, "+1", true) },
		func() (uint64, error) { return desk.c.React(ctx, conversation, 3, "+1", true) },
		func() (uint64, error) { return phone.c.Edit(ctx, conversation, 4, 0, []byte("better")) },
		func() (uint64, error) { return desk.c.Revoke(ctx, conversation, 5) },
		func() (uint64, error) { return bob.c.React(ctx, conversation, 3, "+1", false) },
	} {
		if n, err := call(); err != nil || n != uint64(i+1) {
			t.Fatalf("call %d: change_seq %d, %v", i, n, err)
		}
		for _, v := range all {
			v.wantTold(fmt.Sprintf("change %s %d/%d", conversation, []uint64{3, 3, 4, 5, 3}[i], i+1))
			v.wantServer(conversation)
		}
	}
	if n, err := phone.c.Revoke(ctx, conversation, 5); n != 4 || err != nil {
		t.Errorf("revoked again: change_seq %d, %v", n, err)
	}
	_, err := bob.c.Revoke(ctx, conversation, 6)
	wantCode(t, err, protocol.CodeForbidden, protocol.ReasonNotOwner)
	_, err = bob.c.Edit(ctx, conversation, 6, 0, []byte("not mine"))
	wantCode(t, err, protocol.CodeForbidden, protocol.ReasonNotOwner)
	_, err = phone.c.Edit(ctx, conversation, 5, 0, []byte("revoked"))
	wantCode(t, err, protocol.CodeNotFound, 0)
	_, err = phone.c.Revoke(ctx, conversation, 11)
	wantCode(t, err, protocol.CodeNotFound, 0)
	for _, seq := range []uint64{0, 1e12} {
		wantCode(t, phone.c.Delete(ctx, conversation, 1, seq), map[uint64]protocol.ErrorCode{0: protocol.CodeInvalidArgument, 1e12: protocol.CodeNotFound}[seq], 0)
	}

	if err := desk.c.Delete(ctx, conversation, 7, 6); err != nil {
		t.Fatal(err)
	}
	if low, err := phone.c.Clear(ctx, conversation, 2); err != nil || low != 3 {
		t.Fatalf("Clear: %d, %v", low, err)
	}
	for _, v := range []*screen{phone, desk} {
		v.wantTold("deleted "+conversation+" [6 7]", "cleared "+conversation+" 2")
		v.wantServer(conversation)
	}
	bob.wantTold()
	bob.wantServer(conversation)
	if n := len(bob.shown[conversation]); n != 10 {
		t.Errorf("bob sees %d messages, want 10", n)
	}
	if low, err := desk.c.Clear(ctx, conversation, 0); err != nil || low != 11 {
		t.Fatalf("Clear: %d, %v", low, err)
	}
	for _, v := range []*screen{phone, desk} {
		v.wantTold("cleared " + conversation + " 10")
	}
	say(bob, "alice", 1, all...)
	for _, v := range all {
		v.wantServer(conversation)
	}
}

// A device that was away, over a restart of the server, learns of everything when it comes back: each change once, in order, as it is now; each
// deletion; and it shows nothing of what was taken away meanwhile. A new device shows what the server does.
func TestChangesWhileAwayAgainstServer(t *testing.T) {
	s := newServer(t)
	phone, _ := s.screen("alice", "phone", protocol.PlatformIOS)
	desk, back := s.screen("alice", "desk", protocol.PlatformLinux)
	bob, _ := s.screen("bob", "phone", protocol.PlatformAndroid)
	say(phone, "bob", 40, phone, desk, bob)
	if err := desk.c.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	must := func(_ uint64, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for seq := uint64(1); seq <= 30; seq++ { // changed twice: told once
		must(bob.c.React(ctx, conversation, seq, "+1", true))
	}
	say(phone, "bob", 10, phone, bob)
	must(phone.c.Revoke(ctx, conversation, 45)) // which the desk does not have yet
	must(phone.c.Revoke(ctx, conversation, 10))
	must(phone.c.Edit(ctx, conversation, 9, 0, []byte("better")))
	must(0, phone.c.Delete(ctx, conversation, 12, 46))
	s.stop()
	s.start()
	must(0, phone.c.Delete(ctx, conversation, 13))
	must(phone.c.Clear(ctx, conversation, 5))

	back()
	var want []string
	for seq := 6; seq <= 30; seq++ {
		if seq != 9 && seq != 10 && seq != 12 && seq != 13 {
			want = append(want, fmt.Sprintf("change %s %d/%d", conversation, seq, seq))
		}
	}
	want = append(want, "change "+conversation+" 10/32", "change "+conversation+" 9/33")
	own := []string{"deleted " + conversation + " [12 46]", "deleted " + conversation + " [13]", "cleared " + conversation + " 5"}
	desk.await("all", func() bool { return len(desk.told) >= len(want)+len(own) })
	desk.awaitSeq(conversation, 50)
	desk.mu.Lock()
	var changes, others []string
	for _, s := range desk.told {
		if s[:6] == "change" {
			changes = append(changes, s)
		} else {
			others = append(others, s)
		}
	}
	desk.mu.Unlock()
	if fmt.Sprint(changes) != fmt.Sprint(want) || fmt.Sprint(others) != fmt.Sprint(own) {
		t.Errorf("told were\n%q and\n%q, want\n%q and\n%q", changes, others, want, own)
	}
	web, _ := s.screen("alice", "web", protocol.PlatformWeb)
	web.awaitSeq(conversation, 50)
	for _, v := range []*screen{phone, desk, web, bob} {
		v.wantServer(conversation)
	}
	web.wantTold()
}

// Three devices write, change, delete and clear at random, all at once, while the server restarts and one of them comes and goes. In the end each
// shows what the server has for its user.
func TestRandomChangesAgainstServer(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testRandomChanges(t, seed) })
	}
}

func testRandomChanges(t *testing.T, seed uint64) {
	s := newServer(t)
	phone, _ := s.screen("alice", "phone", protocol.PlatformIOS)
	desk, back := s.screen("alice", "desk", protocol.PlatformLinux)
	bob, _ := s.screen("bob", "phone", protocol.PlatformAndroid)
	say(phone, "bob", 20, phone, desk, bob)
	for round := range 4 {
		if err := desk.c.Close(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		play := func(v *screen, to string, who uint64) {
			rnd := rand.New(rand.NewPCG(seed, uint64(round)<<8|who))
			wg.Go(func() {
				for range 60 {
					v.act(rnd, to)
				}
			})
		}
		play(phone, "bob", 1)
		play(bob, "alice", 2)
		if round%2 == 1 {
			s.stop()
			s.start()
		}
		back()
		play(desk, "bob", 3)
		wg.Wait()
	}
	for _, v := range []*screen{phone, desk, bob} {
		v.wantServer(conversation)
	}
}

// act does one thing at random. What is refused (of another's, revoked, hidden) is no fault.
func (v *screen) act(rnd *rand.Rand, to string) {
	v.mu.Lock()
	var tail uint64
	for seq := range v.shown[conversation] {
		tail = max(tail, seq)
	}
	v.mu.Unlock()
	if tail == 0 {
		return
	}
	seq := 1 + tail - min(tail, 1+uint64(rnd.ExpFloat64()*8))
	ctx, kind := within(v.t), fmt.Sprint(rnd.IntN(3))
	var err error
	switch n := rnd.IntN(100); {
	case n < 30:
		_, err = v.c.Send(ctx, client.Text(client.User(to), kind))
	case n < 55:
		_, err = v.c.React(ctx, conversation, seq, kind, rnd.IntN(2) == 0)
	case n < 75:
		_, err = v.c.Edit(ctx, conversation, seq, 0, []byte("edited "+kind))
	case n < 82:
		_, err = v.c.Revoke(ctx, conversation, seq)
	case n < 99:
		err = v.c.Delete(ctx, conversation, seq, max(seq/2, 1))
	default:
		_, err = v.c.Clear(ctx, conversation, seq/2+1)
	}
	var refused *protocol.Error
	if err != nil && (!errors.As(err, &refused) || refused.Code != protocol.CodeForbidden && refused.Code != protocol.CodeNotFound) {
		v.t.Errorf("seq %d of %d: %v", seq, tail, err)
	}
}
