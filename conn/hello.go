package conn

import (
	"crypto/rand"
	"encoding/base64"
	"runtime"
	"time"

	"github.com/parley-im/parley/protocol"
)

// signIn is a HELLO that waits to be checked.
type signIn struct {
	s     *session
	hello protocol.Hello
}

// hello reads the first frame. What it says is checked elsewhere: signatures cost more than a loop has time for. It returns how many
// bytes it is done with.
func (l *loop) hello(s *session, buf []byte) (used int) {
	f, n, err := protocol.Split(buf, protocol.HandshakeMaxBody)
	if err == nil && n == 0 {
		s.need = missing(buf)
		return 0
	}
	j := signIn{s: s}
	if err == nil {
		err = j.decode(f)
	}
	if err != nil {
		l.fail(s, f.RequestID, err, reasonRefused)
		return len(buf)
	}
	s.need, s.helloID = 0, f.RequestID
	s.mu.Lock()
	s.state = stateSigning
	s.mu.Unlock()
	select {
	case l.g.signIns <- j:
		return n
	default:
		l.fail(s, f.RequestID, &protocol.Error{
			Code: protocol.CodeUnavailable, Message: "too many sign-ins at once", RetryAfterMS: retryAfterMS}, reasonRefused)
		return len(buf)
	}
}

func (j *signIn) decode(f protocol.Frame) error {
	switch {
	case f.Command != protocol.CmdHello:
		return &protocol.Error{Code: protocol.CodeUnauthenticated, Message: "the first frame is not HELLO"}
	case f.RequestID == 0:
		return &protocol.Error{Code: protocol.CodeBadFrame, Message: "request id is 0"}
	}
	if err := protocol.Unmarshal(f.Body, &j.hello); err != nil {
		return err
	}
	switch h := &j.hello; {
	case len(h.DeviceID) == 0 || len(h.DeviceID) > protocol.MaxDeviceID:
		return &protocol.Error{Code: protocol.CodeInvalidArgument, Message: "device_id must have 1 to 128 bytes"}
	case h.Platform < protocol.PlatformIOS || h.Platform > protocol.PlatformOther:
		return &protocol.Error{Code: protocol.CodeInvalidArgument, Message: "platform must be 1 to 8"}
	}
	return nil
}

// signInWorkers is how many sign-ins are checked at once: the logic tier may wait for its store in Open.
func signInWorkers() int { return max(8, 4*runtime.NumCPU()) }

func (g *Gateway) signInWorker() {
	defer g.workers.Done()
	for j := range g.signIns {
		g.signIn(j)
	}
}

// signIn checks the token and hands the session to logic, which answers by Welcome or Kick.
func (g *Gateway) signIn(j signIn) {
	defer func() {
		if v := recover(); v != nil {
			g.panicked(v, j.s)
			g.refuse(j.s, &protocol.Error{Code: protocol.CodeInternal, Message: "internal error", RetryAfterMS: retryAfterMS}, reasonPanic)
		}
	}()
	user, expires, err := g.o.Verifier.Verify(j.hello.Token, j.hello.DeviceID)
	if err != nil {
		g.refuse(j.s, err, reasonRefused)
		return
	}
	if j.s.open(user, unixSeconds(expires), &j.hello) {
		defer g.opened(j.s)
		g.logic.Open(&j.s.Session)
	}
}

// open fills in what logic learns of the session. It returns false when the connection is gone meanwhile.
func (s *session) open(user string, expires uint32, h *protocol.Hello) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateSigning {
		return false
	}
	var random [16]byte
	rand.Read(random[:]) // never fails
	const keyLen = 22
	text := make([]byte, 0, keyLen+len(user)+len(h.DeviceID)) // one piece of memory for all three
	text = base64.RawURLEncoding.AppendEncode(text, random[:])
	text = append(append(text, user...), h.DeviceID...)
	all := string(text)
	s.Key, s.User, s.DeviceID = all[:keyLen], all[keyLen:keyLen+len(user)], all[keyLen+len(user):]
	s.Platform, s.Flags, s.expires = h.Platform, h.Flags, expires
	s.opening, s.opened = true, true
	return true
}

// opened notes that Logic.Open returned. If the connection was closed while it ran, it is for us to say so.
func (g *Gateway) opened(s *session) {
	s.mu.Lock()
	s.opening = false
	tell := s.state == stateClosed
	if tell {
		s.opened = false
	}
	s.mu.Unlock()
	if tell {
		g.logic.Closed(s.ID)
	}
}

// refuse ends a session that is signing in, from any goroutine.
func (g *Gateway) refuse(s *session, err error, why reason) {
	s.l.fail(s, s.helloID, err, why)
	s.mu.Lock()
	add := s.state == stateClosing && s.touch()
	s.mu.Unlock()
	if add {
		s.l.add(s)
	}
}

// Welcome lets a session in. The logic tier gives Epoch and ResendS; the gateway fills in the rest. What is delivered from now on
// reaches the client, after WELCOME. It does nothing when the session is gone, or in already.
func (g *Gateway) Welcome(id protocol.SessionID, w protocol.Welcome) {
	s := g.table.get(id)
	if s == nil {
		return
	}
	w.UserID, w.SessionID = s.User, s.Key
	w.ServerTimeMS = time.Now().UnixMilli()
	w.HeartbeatS = uint16(max(1, g.o.Heartbeat/time.Second))
	w.MaxBody, w.MaxInflight, w.MaxDown, w.Caps = uint32(g.o.MaxBody), uint16(g.o.MaxInflight), uint32(g.o.MaxDown), 0
	frame := protocol.AppendFrame(nil, protocol.CmdWelcome, s.helloID, &w)
	if g.draining.Load() {
		frame = append(frame, g.goAway()...)
	}
	s.mu.Lock()
	if s.state != stateSigning || s.Key == "" {
		s.mu.Unlock()
		return
	}
	s.state, s.resume, s.welcomed = stateOpen, true, true
	s.queue(frame)
	add := s.touch()
	s.mu.Unlock()
	g.metrics.sessions.Inc()
	if add {
		s.l.add(s)
	}
}
