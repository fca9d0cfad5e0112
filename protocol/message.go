package protocol

// Flags of SEND and of Message.
const (
	// FlagNoUnread says that the message does not count as unread.
	FlagNoUnread uint32 = 1 << 0
	// FlagNoPush says that no offline push is due for the message.
	FlagNoPush uint32 = 1 << 1
	// SendFlags are the flags that a client may set.
	SendFlags = FlagNoUnread | FlagNoPush
)

// Content types. 100 to 999 are the app's own, 1000 and up the server's.
const (
	ContentText        uint16 = 1
	ContentImage       uint16 = 2
	ContentVoice       uint16 = 3
	ContentVideo       uint16 = 4
	ContentFile        uint16 = 5
	ContentLocation    uint16 = 6
	ContentQuote       uint16 = 7
	ContentApp         uint16 = 100
	ContentServer      uint16 = 1000
	ContentGroupChange uint16 = 1002
	ContentOwnState    uint16 = 1003
)

// MentionAll in a message's mentions stands for every member.
const MentionAll = "*"

// Send asks the server to accept a message.
type Send struct {
	ClientMsgID string
	Kind        ConversationKind
	Target      string
	ContentType uint16
	Content     []byte
	Flags       uint32
	Mentions    []string
}

func (m *Send) encode(w *writer) {
	w.array(7)
	w.str(m.ClientMsgID)
	w.uint(uint64(m.Kind))
	w.str(m.Target)
	w.uint(uint64(m.ContentType))
	w.bin(m.Content)
	w.uint(uint64(m.Flags))
	w.strs(m.Mentions)
}

func (m *Send) decode(r *reader) {
	end := r.open("SEND")
	m.ClientMsgID = r.str("client_msg_id", MaxClientMsgID)
	m.Kind = ConversationKind(r.u8("kind"))
	m.Target = r.str("target", MaxIDLen)
	m.ContentType = r.u16("content_type")
	m.Content = r.bytes("content", maxBin)
	m.Flags = r.u32("flags")
	m.Mentions = r.strs("mentions", MaxArray, MaxIDLen)
	r.close(end)
}

// SendAck says that the message is durable. Seq is 0 where it is not known yet.
type SendAck struct {
	ClientMsgID    string
	ServerMsgID    string
	ConversationID string
	SendTimeMS     int64
	Seq            uint64
}

func (m *SendAck) encode(w *writer) {
	w.array(5)
	w.str(m.ClientMsgID)
	w.str(m.ServerMsgID)
	w.str(m.ConversationID)
	w.int(m.SendTimeMS)
	w.uint(m.Seq)
}

func (m *SendAck) decode(r *reader) {
	end := r.open("SEND_ACK")
	m.ClientMsgID = r.str("client_msg_id", MaxClientMsgID)
	m.ServerMsgID = r.str("server_msg_id", maxText)
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.SendTimeMS = r.i64("send_time_ms")
	m.Seq = r.u64("seq")
	r.close(end)
}

// Status is what has become of a message.
type Status uint8

// The states of a message.
const (
	StatusNormal  Status = 0
	StatusRevoked Status = 1 // content empty, Revoke set
	StatusGone    Status = 2 // nothing is, or ever will be, at this seq
	StatusHidden  Status = 3 // deleted by this viewer
)

// Role of the user who revoked a message.
type Role uint8

// The roles.
const (
	RoleSender   Role = 1
	RoleAdmin    Role = 2
	RoleOwner    Role = 3
	RoleOperator Role = 4
)

// Revoke says who took a message back, and when.
type Revoke struct {
	User   string
	Role   Role
	TimeMS int64
}

// Message is a message, as one viewer sees it. It is the same value from the decoding of SEND to the bucket and to PUSH.
type Message struct {
	ConversationID string
	Seq            uint64
	ServerMsgID    string
	ClientMsgID    string
	Sender         string
	ContentType    uint16
	Content        []byte
	SendTimeMS     int64
	Status         Status
	Revoke         *Revoke
	IsRead         bool
	Flags          uint32
	Mentions       []string
	ChangeSeq      uint64
	Run            uint32 // how many seqs a gone or hidden entry stands for
	EditMS         int64  // when its content was last changed; 0: never
	Reactions      []Reaction
}

// Reaction is one kind of reaction to a message.
type Reaction struct {
	Reaction string
	Count    uint32
	Mine     bool     // the viewer reacted so
	Users    []string // some of those who did
}

// messageFields is how many fields a message has, messageFields-2 when it was neither edited nor reacted to: the last two are then left
// out, as nearly always.
const messageFields = 17

func (m *Message) fields() int {
	if m.EditMS == 0 && len(m.Reactions) == 0 {
		return messageFields - 2
	}
	return messageFields
}

