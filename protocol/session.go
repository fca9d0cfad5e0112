package protocol

// Platform is what kind of device a client runs on.
type Platform uint8

// The platforms.
const (
	PlatformIOS     Platform = 1
	PlatformAndroid Platform = 2
	PlatformWindows Platform = 3
	PlatformMacOS   Platform = 4
	PlatformLinux   Platform = 5
	PlatformWeb     Platform = 6
	PlatformTablet  Platform = 7
	PlatformOther   Platform = 8
)

// Flags of HELLO.
const (
	// HelloSignedIn says that the person has just signed in: only then does a device displace another of its class.
	HelloSignedIn uint32 = 1 << 0
)

// Hello is the first frame of a client.
type Hello struct {
	Token    string
	DeviceID string
	Platform Platform
	SDK      string
	Caps     uint64
	Flags    uint32
}

func (m *Hello) encode(w *writer) {
	w.array(6)
	w.str(m.Token)
	w.str(m.DeviceID)
	w.uint(uint64(m.Platform))
	w.str(m.SDK)
	w.uint(m.Caps)
	w.uint(uint64(m.Flags))
}

func (m *Hello) decode(r *reader) {
	end := r.open("HELLO")
	m.Token = r.str("token", maxToken)
	m.DeviceID = r.str("device_id", MaxDeviceID)
	m.Platform = Platform(r.u8("platform"))
	m.SDK = r.str("sdk", maxText)
	m.Caps = r.u64("caps")
	m.Flags = r.u32("flags")
	r.close(end)
}

// Welcome answers HELLO.
type Welcome struct {
	UserID       string
	SessionID    string
	ServerTimeMS int64
	HeartbeatS   uint16
	MaxBody      uint32
	MaxInflight  uint16
	Caps         uint64
	MaxDown      uint32
	ResendS      uint32
	Epoch        string
}

func (m *Welcome) encode(w *writer) {
	w.array(10)
	w.str(m.UserID)
	w.str(m.SessionID)
	w.int(m.ServerTimeMS)
	w.uint(uint64(m.HeartbeatS))
	w.uint(uint64(m.MaxBody))
	w.uint(uint64(m.MaxInflight))
	w.uint(m.Caps)
	w.uint(uint64(m.MaxDown))
	w.uint(uint64(m.ResendS))
	w.str(m.Epoch)
}

func (m *Welcome) decode(r *reader) {
	end := r.open("WELCOME")
	m.UserID = r.str("user_id", MaxIDLen)
	m.SessionID = r.str("session_id", maxText)
	m.ServerTimeMS = r.i64("server_time_ms")
	m.HeartbeatS = r.u16("heartbeat_s")
	m.MaxBody = r.u32("max_body")
	m.MaxInflight = r.u16("max_inflight")
	m.Caps = r.u64("caps")
	m.MaxDown = r.u32("max_down")
	m.ResendS = r.u32("resend_s")
	m.Epoch = r.str("epoch", maxText)
	r.close(end)
}

// Pong answers PING.
type Pong struct {
	ServerTimeMS int64
}

func (m *Pong) encode(w *writer) {
	w.array(1)
	w.int(m.ServerTimeMS)
}

func (m *Pong) decode(r *reader) {
	end := r.open("PONG")
	m.ServerTimeMS = r.i64("server_time_ms")
	r.close(end)
}

// KickReason says why the server ends a session.
type KickReason uint16

// The reasons of KICK.
const (
	KickDisplaced    KickReason = 1 // signed in on another device of the class
	KickTokenRevoked KickReason = 2
	KickRemoved      KickReason = 3 // by the operator
	KickSlow         KickReason = 4 // slow consumer
	KickServerFull   KickReason = 5
	KickTokenExpired KickReason = 6
	KickSignedOut    KickReason = 7 // by another device of yours
	KickAbuse        KickReason = 8
)

// MayReconnect tells whether a client reconnects by itself after this reason.
func (k KickReason) MayReconnect() bool {
	switch k {
	case KickSlow, KickServerFull, KickTokenExpired:
		return true
	}
	return k >= 100
}

// Kick tells the client why the server closes its connection. DeviceID, Platform and TimeMS name the other device where there is one.
type Kick struct {
	Reason       KickReason
	Message      string
	RetryAfterMS uint32
	DeviceID     string
	Platform     Platform
	TimeMS       int64
}

func (m *Kick) encode(w *writer) {
	w.array(6)
	w.uint(uint64(m.Reason))
	w.text(m.Message)
	w.uint(uint64(m.RetryAfterMS))
	w.str(m.DeviceID)
	w.uint(uint64(m.Platform))
	w.int(m.TimeMS)
}

func (m *Kick) decode(r *reader) {
	end := r.open("KICK")
	m.Reason = KickReason(r.u16("reason"))
	m.Message = r.str("message", maxText)
	m.RetryAfterMS = r.u32("retry_after_ms")
	m.DeviceID = r.str("device_id", MaxDeviceID)
	m.Platform = Platform(r.u8("platform"))
	m.TimeMS = r.i64("time_ms")
	r.close(end)
}

// GoAway asks the client to dial anew after a random delay of up to ReconnectWithinMS.
type GoAway struct {
	ReconnectWithinMS uint32
}

func (m *GoAway) encode(w *writer) {
	w.array(1)
	w.uint(uint64(m.ReconnectWithinMS))
}

func (m *GoAway) decode(r *reader) {
	end := r.open("GOAWAY")
	m.ReconnectWithinMS = r.u32("reconnect_within_ms")
	r.close(end)
}

// SignOut ends a device's right to offline pushes. An empty DeviceID is the device that asks.
type SignOut struct {
	DeviceID string
}

func (m *SignOut) encode(w *writer) {
	w.array(1)
	w.str(m.DeviceID)
}

func (m *SignOut) decode(r *reader) {
	end := r.open("SIGN_OUT")
	m.DeviceID = r.str("device_id", MaxDeviceID)
	r.close(end)
}
