package logic

import (
	"testing"

	"github.com/parley-im/parley/protocol"
)

func TestOneDeviceOfEachClass(t *testing.T) {
	s := startServer(t, nil, nil)
	phone := s.dial("alice", "phone", protocol.PlatformIOS, protocol.HelloSignedIn)
	desk := s.dial("alice", "desk", protocol.PlatformLinux, 0)
	web := s.dial("alice", "web", protocol.PlatformWeb, 0)
	for _, d := range []*device{phone, desk, web} {
		if d.kick != nil {
			t.Fatalf("%s was kicked: %+v", d.session.DeviceID, d.kick)
		}
	}
	// An automatic reconnect of another phone displaces nobody.
	second := s.dial("alice", "second", protocol.PlatformAndroid, 0)
	if second.kick == nil || second.kick.Reason != protocol.KickDisplaced || second.kick.DeviceID != "phone" || phone.kick != nil {
		t.Fatalf("second %+v, phone %+v", second.kick, phone.kick)
	}
	// A sign-in does.
	second = s.dial("alice", "second", protocol.PlatformAndroid, protocol.HelloSignedIn)
	if second.kick != nil || phone.kick == nil || phone.kick.Reason != protocol.KickDisplaced || phone.kick.DeviceID != "second" ||
		phone.kick.Platform != protocol.PlatformAndroid || phone.kick.TimeMS == 0 {
		t.Fatalf("second %+v, phone %+v", second.kick, phone.kick)
	}
	// The same device replaces its own old connection, whose end leaves the new one's route alone.
	again := s.dial("alice", "desk", protocol.PlatformLinux, 0)
	if again.kick != nil || desk.kick == nil || desk.kick.Reason != protocol.KickDisplaced {
		t.Fatalf("again %+v, desk %+v", again.kick, desk.kick)
	}
	desk.hangUp()
	phone.hangUp()
	bob := s.online("bob")
	bob.send(text("m", "alice"))
	for _, d := range []*device{second, again, web} {
		d.waitPushed(1)
	}
	if desk.kick == nil || web.kick != nil {
		t.Error("the web device was touched")
	}
}

func TestTooManyDevices(t *testing.T) {
	s := startServer(t, nil, nil)
	for range 64 {
		s.online("alice")
	}
	if d := s.dial("alice", "one more", protocol.PlatformOther, protocol.HelloSignedIn); d.kick == nil || d.kick.Reason != protocol.KickDisplaced {
		t.Errorf("the 65th device: %+v", d.kick)
	}
}

func TestSignOut(t *testing.T) {
	s := startServer(t, nil, nil)
	phone := s.dial("alice", "phone", protocol.PlatformIOS, protocol.HelloSignedIn)
	desk := s.dial("alice", "desk", protocol.PlatformLinux, protocol.HelloSignedIn)
	must(t, desk.call(protocol.CmdSignOut, &protocol.SignOut{DeviceID: "phone"}, nil))
	s.g.wait(t, "the phone's KICK", func() bool { return phone.kick != nil })
	if phone.kick.Reason != protocol.KickSignedOut || desk.closed {
		t.Errorf("phone %+v, desk closed %v", phone.kick, desk.closed)
	}
	phone.hangUp()
	if d := s.dial("alice", "phone", protocol.PlatformIOS, 0); d.kick == nil || d.kick.Reason != protocol.KickSignedOut {
		t.Errorf("an automatic reconnect of a device that was signed out: %+v", d.kick)
	}
	if d := s.dial("alice", "phone", protocol.PlatformIOS, protocol.HelloSignedIn); d.kick != nil {
		t.Errorf("a new sign-in: %+v", d.kick)
	} else {
		d.hangUp()
	}
	if d := s.dial("alice", "phone", protocol.PlatformIOS, 0); d.kick != nil {
		t.Errorf("a reconnect after it: %+v", d.kick)
	}
	// Of oneself: the reply, then the close.
	must(t, desk.call(protocol.CmdSignOut, nil, nil))
	s.g.wait(t, "the close", func() bool { return desk.closed })
	if desk.kick != nil {
		t.Errorf("kicked: %+v", desk.kick)
	}
}

func TestSignal(t *testing.T) {
	s := startServer(t, nil, nil)
	a, a2, b1, b2 := s.online("alice"), s.online("alice"), s.online("bob"), s.online("bob")
	signal := func(d *device, m *protocol.Signal) {
		s.l.Handle(d.session.ID, []protocol.Frame{{Header: protocol.Header{Command: protocol.CmdSignal}, Body: protocol.AppendBody(nil, m)}})
	}
	signal(a, &protocol.Signal{Kind: 2, Target: "bob", Type: 1})
	signal(a, &protocol.Signal{Kind: 1, Target: "no:body", Type: 2})
	signal(a, &protocol.Signal{Kind: 1, Target: "bob", Type: 3, Data: []byte("typing"), Sender: "mallory"})
	for _, d := range []*device{b1, b2} {
		s.g.wait(t, "a signal", func() bool { return len(d.frames) > 0 })
		var m protocol.Signal
		must(t, protocol.Unmarshal(d.frames[0].Body, &m))
		if d.frames[0].Command != protocol.CmdSignal || d.frames[0].RequestID != 0 || m.Sender != "alice" || m.Type != 3 || string(m.Data) != "typing" {
			t.Errorf("got %+v %+v", d.frames[0].Header, m)
		}
	}
	// A flood is cut off; the session's requests are answered after it, and nothing came back.
	for range 10 * signalBurst {
		signal(a, &protocol.Signal{Kind: 1, Target: "bob", Type: 4})
	}
	must(t, a.call(protocol.CmdUnread, nil, nil))
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if n := len(b1.frames); n > 2*signalBurst {
		t.Errorf("%d signals passed", n)
	}
	if len(a.frames) != 1 || len(a2.frames) != 0 {
		t.Errorf("the sender's devices got %d and %d frames", len(a.frames), len(a2.frames))
	}
	if list, _, _ := s.store.Changed(t.Context(), "bob", 0); len(list) != 0 {
		t.Errorf("a signal was stored: %v", list)
	}
}
