package logic

import (
	"github.com/parley-im/parley/protocol"
)

// signOut notes that a device gets no offline push any more, and ends its session: of the device that asks after the reply, of another
// one with KICK 7. Until it says that the person has signed in again, an automatic reconnect of it is refused.
func (l *Logic) signOut(s *session, j job) error {
	var q protocol.SignOut
	if err := protocol.UnmarshalAlias(j.body, &q); err != nil {
		return err
	}
	device := q.DeviceID
	if device == "" {
		device = s.DeviceID
	}
	if err := l.o.Directory.SetSignedOut(l.ctx, s.User, string([]byte(device)), true); err != nil {
		return err
	}
	l.m.requests.WithLabelValues(j.command.String(), "ok").Inc()
	l.deliver(protocol.Delivery{
		To: []protocol.SessionID{s.ID}, Frames: protocol.AppendFrame(nil, protocol.CmdSignedOut, j.requestID, nil),
		Replies: 1, Close: device == s.DeviceID,
	})
	if device != s.DeviceID {
		l.kickDevice(s.User, device)
	}
	return nil
}

func (l *Logic) kickDevice(user, device string) {
	routes, err := l.o.Routes.Online(l.ctx, []string{user}, nil)
	if err != nil {
		l.m.unrouted.Inc()
		return
	}
	for _, r := range routes[0] {
		if r.DeviceID == device {
			l.o.Gateway.Kick(r.Session, l.kick(protocol.KickSignedOut, "signed out by another device of yours"))
		}
	}
}

// forget removes the route of a session that is gone.
func (l *Logic) forget(s *session) {
	if err := l.o.Routes.Remove(l.ctx, l.route(s.Session)); err != nil {
		l.log.Error("route not removed, it expires", "user", s.User, "err", err)
	}
}
