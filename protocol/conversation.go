package protocol

import "github.com/vmihailenco/msgpack/v5/msgpcode"

// ConversationState is whether a conversation is on its viewer's list.
type ConversationState uint8

// The states of a conversation.
const (
	ConversationNormal    ConversationState = 0
	ConversationLeft      ConversationState = 1 // or removed
	ConversationDissolved ConversationState = 2
	ConversationOffList   ConversationState = 3
)

// Conversation is a conversation, as one viewer sees it.
type Conversation struct {
	ConversationID string
	MaxSeq         uint64
	MinSeq         uint64 // the lowest this viewer may read
	ReadSeq        uint64
	PeerReadSeq    uint64 // direct only
	Unread         uint32
	LastMessage    *Message
	PinnedMS       int64
	MutedUntilMS   int64
	Draft          string
	Title          string
	Avatar         string
	ActiveMS       int64
	ChangeSeq      uint64
	State          ConversationState
}

func (m *Conversation) encode(w *writer) {
	w.array(15)
	w.str(m.ConversationID)
	w.uint(m.MaxSeq)
	w.uint(m.MinSeq)
	w.uint(m.ReadSeq)
	w.uint(m.PeerReadSeq)
	w.uint(uint64(m.Unread))
	if m.LastMessage == nil {
		w.nil()
	} else {
		m.LastMessage.encode(w)
	}
	w.int(m.PinnedMS)
	w.int(m.MutedUntilMS)
	w.str(m.Draft)
	w.str(m.Title)
	w.str(m.Avatar)
	w.int(m.ActiveMS)
	w.uint(m.ChangeSeq)
	w.uint(uint64(m.State))
}

func (m *Conversation) decode(r *reader) {
	end := r.open("conversation")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.MaxSeq = r.u64("max_seq")
	m.MinSeq = r.u64("min_seq")
	m.ReadSeq = r.u64("read_seq")
	m.PeerReadSeq = r.u64("peer_read_seq")
	m.Unread = r.u32("unread")
	m.LastMessage = decodeLastMessage(r)
	m.PinnedMS = r.i64("pinned_ms")
	m.MutedUntilMS = r.i64("muted_until_ms")
	m.Draft = r.str("draft", MaxDraft)
	m.Title = r.str("title", maxText)
	m.Avatar = r.str("avatar", maxText)
	m.ActiveMS = r.i64("active_ms")
	m.ChangeSeq = r.u64("change_seq")
	m.State = ConversationState(r.u8("state"))
	r.close(end)
}

func decodeLastMessage(r *reader) *Message {
	if r.left == 0 || r.pos >= len(r.b) || r.b[r.pos] == msgpcode.Nil {
		r.next("last_message")
		return nil
	}
	m := &Message{}
	m.decode(r)
	return m
}

func encodeConversations(w *writer, list []Conversation) {
	w.array(len(list))
	for i := range list {
		list[i].encode(w)
	}
}

func decodeConversations(r *reader) []Conversation {
	_, end := r.list("conversations", MaxSeqs)
	var list []Conversation
	for r.err == nil && r.left > 0 {
		var c Conversation
		c.decode(r)
		list = append(list, c)
	}
	r.close(end)
	return list
}

// Sync asks for the conversations that changed since Token, a page at a time.
type Sync struct {
	Token  string
	Cursor string
	Limit  uint16
}

func (m *Sync) encode(w *writer) {
	w.array(3)
	w.str(m.Token)
	w.str(m.Cursor)
	w.uint(uint64(m.Limit))
}

func (m *Sync) decode(r *reader) {
	end := r.open("SYNC")
	m.Token = r.str("token", maxOpaque)
	m.Cursor = r.str("cursor", maxOpaque)
	m.Limit = r.u16("limit")
	r.close(end)
}

// SyncReply is a page of SYNC. Token comes with the last page only, NextCursor with all others.
type SyncReply struct {
	Conversations []Conversation
	NextCursor    string
	Token         string
	Reset         bool
}

func (m *SyncReply) encode(w *writer) {
	w.array(4)
	encodeConversations(w, m.Conversations)
	w.str(m.NextCursor)
	w.str(m.Token)
	w.bool(m.Reset)
}

func (m *SyncReply) decode(r *reader) {
	end := r.open("SYNC reply")
	m.Conversations = decodeConversations(r)
	m.NextCursor = r.str("next_cursor", maxOpaque)
	m.Token = r.str("token", maxOpaque)
	m.Reset = r.bool("reset")
	r.close(end)
}

// Pull asks for the messages of [FromSeq, ToSeq]; 0 stands for the viewer's lowest and for the newest.
type Pull struct {
	ConversationID string
	FromSeq        uint64
	ToSeq          uint64
	Limit          uint16
	NewestFirst    bool
}

func (m *Pull) encode(w *writer) {
	w.array(5)
	w.str(m.ConversationID)
	w.uint(m.FromSeq)
	w.uint(m.ToSeq)
	w.uint(uint64(m.Limit))
	w.bool(m.NewestFirst)
}

