package protocol

// EventType says what an Event is about.
type EventType uint8

// The types of events.
const (
	EventMessageChanged EventType = 1 // revoked, edited, reacted to
	EventRead           EventType = 2 // up to Seq by User; for one's own, Data is a ReadData
	EventDeleted        EventType = 3 // for this user; Seq is the highest, Data is a DeletedData
	EventCleared        EventType = 4 // up to Seq
	EventSetting        EventType = 5
	EventGroup          EventType = 6
	EventPresence       EventType = 7 // of User; Data is a PresenceData
	EventResync         EventType = 8 // Data is a ResyncData
)

// Event is a hint to devices that are online now; whatever it says can also be learnt from SYNC, CHANGES and PULL.
type Event struct {
	Type           EventType
	ConversationID string
	Seq            uint64
	User           string
	TimeMS         int64
	Data           []byte
	ChangeSeq      uint64
}

func (m *Event) encode(w *writer) {
	w.array(7)
	w.uint(uint64(m.Type))
	w.str(m.ConversationID)
	w.uint(m.Seq)
	w.str(m.User)
	w.int(m.TimeMS)
	w.bin(m.Data)
	w.uint(m.ChangeSeq)
}

func (m *Event) decode(r *reader) {
	end := r.open("event")
	m.Type = EventType(r.u8("type"))
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Seq = r.u64("seq")
	m.User = r.str("user", MaxIDLen)
	m.TimeMS = r.i64("time_ms")
	m.Data = r.bytes("data", maxBin)
	m.ChangeSeq = r.u64("change_seq")
	r.close(end)
}

// Events is the body of an EVENT frame.
type Events struct {
	Events []Event
}

func (m *Events) encode(w *writer) {
	w.array(1)
	w.array(len(m.Events))
	for i := range m.Events {
		m.Events[i].encode(w)
	}
}

func (m *Events) decode(r *reader) {
	end := r.open("EVENT")
	_, inner := r.list("events", MaxArray)
	for r.err == nil && r.left > 0 {
		var e Event
		e.decode(r)
		m.Events = append(m.Events, e)
	}
	r.close(inner)
	r.close(end)
}

// ReadData is the data of an EventRead about one's own watermark.
type ReadData struct {
	Unread uint32
}

func (m *ReadData) encode(w *writer) {
	w.array(1)
	w.uint(uint64(m.Unread))
}

func (m *ReadData) decode(r *reader) {
	end := r.open("read data")
	m.Unread = r.u32("unread")
	r.close(end)
}

// ResyncData is the data of an EventResync: SYNC after a random delay of up to MaxDelayMS.
type ResyncData struct {
	MaxDelayMS uint32
}

func (m *ResyncData) encode(w *writer) {
	w.array(1)
	w.uint(uint64(m.MaxDelayMS))
}

func (m *ResyncData) decode(r *reader) {
	end := r.open("resync data")
	m.MaxDelayMS = r.u32("max_delay_ms")
	r.close(end)
}

// PresenceData is the data of an EventPresence.
type PresenceData struct {
	Online     bool
	LastSeenMS int64
}

func (m *PresenceData) encode(w *writer) {
	w.array(2)
	w.bool(m.Online)
	w.int(m.LastSeenMS)
}

func (m *PresenceData) decode(r *reader) {
	end := r.open("presence data")
	m.Online = r.bool("online")
	m.LastSeenMS = r.i64("last_seen_ms")
	r.close(end)
}
