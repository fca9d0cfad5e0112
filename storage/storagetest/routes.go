package storagetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// TestRoutes is the suite of storage.Routes. open makes an empty one in which a user has at most maxPerUser routes.
func TestRoutes(t *testing.T, open func(tb testing.TB, maxPerUser int) storage.Routes) {
	for _, sub := range []struct {
		name string
		max  int
		test func(*testing.T, storage.Routes)
	}{
		{"Register", 100, testRegister},
		{"SameDevice", 100, testSameDevice},
		{"SameSession", 100, testSameSession},
		{"Class", 100, testClass},
		{"TakeOver", 100, testTakeOver},
		{"DeviceChangesClass", 100, testDeviceChangesClass},
		{"Limit", 3, testLimit},
		{"Remove", 100, testRemove},
		{"RemoveOldSession", 100, testRemoveOldSession},
		{"OnlineNeverChanges", 100, testOnlineNeverChanges},
		{"OneOfAClass", 100, testOneOfAClass},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, open(t, sub.max)) })
	}
}

func route(user, device, class string, session protocol.SessionID) storage.Route {
	return storage.Route{
		User: user, DeviceID: device, Platform: protocol.PlatformIOS, Class: class, Gateway: "gw1", Session: session, SinceMS: int64(1000 + session),
	}
}

// register registers and checks what is said of it, and that what is online fits.
func register(t *testing.T, s storage.Routes, r storage.Route, takeOver bool, want storage.Registration) {
	t.Helper()
	before := online(t, s, r.User)
	got, err := s.Register(t.Context(), r, takeOver)
	if err != nil {
		t.Fatal(err)
	}
	if got.Admitted != want.Admitted || got.Holder != want.Holder || got.TooMany != want.TooMany || !sameRoutes(got.Displaced, want.Displaced) {
		t.Fatalf("register %+v: %+v, want %+v", r, got, want)
	}
	after := slices.DeleteFunc(slices.Clone(before), func(o storage.Route) bool {
		return slices.Contains(want.Displaced, o) || o.Session == r.Session
	})
	if want.Admitted {
		after = append(after, r)
	}
	wantOnline(t, s, r.User, after...)
}

func online(t *testing.T, s storage.Routes, user string) []storage.Route {
	t.Helper()
	got, err := s.Online(t.Context(), []string{user}, nil)
	if err != nil || len(got) != 1 {
		t.Fatalf("online %s: %v, %v", user, got, err)
	}
	return got[0]
}

func wantOnline(t *testing.T, s storage.Routes, user string, want ...storage.Route) {
	t.Helper()
	if got := online(t, s, user); !sameRoutes(got, want) {
		t.Fatalf("%s is online with %+v, want %+v", user, got, want)
	}
}

// sameRoutes compares without regard to order.
func sameRoutes(a, b []storage.Route) bool {
	order := func(x, y storage.Route) int { return int(x.Session) - int(y.Session) }
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	return slices.Equal(a, b)
}

var admitted = storage.Registration{Admitted: true}

func displaced(r ...storage.Route) storage.Registration {
	return storage.Registration{Admitted: true, Displaced: r}
}

func testRegister(t *testing.T, s storage.Routes) {
	a1, a2, b1 := route("alice", "phone", "mobile", 1), route("alice", "pc", "desktop", 2), route("bob", "phone", "mobile", 3)
	a3, a4 := route("alice", "x", "", 4), route("alice", "y", "", 5)
	for _, r := range []storage.Route{a1, a2, b1, a3, a4} {
		register(t, s, r, false, admitted)
	}
	out := [][]storage.Route{{b1}}
	out, err := s.Online(t.Context(), []string{"bob", "nobody", "alice", "bob"}, out)
	if err != nil || len(out) != 5 {
		t.Fatalf("online: %v, %v", out, err)
	}
	for i, want := range [][]storage.Route{{b1}, {b1}, nil, {a1, a2, a3, a4}, {b1}} {
		if !sameRoutes(out[i], want) {
			t.Fatalf("online %d: %+v, want %+v", i, out[i], want)
		}
	}
}

func testSameDevice(t *testing.T, s storage.Routes) {
	for _, class := range []string{"mobile", ""} {
		user := "user-of-" + class
		first, second, third := route(user, "phone", class, 1), route(user, "phone", class, 2), route(user, "phone", class, 3)
		third.Gateway = "gw2"
		register(t, s, first, false, admitted)
		register(t, s, second, false, displaced(first))
		register(t, s, third, true, displaced(second))
	}
}

// testSameSession: a session that registers again, as after routes were lost, does not displace itself.
func testSameSession(t *testing.T, s storage.Routes) {
	r := route("alice", "phone", "mobile", 1)
	register(t, s, r, false, admitted)
	register(t, s, r, false, admitted)
	register(t, s, r, true, admitted)
}

func testClass(t *testing.T, s storage.Routes) {
	phone, tablet := route("alice", "phone", "mobile", 1), route("alice", "tablet", "mobile", 2)
	register(t, s, phone, false, admitted)
	register(t, s, tablet, false, storage.Registration{Holder: phone})
	register(t, s, route("bob", "tablet", "mobile", 3), false, admitted)
	if err := s.Remove(t.Context(), phone); err != nil {
		t.Fatal(err)
	}
	register(t, s, tablet, false, admitted)
}