func (m *Pull) decode(r *reader) {
	end := r.open("PULL")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.FromSeq = r.u64("from_seq")
	m.ToSeq = r.u64("to_seq")
	m.Limit = r.u16("limit")
	m.NewestFirst = r.bool("newest_first")
	r.close(end)
}

// PullReply has an entry for every seq asked for, a gone or hidden one perhaps for several; More says whether there are others.
type PullReply struct {
	Messages []Message
	MinSeq   uint64
	MaxSeq   uint64
	More     bool
}

func (m *PullReply) encode(w *writer) {
	w.array(4)
	encodeMessages(w, m.Messages)
	w.uint(m.MinSeq)
	w.uint(m.MaxSeq)
	w.bool(m.More)
}

func (m *PullReply) decode(r *reader) {
	end := r.open("PULL reply")
	m.Messages = decodeMessages(r)
	m.MinSeq = r.u64("min_seq")
	m.MaxSeq = r.u64("max_seq")
	m.More = r.bool("more")
	r.close(end)
}

// Changes asks for the messages that changed after the change_seq Since.
type Changes struct {
	ConversationID string
	Since          uint64
	Limit          uint16
}

func (m *Changes) encode(w *writer) {
	w.array(3)
	w.str(m.ConversationID)
	w.uint(m.Since)
	w.uint(uint64(m.Limit))
}

func (m *Changes) decode(r *reader) {
	end := r.open("CHANGES")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Since = r.u64("since")
	m.Limit = r.u16("limit")
	r.close(end)
}

// ChangesReply has the current view of each changed message once, in the order of their last change.
type ChangesReply struct {
	Messages []Message
	Next     uint64
	More     bool
	Reset    bool
}

func (m *ChangesReply) encode(w *writer) {
	w.array(4)
	encodeMessages(w, m.Messages)
	w.uint(m.Next)
	w.bool(m.More)
	w.bool(m.Reset)
}

func (m *ChangesReply) decode(r *reader) {
	end := r.open("CHANGES reply")
	m.Messages = decodeMessages(r)
	m.Next = r.u64("next")
	m.More = r.bool("more")
	m.Reset = r.bool("reset")
	r.close(end)
}

// Position is a conversation and a seq in it: the body of READ and REVOKE.
type Position struct {
	ConversationID string
	Seq            uint64
}

func (m *Position) encode(w *writer) {
	w.array(2)
	w.str(m.ConversationID)
	w.uint(m.Seq)
}

func (m *Position) decode(r *reader) {
	end := r.open("position")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Seq = r.u64("seq")
	r.close(end)
}

// ReadReply has the watermark as it is now, and what is unread above it.
type ReadReply struct {
	Seq    uint64
	Unread uint32
}

func (m *ReadReply) encode(w *writer) {
	w.array(2)
	w.uint(m.Seq)
	w.uint(uint64(m.Unread))
}

func (m *ReadReply) decode(r *reader) {
	end := r.open("READ reply")
	m.Seq = r.u64("seq")
	m.Unread = r.u32("unread")
	r.close(end)
}

// ChangeReply answers REVOKE, EDIT and REACT; 0 means durable, number not known yet.
type ChangeReply struct {
	ChangeSeq uint64
}

func (m *ChangeReply) encode(w *writer) {
	w.array(1)
	w.uint(m.ChangeSeq)
}

func (m *ChangeReply) decode(r *reader) {
	end := r.open("change reply")
	m.ChangeSeq = r.u64("change_seq")
	r.close(end)
}

// Delete hides messages from the one who asks.
type Delete struct {
	ConversationID string
	Seqs           []uint64
}

func (m *Delete) encode(w *writer) {
	w.array(2)
	w.str(m.ConversationID)
	w.uints(m.Seqs)
}

func (m *Delete) decode(r *reader) {
	end := r.open("DELETE")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Seqs = r.uints("seqs", MaxSeqs)
	r.close(end)
}

// Clear hides the history up to UpToSeq (0: all) from the one who asks.
type Clear struct {
	ConversationID string
	UpToSeq        uint64
}

func (m *Clear) encode(w *writer) {
	w.array(2)
	w.str(m.ConversationID)
	w.uint(m.UpToSeq)
}

func (m *Clear) decode(r *reader) {
	end := r.open("CLEAR")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.UpToSeq = r.u64("up_to_seq")
	r.close(end)
}

// ClearReply has the lowest seq that is left to see.
type ClearReply struct {
	MinSeq uint64
}

func (m *ClearReply) encode(w *writer) {
	w.array(1)
	w.uint(m.MinSeq)
}

func (m *ClearReply) decode(r *reader) {
	end := r.open("CLEAR reply")
	m.MinSeq = r.u64("min_seq")
	r.close(end)
}

// Edit replaces a message's content.
type Edit struct {
	ConversationID string
	Seq            uint64
	ContentType    uint16
	Content        []byte
}