func (m *Message) encode(w *writer) {
	n := m.fields()
	w.array(n)
	w.str(m.ConversationID)
	w.uint(m.Seq)
	w.str(m.ServerMsgID)
	w.str(m.ClientMsgID)
	w.str(m.Sender)
	w.uint(uint64(m.ContentType))
	w.bin(m.Content)
	w.int(m.SendTimeMS)
	w.uint(uint64(m.Status))
	m.Revoke.encode(w)
	w.bool(m.IsRead)
	w.uint(uint64(m.Flags))
	w.strs(m.Mentions)
	w.uint(m.ChangeSeq)
	w.uint(uint64(m.Run))
	if n < messageFields {
		return
	}
	w.int(m.EditMS)
	w.array(len(m.Reactions))
	for i := range m.Reactions {
		m.Reactions[i].encode(w)
	}
}

func (v *Reaction) encode(w *writer) {
	w.array(4)
	w.str(v.Reaction)
	w.uint(uint64(v.Count))
	w.bool(v.Mine)
	w.strs(v.Users)
}

func (v *Reaction) decode(r *reader) {
	end := r.open("reaction")
	v.Reaction = r.str("reaction", MaxReactionLen)
	v.Count = r.u32("count")
	v.Mine = r.bool("mine")
	v.Users = r.strs("users", MaxReactors, MaxIDLen)
	r.close(end)
}

func decodeReactions(r *reader) []Reaction {
	n, end := r.list("reactions", MaxReactions)
	var list []Reaction
	for r.err == nil && r.left > 0 {
		if list == nil {
			list = make([]Reaction, 0, n)
		}
		var v Reaction
		v.decode(r)
		list = append(list, v)
	}
	r.close(end)
	return list
}

func (m *Message) decode(r *reader) {
	end := r.open("message")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Seq = r.u64("seq")
	m.ServerMsgID = r.str("server_msg_id", maxText)
	m.ClientMsgID = r.str("client_msg_id", MaxClientMsgID)
	m.Sender = r.str("sender", MaxIDLen)
	m.ContentType = r.u16("content_type")
	m.Content = r.bytes("content", maxBin)
	m.SendTimeMS = r.i64("send_time_ms")
	m.Status = Status(r.u8("status"))
	m.Revoke = decodeRevoke(r)
	m.IsRead = r.bool("is_read")
	m.Flags = r.u32("flags")
	m.Mentions = r.strs("mentions", MaxArray, MaxIDLen)
	m.ChangeSeq = r.u64("change_seq")
	m.Run = r.u32("run")
	m.EditMS = r.i64("edit_ms")
	m.Reactions = decodeReactions(r)
	r.close(end)
}

func (v *Revoke) encode(w *writer) {
	if v == nil {
		w.nil()
		return
	}
	w.array(3)
	w.str(v.User)
	w.uint(uint64(v.Role))
	w.int(v.TimeMS)
}

func decodeRevoke(r *reader) *Revoke {
	n, end := r.list("revoke", len(r.b))
	var v *Revoke
	if n > 0 {
		v = &Revoke{User: r.str("user", MaxIDLen), Role: Role(r.u8("role")), TimeMS: r.i64("time_ms")}
	}
	r.close(end)
	return v
}

func encodeMessages(w *writer, list []Message) {
	w.array(len(list))
	for i := range list {
		list[i].encode(w)
	}
}

func decodeMessages(r *reader) []Message {
	n, end := r.list("messages", MaxSeqs)
	var list []Message
	for r.err == nil && r.left > 0 {
		if list == nil {
			list = make([]Message, 0, n)
		}
		var m Message
		m.decode(r)
		list = append(list, m)
	}
	r.close(end)
	return list
}

// Push carries new messages to a device.
type Push struct {
	Messages []Message
}

func (m *Push) encode(w *writer) {
	w.array(1)
	encodeMessages(w, m.Messages)
}

func (m *Push) decode(r *reader) {
	end := r.open("PUSH")
	m.Messages = decodeMessages(r)
	r.close(end)
}

// AppendPush appends a PUSH frame around n messages that are encoded already, one after the other, by AppendBody.
func AppendPush(dst []byte, pushID uint32, n int, messages []byte) []byte {
	start := len(dst)
	dst = appendHeader(dst, CmdPush, pushID)
	dst = append(dst, 0x91) // PUSH has one field
	dst = appendArrayHead(dst, n)
	dst = append(dst, messages...)
	return finishFrame(dst, start)
}

func appendArrayHead(dst []byte, n int) []byte {
	if n < 16 {
		return append(dst, 0x90|byte(n))
	}
	return append(dst, 0xdc, byte(n>>8), byte(n)) // at most MaxSeqs
}

// Signal is typing and the like: it goes to devices that are online now, is never stored and has no reply. The server sets Sender.
type Signal struct {
	Kind   ConversationKind
	Target string
	Type   uint16
	Data   []byte
	Sender string
}

func (m *Signal) encode(w *writer) {
	w.array(5)
	w.uint(uint64(m.Kind))
	w.str(m.Target)
	w.uint(uint64(m.Type))
	w.bin(m.Data)
	w.str(m.Sender)
}

func (m *Signal) decode(r *reader) {
	end := r.open("SIGNAL")
	m.Kind = ConversationKind(r.u8("kind"))
	m.Target = r.str("target", MaxIDLen)
	m.Type = r.u16("type")
	m.Data = r.bytes("data", maxBin)
	m.Sender = r.str("sender", MaxIDLen)
	r.close(end)
}