func testTakeOver(t *testing.T, s storage.Routes) {
	phone, tablet, pc := route("alice", "phone", "mobile", 1), route("alice", "tablet", "mobile", 2), route("alice", "pc", "desktop", 3)
	free := route("alice", "free", "", 4)
	for _, r := range []storage.Route{phone, pc, free} {
		register(t, s, r, true, admitted)
	}
	register(t, s, tablet, true, displaced(phone))
	register(t, s, phone, false, storage.Registration{Holder: tablet})
	register(t, s, phone, true, displaced(tablet))
	register(t, s, route("alice", "free2", "", 5), true, admitted) // "" is no class
}

// testDeviceChangesClass: the device's own older route goes in any case, the holder of the new class only with takeOver.
func testDeviceChangesClass(t *testing.T, s storage.Routes) {
	pc, phone := route("alice", "pc", "desktop", 1), route("alice", "phone", "mobile", 2)
	register(t, s, pc, false, admitted)
	register(t, s, phone, false, admitted)
	again := route("alice", "pc", "mobile", 3)
	register(t, s, again, false, storage.Registration{Displaced: []storage.Route{pc}, Holder: phone})
	register(t, s, pc, false, admitted)
	register(t, s, again, true, displaced(pc, phone))
}

func testLimit(t *testing.T, s storage.Routes) {
	var routes []storage.Route
	for i := range 3 {
		r := route("alice", fmt.Sprint("device", i), "", protocol.SessionID(1+i))
		register(t, s, r, false, admitted)
		routes = append(routes, r)
	}
	fourth := route("alice", "device3", "", 9)
	register(t, s, fourth, false, storage.Registration{TooMany: true})
	register(t, s, fourth, true, storage.Registration{TooMany: true})
	register(t, s, route("alice", "device1", "", 10), false, displaced(routes[1])) // its own place
	register(t, s, route("bob", "device3", "", 11), false, admitted)
	if err := s.Remove(t.Context(), routes[0]); err != nil {
		t.Fatal(err)
	}
	register(t, s, fourth, false, admitted)
}

func testRemove(t *testing.T, s storage.Routes) {
	a, b := route("alice", "phone", "mobile", 1), route("alice", "pc", "desktop", 2)
	register(t, s, a, false, admitted)
	register(t, s, b, false, admitted)
	for range 2 { // removing what is gone is nothing
		if err := s.Remove(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		wantOnline(t, s, "alice", b)
	}
	if err := s.Remove(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	wantOnline(t, s, "alice")
	register(t, s, a, false, admitted)
}

// testRemoveOldSession: the end of a session that was displaced comes late, and does not take the new one along; nor does that
// of a session with the same number at another gateway.
func testRemoveOldSession(t *testing.T, s storage.Routes) {
	first, second := route("alice", "phone", "mobile", 1), route("alice", "phone", "mobile", 2)
	register(t, s, first, false, admitted)
	register(t, s, second, false, displaced(first))
	elsewhere := second
	elsewhere.Gateway = "gw2"
	for _, r := range []storage.Route{first, elsewhere} {
		if err := s.Remove(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		wantOnline(t, s, "alice", second)
	}
}

// testOnlineNeverChanges: a slice that Online returned is as it was, also while routes come and go.
func testOnlineNeverChanges(t *testing.T, s storage.Routes) {
	const users, steps = 4, 300
	name := func(i int) string { return fmt.Sprint("user", i) }
	var changing, looking sync.WaitGroup
	done := make(chan struct{})
	for i := range users {
		changing.Go(func() {
			r := seeded(uint64(500 + i))
			for n := range steps {
				route := route(name(i), fmt.Sprint("device", r.IntN(6)), []string{"", "mobile", "desktop"}[r.IntN(3)], protocol.SessionID(1+n))
				var err error
				if r.IntN(3) == 0 {
					route.Session = protocol.SessionID(1 + r.IntN(n+1))
					err = s.Remove(context.Background(), route)
				} else {
					_, err = s.Register(context.Background(), route, r.IntN(2) == 0)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		looking.Go(func() {
			var got, copies [][]storage.Route
			for !isClosed(done) {
				var err error
				if got, err = s.Online(context.Background(), []string{name(0), name(1), name(2), name(3)}, got[:0]); err != nil {
					t.Error(err)
					return
				}
				copies = copies[:0]
				for _, routes := range got {
					copies = append(copies, slices.Clone(routes))
				}
				for i := range got {
					checkUser(t, name(i), got[i])
					if !slices.Equal(got[i], copies[i]) {
						t.Errorf("%+v became %+v", copies[i], got[i])
					}
				}
			}
		})
	}
	changing.Wait()
	close(done)
	looking.Wait()
}

// checkUser: routes of one user, no device twice, no class twice.
func checkUser(t *testing.T, user string, routes []storage.Route) {
	seen := make(map[string]bool)
	for _, r := range routes {
		device, class := "device "+r.DeviceID, "class "+r.Class
		if r.User != user || seen[device] || r.Class != "" && seen[class] {
			t.Errorf("%s is online with %+v", user, routes)
		}
		seen[device], seen[class] = true, true
	}
}

// testOneOfAClass: many devices of a class at once, without the right to take over: exactly one is let in.
func testOneOfAClass(t *testing.T, s storage.Routes) {
	for round := range 20 {
		user := fmt.Sprint("user", round)
		var mu sync.Mutex
		var in []storage.Route
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				r := route(user, fmt.Sprint("device", i), "mobile", protocol.SessionID(1+i))
				reg, err := s.Register(context.Background(), r, false)
				if err != nil || len(reg.Displaced) > 0 {
					t.Errorf("register: %+v, %v", reg, err)
				}
				if reg.Admitted {
					mu.Lock()
					in = append(in, r)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(in) != 1 {
			t.Fatalf("%d devices were let in", len(in))
		}
		wantOnline(t, s, user, in...)
	}
}
