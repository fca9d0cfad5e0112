package protocol

// WatchPresence starts or stops watching whether users are online.
type WatchPresence struct {
	UserIDs []string
	On      bool
}

func (m *WatchPresence) encode(w *writer) {
	w.array(2)
	w.strs(m.UserIDs)
	w.bool(m.On)
}

func (m *WatchPresence) decode(r *reader) {
	end := r.open("WATCH_PRESENCE")
	m.UserIDs = r.strs("user_ids", MaxArray, MaxIDLen)
	m.On = r.bool("on")
	r.close(end)
}

// Presence is whether a user is online.
type Presence struct {
	User       string
	Online     bool
	LastSeenMS int64
}

// WatchPresenceReply has the users' states now.
type WatchPresenceReply struct {
	States []Presence
}

func (m *WatchPresenceReply) encode(w *writer) {
	w.array(1)
	w.array(len(m.States))
	for _, s := range m.States {
		w.array(3)
		w.str(s.User)
		w.bool(s.Online)
		w.int(s.LastSeenMS)
	}
}

func (m *WatchPresenceReply) decode(r *reader) {
	end := r.open("WATCH_PRESENCE reply")
	_, inner := r.list("states", MaxArray)
	for r.err == nil && r.left > 0 {
		one := r.open("state")
		m.States = append(m.States, Presence{r.str("user", MaxIDLen), r.bool("online"), r.i64("last_seen_ms")})
		r.close(one)
	}
	r.close(inner)
	r.close(end)
}

// GetProfiles asks for users' profiles.
type GetProfiles struct {
	UserIDs []string
}

func (m *GetProfiles) encode(w *writer) {
	w.array(1)
	w.strs(m.UserIDs)
}

func (m *GetProfiles) decode(r *reader) {
	end := r.open("GET_PROFILES")
	m.UserIDs = r.strs("user_ids", MaxArray, MaxIDLen)
	r.close(end)
}

// Profile is what a user shows of themselves.
type Profile struct {
	UserID   string
	Nickname string
	Avatar   string
	Extra    []byte
	Version  uint64
}

// GetProfilesReply has the profiles that there are.
type GetProfilesReply struct {
	Profiles []Profile
}

func (m *GetProfilesReply) encode(w *writer) {
	w.array(1)
	w.array(len(m.Profiles))
	for i := range m.Profiles {
		p := &m.Profiles[i]
		w.array(5)
		w.str(p.UserID)
		w.str(p.Nickname)
		w.str(p.Avatar)
		w.bin(p.Extra)
		w.uint(p.Version)
	}
}

func (m *GetProfilesReply) decode(r *reader) {
	end := r.open("GET_PROFILES reply")
	_, inner := r.list("profiles", MaxArray)
	for r.err == nil && r.left > 0 {
		one := r.open("profile")
		m.Profiles = append(m.Profiles, Profile{
			UserID: r.str("user_id", MaxIDLen), Nickname: r.str("nickname", maxText), Avatar: r.str("avatar", maxText),
			Extra: r.bytes("extra", maxBin), Version: r.u64("version"),
		})
		r.close(one)
	}
	r.close(inner)
	r.close(end)
}

// Bits of SetProfile's mask.
const (
	MaskNickname uint32 = 1 << 0
	MaskAvatar   uint32 = 1 << 1
	MaskExtra    uint32 = 1 << 2
)

// SetProfile changes one's own profile: the fields whose bits are set in Mask.
type SetProfile struct {
	Mask     uint32
	Nickname string
	Avatar   string
	Extra    []byte
}

func (m *SetProfile) encode(w *writer) {
	w.array(4)
	w.uint(uint64(m.Mask))
	w.str(m.Nickname)
	w.str(m.Avatar)
	w.bin(m.Extra)
}

func (m *SetProfile) decode(r *reader) {
	end := r.open("SET_PROFILE")
	m.Mask = r.u32("mask")
	m.Nickname = r.str("nickname", maxText)
	m.Avatar = r.str("avatar", maxText)
	m.Extra = r.bytes("extra", maxBin)
	r.close(end)
}

// SetProfileReply has the version of the profile now.
type SetProfileReply struct {
	Version uint64
}

func (m *SetProfileReply) encode(w *writer) {
	w.array(1)
	w.uint(m.Version)
}

func (m *SetProfileReply) decode(r *reader) {
	end := r.open("SET_PROFILE reply")
	m.Version = r.u64("version")
	r.close(end)
}
