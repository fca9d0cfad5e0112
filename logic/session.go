package logic

import (
	"sync"

	"golang.org/x/time/rate"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// session is a welcomed connection, as the logic tier knows it.
type session struct {
	*protocol.Session // shared with the gateway, never changed

	// The last target that was sent to, and its conversation: a device mostly goes on with the same. Touched only in Handle.
	target, conversation string

	signals *rate.Limiter // made with the first SIGNAL; touched only in Handle

	mu        sync.Mutex
	mailbox   []job // requests that wait for a worker; nil when there are none
	mailBytes int   // of their bodies
	queued    bool  // in the pool's queue, or with a worker
}

// sessionTable finds sessions by id. Look-ups come from event loops, so it is split.
type sessionTable [32]struct {
	sync.RWMutex
	m map[protocol.SessionID]*session
}

func (t *sessionTable) get(id protocol.SessionID) *session {
	part := &t[id%protocol.SessionID(len(t))]
	part.RLock()
	s := part.m[id]
	part.RUnlock()
	return s
}

func (t *sessionTable) put(s *session) {
	part := &t[s.ID%protocol.SessionID(len(t))]
	part.Lock()
	if part.m == nil {
		part.m = make(map[protocol.SessionID]*session)
	}
	part.m[s.ID] = s
	part.Unlock()
}

func (t *sessionTable) take(id protocol.SessionID) *session {
	part := &t[id%protocol.SessionID(len(t))]
	part.Lock()
	s := part.m[id]
	delete(part.m, id)
	part.Unlock()
	return s
}

// Open registers a device whose token holds, and lets it in: WELCOME leaves after the route is registered, so that whatever is stored
// from then on is pushed to it. It may block on the store.
func (l *Logic) Open(p *protocol.Session) {
	if err := l.open(p); err != nil {
		l.log.Error("session not opened", "user", p.User, "err", err)
		l.o.Gateway.Kick(p.ID, protocol.Kick{Reason: protocol.KickServerFull, Message: "try again", RetryAfterMS: 1000})
	}
}

func (l *Logic) open(p *protocol.Session) error {
	out, err := l.o.Directory.SignedOut(l.ctx, p.User, p.DeviceID)
	if err != nil {
		return err
	}
	if out && !p.SignedIn() {
		l.o.Gateway.Kick(p.ID, l.kick(protocol.KickSignedOut, "this device was signed out"))
		return nil
	}
	if out {
		if err := l.o.Directory.SetSignedOut(l.ctx, p.User, p.DeviceID, false); err != nil {
			return err
		}
	}
	reg, err := l.o.Routes.Register(l.ctx, l.route(p), p.SignedIn())
	if err != nil {
		return err
	}
	for _, old := range reg.Displaced {
		l.o.Gateway.Kick(old.Session, l.displaced(p.DeviceID, p.Platform))
	}
	switch {
	case reg.TooMany:
		l.o.Gateway.Kick(p.ID, l.kick(protocol.KickDisplaced, "too many devices of this user are online"))
	case !reg.Admitted:
		l.o.Gateway.Kick(p.ID, l.displaced(reg.Holder.DeviceID, reg.Holder.Platform))
	default:
		return l.welcome(p)
	}
	return nil
}

// welcome lets a device in whose route is registered. A SIGN_OUT of it that came meanwhile found no route to end, so that is looked at again.
func (l *Logic) welcome(p *protocol.Session) error {
	l.sessions.put(&session{Session: p})
	out, err := l.o.Directory.SignedOut(l.ctx, p.User, p.DeviceID)
	switch {
	case err != nil:
		return err
	case out:
		l.o.Gateway.Kick(p.ID, l.kick(protocol.KickSignedOut, "signed out by another device of yours"))
	default:
		l.o.Gateway.Welcome(p.ID, protocol.Welcome{Epoch: l.epoch, ResendS: uint32(repeatWindowMS / 1000)})
	}
	return nil
}

func (l *Logic) kick(reason protocol.KickReason, message string) protocol.Kick {
	return protocol.Kick{Reason: reason, Message: message, TimeMS: l.o.Now().UnixMilli()}
}

func (l *Logic) displaced(device string, platform protocol.Platform) protocol.Kick {
	k := l.kick(protocol.KickDisplaced, "signed in on another device")
	k.DeviceID, k.Platform = device, platform
	return k
}

// Closed forgets a session. The gateway calls it once for every Open; the session may never have been let in. It does not block: the
// route is removed by a worker, after the requests that the session still has in its mailbox.
func (l *Logic) Closed(id protocol.SessionID) {
	if s := l.sessions.take(id); s != nil {
		l.pool.submit(s, job{command: jobClosed})
	}
}

func (l *Logic) route(p *protocol.Session) storage.Route {
	return storage.Route{
		User: p.User, DeviceID: p.DeviceID, Platform: p.Platform, Class: classOf(p.Platform),
		Gateway: l.o.GatewayName, Session: p.ID, SinceMS: l.o.Now().UnixMilli(),
	}
}

// classOf is the class of which a user has one device online at a time. Other devices have no such limit, only that on
// the number of devices.
func classOf(p protocol.Platform) string {
	switch p {
	case protocol.PlatformIOS, protocol.PlatformAndroid:
		return "mobile"
	case protocol.PlatformWindows, protocol.PlatformMacOS, protocol.PlatformLinux:
		return "desktop"
	case protocol.PlatformWeb:
		return "web"
	case protocol.PlatformTablet:
		return "tablet"
	}
	return ""
}