func (m *Edit) encode(w *writer) {
	w.array(4)
	w.str(m.ConversationID)
	w.uint(m.Seq)
	w.uint(uint64(m.ContentType))
	w.bin(m.Content)
}

func (m *Edit) decode(r *reader) {
	end := r.open("EDIT")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Seq = r.u64("seq")
	m.ContentType = r.u16("content_type")
	m.Content = r.bytes("content", maxBin)
	r.close(end)
}

// Bits of SetConversation's mask.
const (
	MaskPinned uint32 = 1 << 0
	MaskMuted  uint32 = 1 << 1
	MaskDraft  uint32 = 1 << 2
)

// SetConversation changes one's own settings of a conversation: those whose bits are set in Mask.
type SetConversation struct {
	ConversationID string
	Mask           uint32
	PinnedMS       int64
	MutedUntilMS   int64 // -1: for ever
	Draft          string
}

func (m *SetConversation) encode(w *writer) {
	w.array(5)
	w.str(m.ConversationID)
	w.uint(uint64(m.Mask))
	w.int(m.PinnedMS)
	w.int(m.MutedUntilMS)
	w.str(m.Draft)
}

func (m *SetConversation) decode(r *reader) {
	end := r.open("SET_CONVERSATION")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Mask = r.u32("mask")
	m.PinnedMS = r.i64("pinned_ms")
	m.MutedUntilMS = r.i64("muted_until_ms")
	m.Draft = r.str("draft", MaxDraft)
	r.close(end)
}

// GetConversations asks for some conversations by id.
type GetConversations struct {
	ConversationIDs []string
}

func (m *GetConversations) encode(w *writer) {
	w.array(1)
	w.strs(m.ConversationIDs)
}

func (m *GetConversations) decode(r *reader) {
	end := r.open("GET_CONVERSATIONS")
	m.ConversationIDs = r.strs("conversation_ids", MaxArray, maxConversationID)
	r.close(end)
}

// GetConversationsReply has those that the caller may see.
type GetConversationsReply struct {
	Conversations []Conversation
}

func (m *GetConversationsReply) encode(w *writer) {
	w.array(1)
	encodeConversations(w, m.Conversations)
}

func (m *GetConversationsReply) decode(r *reader) {
	end := r.open("GET_CONVERSATIONS reply")
	m.Conversations = decodeConversations(r)
	r.close(end)
}

// UnreadReply has the caller's unread messages, and in how many conversations they are.
type UnreadReply struct {
	Total         uint32
	Conversations uint32
}

func (m *UnreadReply) encode(w *writer) {
	w.array(2)
	w.uint(uint64(m.Total))
	w.uint(uint64(m.Conversations))
}

func (m *UnreadReply) decode(r *reader) {
	end := r.open("UNREAD reply")
	m.Total = r.u32("total")
	m.Conversations = r.u32("conversations")
	r.close(end)
}

// React sets or removes one's reaction to a message.
type React struct {
	ConversationID string
	Seq            uint64
	Reaction       string
	On             bool
}

func (m *React) encode(w *writer) {
	w.array(4)
	w.str(m.ConversationID)
	w.uint(m.Seq)
	w.str(m.Reaction)
	w.bool(m.On)
}

func (m *React) decode(r *reader) {
	end := r.open("REACT")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Seq = r.u64("seq")
	m.Reaction = r.str("reaction", MaxReactionLen)
	m.On = r.bool("on")
	r.close(end)
}

// RemoveConversation takes a conversation off the caller's list until its next message.
type RemoveConversation struct {
	ConversationID string
}

func (m *RemoveConversation) encode(w *writer) {
	w.array(1)
	w.str(m.ConversationID)
}

func (m *RemoveConversation) decode(r *reader) {
	end := r.open("REMOVE_CONVERSATION")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	r.close(end)
}

// Readers asks who has read a message.
type Readers struct {
	ConversationID string
	Seq            uint64
	Limit          uint16
}

func (m *Readers) encode(w *writer) {
	w.array(3)
	w.str(m.ConversationID)
	w.uint(m.Seq)
	w.uint(uint64(m.Limit))
}

func (m *Readers) decode(r *reader) {
	end := r.open("READERS")
	m.ConversationID = r.str("conversation_id", maxConversationID)
	m.Seq = r.u64("seq")
	m.Limit = r.u16("limit")
	r.close(end)
}

// ReadersReply has their number, and some of them.
type ReadersReply struct {
	Count   uint32
	UserIDs []string
}

func (m *ReadersReply) encode(w *writer) {
	w.array(2)
	w.uint(uint64(m.Count))
	w.strs(m.UserIDs)
}

func (m *ReadersReply) decode(r *reader) {
	end := r.open("READERS reply")
	m.Count = r.u32("count")
	m.UserIDs = r.strs("user_ids", MaxSeqs, MaxIDLen)
	r.close(end)
}
