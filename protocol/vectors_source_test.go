package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is what a golden vector is made from.
type source struct {
	name string
	note string
	cmd  Command
	id   uint32
	body Body
	raw  []byte // for lenient vectors: the body's bytes
}

const (
	aliceBob  = "p:alice:bob"
	clientID  = "01JDX3Q5V9W3E0N6C8RZ7T4KYB"
	serverID  = "7WuddGEdkH6N4vM-N1aIEQ"
	sentMS    = 1733000000123
	fullName  = "AZaz09._@+=|-"
	maxUint32 = 1<<32 - 1
)

func textMessage() Message {
	return Message{
		ConversationID: aliceBob, Seq: 42, ServerMsgID: serverID, ClientMsgID: clientID, Sender: "alice", ContentType: ContentText,
		Content: []byte("hello"), SendTimeMS: sentMS,
	}
}

func fullMessage() Message {
	return Message{
		ConversationID: "g:team-7", Seq: MaxInt, ServerMsgID: serverID, ClientMsgID: strings.Repeat("c", MaxClientMsgID), Sender: fullName,
		ContentType: 999, Content: []byte{0, 0xff, 0xc0, 0x80}, SendTimeMS: -1, Status: 200, Revoke: &Revoke{User: "bob", Role: RoleAdmin, TimeMS: sentMS},
		IsRead: true, Flags: maxUint32, Mentions: []string{"bob", MentionAll}, ChangeSeq: MaxInt - 1, Run: maxUint32,
	}
}

// changedMessage was edited and reacted to.
func changedMessage() Message {
	m := textMessage()
	m.Content, m.ChangeSeq, m.EditMS = []byte("hello, you"), 11, sentMS+60_000
	m.Reactions = []Reaction{{Reaction: "👍", Count: 2, Mine: true, Users: []string{"bob", "alice"}}, {Reaction: "heart", Count: 1, Users: []string{"bob"}}}
	return m
}

// mostReactions has as many kinds and users as a message can have.
func mostReactions() []Reaction {
	list := make([]Reaction, MaxReactions)
	for i := range list {
		list[i] = Reaction{Reaction: strings.Repeat(string(rune('a'+i)), MaxReactionLen), Count: maxUint32, Mine: i%2 == 0}
	}
	list[0].Users = names(MaxReactors)
	return list
}

func fullConversation() Conversation {
	m := textMessage()
	return Conversation{
		ConversationID: aliceBob, MaxSeq: 42, MinSeq: 3, ReadSeq: 40, PeerReadSeq: 41, Unread: 2, LastMessage: &m, PinnedMS: sentMS,
		MutedUntilMS: -1, Draft: strings.Repeat("d", 300), Title: "Alice und Bøb 💬", Avatar: "https://example.org/a.png", ActiveMS: sentMS,
		ChangeSeq: 7, State: ConversationOffList,
	}
}

func numbers(n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(i) * 9
	}
	return list
}

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "user-" + strconv.Itoa(i)
	}
	return list
}

// sources are what both directions are checked for: by chapter of docs/protocol.md.
var sources = map[string][]source{
	"session.json": append([]source{
		{name: "hello", cmd: CmdHello, id: 1, body: &Hello{Token: "eyJhbGciOiJIUzI1NiJ9.e30.c2ln", DeviceID: "phone-1", Platform: PlatformIOS, SDK: "parley-go/1", Flags: HelloSignedIn}},
		{name: "hello reconnect", note: "an automatic reconnect: flags bit 0 is not set", cmd: CmdHello, id: 1, body: &Hello{Token: strings.Repeat("t", 700), DeviceID: strings.Repeat("d", MaxDeviceID), Platform: PlatformOther, Caps: MaxInt}},
		{name: "hello zero", note: "every field zero", cmd: CmdHello, id: maxUint32, body: &Hello{}},
		{name: "welcome", cmd: CmdWelcome, id: 1, body: &Welcome{UserID: "alice", SessionID: "kZ2nXf9m3sQ0a1b2c3d4e5", ServerTimeMS: sentMS, HeartbeatS: 60, MaxBody: DefaultMaxBody, MaxInflight: 32, MaxDown: DefaultMaxDown, ResendS: 300, Epoch: "7f3a9c"}},
		{name: "welcome most", note: "every number at its greatest", cmd: CmdWelcome, id: 1, body: &Welcome{UserID: strings.Repeat("u", MaxIDLen), SessionID: "s", ServerTimeMS: MaxInt, HeartbeatS: 65535, MaxBody: maxUint32, MaxInflight: 65535, Caps: MaxInt, MaxDown: maxUint32, ResendS: maxUint32, Epoch: "e"}},
		{name: "ping", note: "an empty body", cmd: CmdPing, id: 2, body: &Empty{}},
		{name: "kick displaced", cmd: CmdKick, body: &Kick{Reason: KickDisplaced, Message: "signed in on another device", DeviceID: "phone-2", Platform: PlatformAndroid, TimeMS: sentMS}},
		{name: "kick server full", cmd: CmdKick, body: &Kick{Reason: KickServerFull, Message: "try again", RetryAfterMS: 1000}},
		{name: "kick unknown", note: "a reason that no version 1 client knows: 100 and above may reconnect", cmd: CmdKick, body: &Kick{Reason: 65535}},
		{name: "goaway", cmd: CmdGoAway, body: &GoAway{ReconnectWithinMS: 30000}},
		{name: "sign out", note: "this device", cmd: CmdSignOut, id: 3, body: &SignOut{}},
		{name: "sign out another", cmd: CmdSignOut, id: 4, body: &SignOut{DeviceID: "phone-2"}},
		{name: "sign out reply", cmd: CmdSignedOut, id: 4, body: &Empty{}},
	}, integers()...),
	"errors.json": append(errorSources(),
		source{name: "error forbidden, not a member", cmd: CmdError, id: 7, body: &Error{Code: CodeForbidden, Message: "not a member", Reason: ReasonNotMember}},
		source{name: "error rejected", note: "reason is the hook's own", cmd: CmdError, id: 7, body: &Error{Code: CodeRejected, Message: "spam", Reason: 65535}},
		source{name: "error unknown", note: "a code that no version 1 client knows: final, unless retry_after_ms is set", cmd: CmdError, id: 7, body: &Error{Code: 65535, Message: "new", RetryAfterMS: maxUint32}},
		source{name: "error without a request", cmd: CmdError, body: &Error{Code: CodeBadFrame}},
	),
	"messages.json": {
		{name: "send text", cmd: CmdSend, id: 7, body: &Send{ClientMsgID: clientID, Kind: KindDirect, Target: "bob", ContentType: ContentText, Content: []byte("hello")}},
		{name: "send app content to a group", cmd: CmdSend, id: 8, body: &Send{ClientMsgID: "1", Kind: KindGroup, Target: fullName, ContentType: 100, Content: []byte{0, 1, 2, 0xff}, Flags: SendFlags, Mentions: []string{"bob", MentionAll}}},
		{name: "send without content", cmd: CmdSend, id: 9, body: &Send{ClientMsgID: "x", Kind: KindDirect, Target: "b", ContentType: 999}},
		{name: "send 300 bytes", note: "bin16, str8 and array16", cmd: CmdSend, id: 10, body: &Send{ClientMsgID: strings.Repeat("c", 64), Kind: KindDirect, Target: strings.Repeat("b", 64), ContentType: ContentApp, Content: bytes.Repeat([]byte{0xab}, 300), Mentions: names(16)}},
		{name: "send ack", cmd: CmdSendAck, id: 7, body: &SendAck{ClientMsgID: clientID, ServerMsgID: serverID, ConversationID: aliceBob, SendTimeMS: sentMS, Seq: 42}},
		{name: "send ack without a seq", note: "durable, number not known yet", cmd: CmdSendAck, id: 7, body: &SendAck{ClientMsgID: clientID, ServerMsgID: serverID, ConversationID: aliceBob, SendTimeMS: sentMS}},
		{name: "push", cmd: CmdPush, id: 501, body: &Push{Messages: []Message{textMessage()}}},
		{name: "push states", note: "revoked, gone (3 seqs), hidden, and one with every field set but the last two", cmd: CmdPush, id: 502, body: &Push{Messages: []Message{
			{ConversationID: aliceBob, Seq: 43, ServerMsgID: serverID, ClientMsgID: "2", Sender: "bob", ContentType: 1, SendTimeMS: sentMS, Status: StatusRevoked, Revoke: &Revoke{User: "bob", Role: RoleSender, TimeMS: sentMS + 5}, ChangeSeq: 1},
			{ConversationID: aliceBob, Seq: 44, Status: StatusGone, Run: 3},
			{ConversationID: aliceBob, Seq: 47, Status: StatusHidden, Run: 1},
			fullMessage(),
		}}},
		{name: "push edited and reacted to", note: "the last two fields are there when either is set", cmd: CmdPush, id: 504, body: &Push{Messages: []Message{
			changedMessage(),
			{ConversationID: aliceBob, Seq: 2, ServerMsgID: serverID, ClientMsgID: "3", Sender: "bob", ContentType: 1, Content: []byte("edited"), SendTimeMS: sentMS, ChangeSeq: 12, EditMS: sentMS + 1},
			{ConversationID: aliceBob, Seq: 3, ServerMsgID: serverID, ClientMsgID: "4", Sender: "bob", ContentType: 1, Content: []byte("most"), SendTimeMS: sentMS, ChangeSeq: 13, Reactions: mostReactions()},
		}}},
		{name: "push own state", note: "of one's own stream: an SDK applies it and never shows it", cmd: CmdPush, id: 505, body: &Push{Messages: []Message{
			{ConversationID: "u:alice", Seq: 5, ServerMsgID: serverID, ClientMsgID: clientID, Sender: "alice", ContentType: ContentOwnState,
				Content: AppendBody(nil, &OwnState{Op: OwnDelete, ConversationID: aliceBob, Seqs: []uint64{41, 42}}), SendTimeMS: sentMS},
		}}},
		{name: "push none", cmd: CmdPush, id: 503, body: &Push{}},
		{name: "push ack", cmd: CmdPushAck, id: 501, body: &Empty{}},
		{name: "signal", cmd: CmdSignal, body: &Signal{Kind: KindDirect, Target: "bob", Type: 1}},
		{name: "signal from the server", cmd: CmdSignal, body: &Signal{Kind: KindDirect, Target: "bob", Type: 1, Data: []byte{0x91, 0xc3}, Sender: "alice"}},
	},
	"events.json": {
		{name: "message changed", cmd: CmdEvent, body: events(Event{Type: EventMessageChanged, ConversationID: aliceBob, Seq: 42, User: "alice", TimeMS: sentMS, ChangeSeq: 8})},
		{name: "read by the other side", cmd: CmdEvent, body: events(Event{Type: EventRead, ConversationID: aliceBob, Seq: 42, User: "bob", TimeMS: sentMS})},
		{name: "read on another device of one's own", note: "data: [unread 3]", cmd: CmdEvent, body: events(Event{Type: EventRead, ConversationID: aliceBob, Seq: 39, User: "alice", TimeMS: sentMS, Data: AppendBody(nil, &ReadData{Unread: 3})})},
		{name: "deleted", cmd: CmdEvent, body: events(Event{Type: EventDeleted, ConversationID: aliceBob, User: "alice", TimeMS: sentMS})},
		{name: "deleted two", note: "data: [seqs [41, 42]]; seq is the highest", cmd: CmdEvent, body: events(Event{Type: EventDeleted, ConversationID: aliceBob, Seq: 42, User: "alice", TimeMS: sentMS, Data: AppendBody(nil, &DeletedData{Seqs: []uint64{41, 42}})})},
		{name: "cleared", cmd: CmdEvent, body: events(Event{Type: EventCleared, ConversationID: aliceBob, Seq: 42, User: "alice", TimeMS: sentMS})},
		{name: "setting", cmd: CmdEvent, body: events(Event{Type: EventSetting, ConversationID: aliceBob, User: "alice", TimeMS: sentMS})},
		{name: "group changed", cmd: CmdEvent, body: events(Event{Type: EventGroup, ConversationID: "g:team-7", TimeMS: sentMS})},
		{name: "presence", note: "data: [online true, last_seen_ms]", cmd: CmdEvent, body: events(Event{Type: EventPresence, User: "bob", TimeMS: sentMS, Data: AppendBody(nil, &PresenceData{Online: true, LastSeenMS: sentMS})})},
		{name: "resync", note: "data: [max_delay_ms 5000]", cmd: CmdEvent, body: events(Event{Type: EventResync, Data: AppendBody(nil, &ResyncData{MaxDelayMS: 5000})})},
		{name: "two, one unknown", note: "a client passes over the type that it does not know", cmd: CmdEvent, body: events(Event{Type: 255, Seq: MaxInt, ChangeSeq: MaxInt, Data: []byte{1}}, Event{Type: EventRead, ConversationID: aliceBob, Seq: 1, User: "bob"})},
		{name: "none", cmd: CmdEvent, body: &Events{}},
	},
	"conversations.json": {
		{name: "sync all", cmd: CmdSync, id: 20, body: &Sync{}},
		{name: "sync since", cmd: CmdSync, id: 21, body: &Sync{Token: "AQpUb2tlbg", Limit: 50}},
		{name: "sync next page", cmd: CmdSync, id: 22, body: &Sync{Token: "AQpUb2tlbg", Cursor: "AQpDdXJzb3I", Limit: 65535}},
		{name: "sync reply page", cmd: CmdSync.Reply(), id: 22, body: &SyncReply{Conversations: []Conversation{fullConversation(), {ConversationID: "g:team-7", MinSeq: 1}}, NextCursor: "AQpDdXJzb3I"}},
		{name: "sync reply last", cmd: CmdSync.Reply(), id: 22, body: &SyncReply{Token: "AQpUb2tlbg", Reset: true}},
		{name: "pull newest", cmd: CmdPull, id: 23, body: &Pull{ConversationID: aliceBob, NewestFirst: true}},
		{name: "pull range", cmd: CmdPull, id: 24, body: &Pull{ConversationID: aliceBob, FromSeq: 91, ToSeq: 104, Limit: 200}},
		{name: "pull reply", cmd: CmdPull.Reply(), id: 24, body: &PullReply{Messages: []Message{textMessage(), {ConversationID: aliceBob, Seq: 43, Status: StatusHidden, Run: 1}}, MinSeq: 1, MaxSeq: 43, More: true}},
		{name: "pull reply nothing", cmd: CmdPull.Reply(), id: 24, body: &PullReply{MinSeq: 1}},
		{name: "changes", cmd: CmdChanges, id: 25, body: &Changes{ConversationID: aliceBob, Since: 7, Limit: 100}},
		{name: "changes reply", cmd: CmdChanges.Reply(), id: 25, body: &ChangesReply{Messages: []Message{fullMessage()}, Next: 8, More: true}},
		{name: "changes reply edited and reacted to", cmd: CmdChanges.Reply(), id: 25, body: &ChangesReply{Messages: []Message{changedMessage()}, Next: 11}},
		{name: "changes reply reset", cmd: CmdChanges.Reply(), id: 25, body: &ChangesReply{Next: MaxInt, Reset: true}},
		{name: "read", cmd: CmdRead, id: 30, body: &Position{ConversationID: aliceBob, Seq: 42}},
		{name: "read reply", cmd: CmdRead.Reply(), id: 30, body: &ReadReply{Seq: 42, Unread: 1}},
		{name: "revoke", cmd: CmdRevoke, id: 31, body: &Position{ConversationID: aliceBob, Seq: 42}},
		{name: "revoke reply", cmd: CmdRevoke.Reply(), id: 31, body: &ChangeReply{ChangeSeq: 8}},
		{name: "revoke reply without a number", note: "durable, number not known yet", cmd: CmdRevoke.Reply(), id: 31, body: &ChangeReply{}},
		{name: "delete", cmd: CmdDelete, id: 32, body: &Delete{ConversationID: aliceBob, Seqs: []uint64{1, 127, 128, 255, 256, 65535, 65536, MaxInt}}},
		{name: "delete many", note: "200 seqs, the most", cmd: CmdDelete, id: 33, body: &Delete{ConversationID: aliceBob, Seqs: numbers(MaxSeqs)}},
		{name: "delete reply", cmd: CmdDelete.Reply(), id: 33, body: &Empty{}},
		{name: "clear", note: "0: all", cmd: CmdClear, id: 34, body: &Clear{ConversationID: aliceBob}},
		{name: "clear up to", cmd: CmdClear, id: 34, body: &Clear{ConversationID: aliceBob, UpToSeq: 40}},
		{name: "clear reply", cmd: CmdClear.Reply(), id: 34, body: &ClearReply{MinSeq: 41}},
		{name: "edit", cmd: CmdEdit, id: 35, body: &Edit{ConversationID: aliceBob, Seq: 42, ContentType: ContentText, Content: []byte("hello, you")}},
		{name: "edit reply", cmd: CmdEdit.Reply(), id: 35, body: &ChangeReply{ChangeSeq: 9}},
		{name: "set conversation muted for ever", cmd: CmdSetConversation, id: 36, body: &SetConversation{ConversationID: aliceBob, Mask: MaskMuted, MutedUntilMS: -1}},
		{name: "set conversation all", cmd: CmdSetConversation, id: 36, body: &SetConversation{ConversationID: aliceBob, Mask: MaskPinned | MaskMuted | MaskDraft, PinnedMS: sentMS, MutedUntilMS: sentMS, Draft: "to be"}},
		{name: "set conversation reply", cmd: CmdSetConversation.Reply(), id: 36, body: &Empty{}},
		{name: "get conversations", cmd: CmdGetConversation, id: 37, body: &GetConversations{ConversationIDs: []string{aliceBob, "g:team-7"}}},
		{name: "get conversations reply", cmd: CmdGetConversation.Reply(), id: 37, body: &GetConversationsReply{Conversations: []Conversation{fullConversation()}}},
		{name: "unread", cmd: CmdUnread, id: 38, body: &Empty{}},
		{name: "unread reply", cmd: CmdUnread.Reply(), id: 38, body: &UnreadReply{Total: 300, Conversations: 2}},
		{name: "react", cmd: CmdReact, id: 39, body: &React{ConversationID: aliceBob, Seq: 42, Reaction: "👍", On: true}},
		{name: "react no more", cmd: CmdReact, id: 39, body: &React{ConversationID: aliceBob, Seq: 42, Reaction: strings.Repeat("x", MaxReactionLen)}},
		{name: "react reply", cmd: CmdReact.Reply(), id: 39, body: &ChangeReply{ChangeSeq: 10}},
		{name: "remove conversation", cmd: CmdRemove, id: 40, body: &RemoveConversation{ConversationID: aliceBob}},
		{name: "remove conversation reply", cmd: CmdRemove.Reply(), id: 40, body: &Empty{}},
		{name: "readers", cmd: CmdReaders, id: 41, body: &Readers{ConversationID: "g:team-7", Seq: 42, Limit: 100}},
		{name: "readers reply", cmd: CmdReaders.Reply(), id: 41, body: &ReadersReply{Count: 2, UserIDs: []string{"alice", "bob"}}},
	},
	"profiles.json": {
		{name: "watch presence", cmd: CmdWatchPresence, id: 50, body: &WatchPresence{UserIDs: []string{"alice", "bob"}, On: true}},
		{name: "watch presence reply", cmd: CmdWatchPresence.Reply(), id: 50, body: &WatchPresenceReply{States: []Presence{{"alice", true, 0}, {"bob", false, sentMS}}}},
		{name: "get profiles", note: "100, the most", cmd: CmdGetProfiles, id: 60, body: &GetProfiles{UserIDs: names(MaxArray)}},
		{name: "get profiles reply", cmd: CmdGetProfiles.Reply(), id: 60, body: &GetProfilesReply{Profiles: []Profile{{"alice", "Alice", "https://example.org/a.png", []byte{0x80}, 3}, {UserID: "bob"}}}},
		{name: "set profile", cmd: CmdSetProfile, id: 62, body: &SetProfile{Mask: MaskNickname | MaskExtra, Nickname: "Ålice", Extra: []byte{1}}},
		{name: "set profile avatar", cmd: CmdSetProfile, id: 62, body: &SetProfile{Mask: MaskAvatar, Avatar: "https://example.org/b.png"}},
		{name: "set profile reply", cmd: CmdSetProfile.Reply(), id: 62, body: &SetProfileReply{Version: 4}},
	},
}

func events(list ...Event) *Events { return &Events{Events: list} }

// integers has a PONG for both sides of every border of the integer encodings.
func integers() []source {
	var list []source
	for _, n := range []int64{
		0, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, MaxInt, -1, -32, -33, -128, -129, -32768, -32769, -1 << 31, -1<<31 - 1, -MaxInt,
	} {
		list = append(list, source{name: "pong " + strconv.FormatInt(n, 10), cmd: CmdPong, id: 2, body: &Pong{ServerTimeMS: n}})
	}
	return list
}

func errorSources() []source {
	var list []source
	for c := CodeBadFrame; c <= CodeTokenExpired; c++ {
		e := &Error{Code: c, Message: "what was wrong"}
		if c == CodeRateLimited || c == CodeUnavailable || c == CodeInternal {
			e.RetryAfterMS = 1000
		}
		list = append(list, source{name: "error " + c.String(), cmd: CmdError, id: 7, body: e})
	}
	return list
}

// dataSources are what travels within a bin field.
var dataSources = []struct {
	name, of string
	body     Body
}{
	{"unread", "data of EVENT type 2 about one's own watermark", &ReadData{Unread: 3}},
	{"presence", "data of EVENT type 7", &PresenceData{Online: true, LastSeenMS: sentMS}},
	{"resync", "data of EVENT type 8", &ResyncData{MaxDelayMS: 5000}},
	{"own state", "content of a message of type 1003", &OwnState{Op: OwnDelete, ConversationID: aliceBob, Seqs: []uint64{41, 42}, UpToSeq: 0}},
	{"own state of a clear", "content of a message of type 1003", &OwnState{Op: OwnClear, ConversationID: aliceBob, UpToSeq: 42}},
	{"own state zero", "content of a message of type 1003", &OwnState{}},
	{"deleted", "data of EVENT type 3", &DeletedData{Seqs: []uint64{41, 42}}},
	{"deleted most", "data of EVENT type 3", &DeletedData{Seqs: numbers(MaxSeqs)}},
}

// lenientSources are what every decoder must take, beyond what encoders make.
func lenientSources(t testing.TB) []source {
	enc := func(v ...any) []byte { return libraryEncode(t, v) }
	sig := &Signal{Kind: KindDirect, Target: "bob", Type: 1, Data: []byte("hey")}
	pos := &Position{ConversationID: aliceBob, Seq: 42}
	deep := append(bytes.Repeat([]byte{0x91}, 14), 0x90) // 15 arrays within the one that is the body
	m := wireMessage()
	return []source{
		{name: "shorter array", note: "fields that are not there are zero", cmd: CmdRead, id: 30, body: &Position{ConversationID: aliceBob}, raw: enc(aliceBob)},
		{name: "array of nothing", cmd: CmdRead, id: 30, body: &Position{}, raw: []byte{0x90}},
		{name: "no body at all", note: "every field is zero", cmd: CmdSync, id: 20, body: &Sync{}, raw: nil},
		{name: "nil for a body", cmd: CmdSync, id: 20, body: &Sync{}, raw: []byte{0xc0}},
		{name: "nil fields", note: "nil is zero, whatever the field's type", cmd: CmdSend, id: 7, body: &Send{ClientMsgID: "1", Target: "bob"}, raw: enc("1", nil, "bob", nil, nil, nil, nil)},
		{name: "nil list, nil element", cmd: CmdPush, id: 1, body: &Push{Messages: []Message{{}}}, raw: enc([]any{nil})},
		{name: "nil in a list of strings", cmd: CmdGetProfiles, id: 60, body: &GetProfiles{UserIDs: []string{"a", "", "b"}}, raw: enc([]any{"a", nil, "b"})},
		{name: "extra elements", note: "of every type", cmd: CmdRead, id: 30, body: pos, raw: concat(
			[]byte{0xdc, 0, 2 + 26}, enc(aliceBob)[1:], []byte{42}, everyType)},
		{name: "extra elements in a nested array", cmd: CmdPush, id: 1, body: &Push{Messages: []Message{textMessage(), {Seq: 1}}},
			raw: enc([]any{append(slices.Clone(m), nil, nil, "new", []any{1, nil}, nil), []any{nil, 1}}, "after")},
		{name: "extra elements in revoke", cmd: CmdPush, id: 1, body: &Push{Messages: []Message{{Revoke: &Revoke{User: "bob"}}}},
			raw: enc([]any{[]any{nil, nil, nil, nil, nil, nil, nil, nil, nil, []any{"bob", 0, 0, "why"}}})},
		{name: "reactions without a time of edit", note: "nil for any field", cmd: CmdPush, id: 1,
			body: &Push{Messages: []Message{func() Message { m := textMessage(); m.Reactions = []Reaction{{Reaction: "+1"}, {}}; return m }()}},
			raw:  enc([]any{append(slices.Clone(m), nil, []any{[]any{"+1", nil, nil, nil, "new"}, nil})})},
		{name: "last fields that are zero", note: "an encoder leaves them out", cmd: CmdPush, id: 1, body: &Push{Messages: []Message{textMessage()}},
			raw: enc([]any{append(slices.Clone(m), 0, []any{})})},
		{name: "revoke as an empty array", note: "as nil", cmd: CmdPush, id: 1, body: &Push{Messages: []Message{{}}},
			raw: enc([]any{[]any{nil, nil, nil, nil, nil, nil, nil, nil, nil, []any{}}})},
		{name: "extra element 15 arrays deep", note: "16 with the array around it; deeper is refused", cmd: CmdRead, id: 30, body: pos, raw: concat([]byte{0x93}, enc(aliceBob)[1:], []byte{42}, deep)},
		{name: "body for a command without fields", cmd: CmdPing, id: 2, body: &Empty{}, raw: enc(1, "x")},
		{name: "str for bin", cmd: CmdSignal, body: sig, raw: enc(1, "bob", 1, "hey", "")},
		{name: "str8, str16 and str32 for short strings", cmd: CmdGetProfiles, id: 60, body: &GetProfiles{UserIDs: []string{"a", "b", "c"}},
			raw: []byte{0x91, 0x93, 0xd9, 1, 'a', 0xda, 0, 1, 'b', 0xdb, 0, 0, 0, 1, 'c'}},
		{name: "bin16 for short bin", cmd: CmdSignal, body: sig, raw: concat([]byte{0x95, 1, 0xa3}, []byte("bob"), []byte{1, 0xc5, 0, 3}, []byte("hey"), []byte{0xa0})},
		{name: "bin32 for short bin", cmd: CmdSignal, body: sig, raw: concat([]byte{0x95, 1, 0xa3}, []byte("bob"), []byte{1, 0xc6, 0, 0, 0, 3}, []byte("hey"), []byte{0xa0})},
		{name: "array16 for a short array", cmd: CmdRead, id: 30, body: pos, raw: concat([]byte{0xdc, 0, 2}, enc(aliceBob)[1:], []byte{42})},
		{name: "array32 for a short array", cmd: CmdRead, id: 30, body: pos, raw: concat([]byte{0xdd, 0, 0, 0, 2}, enc(aliceBob)[1:], []byte{42})},
		{name: "integers longer than needed", note: "unsigned and signed, of every width", cmd: CmdDelete, id: 32, body: &Delete{ConversationID: aliceBob, Seqs: []uint64{1, 2, 3, 4, 5, 6, 7, 8}},
			raw: concat([]byte{0x92}, enc(aliceBob)[1:], []byte{0x98, 0xcc, 1, 0xcd, 0, 2, 0xce, 0, 0, 0, 3, 0xcf, 0, 0, 0, 0, 0, 0, 0, 4,
				0xd0, 5, 0xd1, 0, 6, 0xd2, 0, 0, 0, 7, 0xd3, 0, 0, 0, 0, 0, 0, 0, 8})},
		{name: "negative in 64 bits", cmd: CmdPong, id: 2, body: &Pong{ServerTimeMS: -1}, raw: []byte{0x91, 0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
	}
}

// everyType is one msgpack value of each of the 26 forms that a decoder passes over.
var everyType = concat(
	[]byte{0x7f}, []byte{0xe0}, []byte{0xc0}, []byte{0xc2}, []byte{0xc3},
	[]byte{0xcc, 1}, []byte{0xcd, 1, 1}, []byte{0xce, 1, 1, 1, 1}, []byte{0xcf, 0xff, 1, 1, 1, 1, 1, 1, 1},
	[]byte{0xd0, 1}, []byte{0xd1, 1, 1}, []byte{0xd2, 1, 1, 1, 1}, []byte{0xd3, 1, 1, 1, 1, 1, 1, 1, 1},
	[]byte{0xca, 1, 1, 1, 1}, []byte{0xcb, 1, 1, 1, 1, 1, 1, 1, 1},
	[]byte{0xa1, 'x'}, []byte{0xd9, 1, 0xff}, []byte{0xc4, 1, 0}, []byte{0x91, 0xc0}, []byte{0xdc, 0, 1, 1},
	[]byte{0x81, 0xa1, 'k', 1}, []byte{0xde, 0, 1, 0xc0, 0x90},
	[]byte{0xd4, 1, 1}, []byte{0xd8, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, []byte{0xc7, 2, 1, 1, 1}, []byte{0xc9, 0, 0, 0, 0, 1},
)

func wireMessage() []any {
	return []any{aliceBob, 42, serverID, clientID, "alice", 1, []byte("hello"), int64(sentMS), 0, nil, false, 0, []any{}, 0, 0}
}

func concat(pieces ...[]byte) []byte { return bytes.Join(pieces, nil) }

// header is a frame's first bytes, which may lie.
func header(length uint32, version, flags byte, cmd Command, id uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, length)
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(cmd))
	return binary.BigEndian.AppendUint32(b, id)
}

func invalidSources() []invalid {
	var list []invalid
	frame := func(name, note string, b []byte, code ErrorCode, id uint32) {
		list = append(list, invalid{name, note, hex.EncodeToString(b), DefaultMaxBody, "frame", code.String(), int(code), id})
	}
	waits := func(name, note string, b []byte) {
		list = append(list, invalid{name, note, hex.EncodeToString(b), DefaultMaxBody, "frame", "incomplete", 0, 0})
	}
	body := func(name, note string, cmd Command, b []byte, code ErrorCode) {
		list = append(list, invalid{name, note, hex.EncodeToString(AppendRawFrame(nil, cmd, 7, b)), DefaultMaxBody, "body", code.String(), int(code), 7})
	}
	ping := AppendFrame(nil, CmdPing, 2, nil)
	waits("nothing", "", nil)
	waits("3 bytes", "", ping[:3])
	waits("4 bytes", "a good length alone", ping[:4])
	waits("11 bytes", "one short of a header", ping[:11])
	waits("header, body to come", "", header(9, 1, 0, CmdSync, 7))
	waits("greatest body to come", "", header(8+DefaultMaxBody, 1, 0, CmdSend, 7))
	waits("over the limit, header not all there", "the limit is held against whole headers, so that ERROR can echo the request id", header(0xffffffff, 1, 0, CmdSend, 7)[:11])
	frame("length 0", "decided from 4 bytes", []byte{0, 0, 0, 0}, CodeBadFrame, 0)
	frame("length 7", "", []byte{0, 0, 0, 7, 1, 0, 0, 3, 0, 0, 0, 2}, CodeBadFrame, 0)
	frame("version 0", "decided from 5 bytes", []byte{0, 0, 0, 8, 0}, CodeUnsupportedVersion, 0)
	frame("version 2", "what stands behind the version is not read", header(8, 2, 0, CmdPing, 7), CodeUnsupportedVersion, 0)
	frame("version 255, over the limit", "", header(0xffffffff, 255, 0, CmdPing, 7), CodeUnsupportedVersion, 0)
	frame("http", "GET / HTTP/1.1", []byte("GET / HTTP/1.1\r\n"), CodeUnsupportedVersion, 0)
	frame("flags 1", "", header(8, 1, 1, CmdPing, 7), CodeBadFrame, 7)
	frame("flags 128", "", header(8, 1, 128, CmdPing, 7), CodeBadFrame, 7)
	frame("one byte over the limit", "no byte of the body is there, or needed", header(8+DefaultMaxBody+1, 1, 0, CmdSend, 7), CodeTooLarge, 7)
	frame("4 GiB", "", header(0xffffffff, 1, 0, CmdSend, maxUint32), CodeTooLarge, maxUint32)

	conv := []byte{0xa5, 'p', ':', 'a', ':', 'b'}
	body("a map", "", CmdRead, []byte{0x80}, CodeBadFrame)
	body("a number", "", CmdRead, []byte{1}, CodeBadFrame)
	body("a string", "", CmdRead, conv, CodeBadFrame)
	body("never used code", "", CmdRead, []byte{0xc1}, CodeBadFrame)
	body("bytes after the array", "", CmdRead, concat([]byte{0x92}, conv, []byte{1, 0xc0}), CodeBadFrame)
	body("two arrays", "", CmdRead, []byte{0x90, 0x90}, CodeBadFrame)
	body("array head cut short", "", CmdRead, []byte{0xdc, 0}, CodeBadFrame)
	body("fewer elements than announced", "", CmdRead, concat([]byte{0x92}, conv), CodeBadFrame)
	body("string cut short", "", CmdRead, []byte{0x91, 0xa5, 'p', ':'}, CodeBadFrame)
	body("integer cut short", "", CmdRead, concat([]byte{0x92}, conv, []byte{0xcd, 1}), CodeBadFrame)
	body("string for an integer", "", CmdRead, concat([]byte{0x92}, conv, conv), CodeBadFrame)
	body("float for an integer", "", CmdRead, concat([]byte{0x92}, conv, []byte{0xca, 0, 0, 0, 0}), CodeBadFrame)
	body("bool for an integer", "", CmdRead, concat([]byte{0x92}, conv, []byte{0xc3}), CodeBadFrame)
	body("integer for a string", "", CmdRead, []byte{0x91, 1}, CodeBadFrame)
	body("bin for a string", "str may stand for bin, not the other way", CmdRead, []byte{0x91, 0xc4, 1, 'a'}, CodeBadFrame)
	body("array for a bin", "", CmdSignal, []byte{0x94, 1, 0xa1, 'b', 1, 0x90}, CodeBadFrame)
	body("integer for a bool", "", CmdPull, concat([]byte{0x95}, conv, []byte{0, 0, 0, 1}), CodeBadFrame)
	body("string for a list", "", CmdDelete, concat([]byte{0x92}, conv, conv), CodeBadFrame)
	body("map for a nested array", "", CmdPush, []byte{0x91, 0x91, 0x80}, CodeBadFrame)
	body("array32 of 4 billion", "", CmdDelete, concat([]byte{0x92}, conv, []byte{0xdd, 0xff, 0xff, 0xff, 0xff}), CodeBadFrame)
	body("body array32 of 4 billion", "", CmdRead, []byte{0xdd, 0xff, 0xff, 0xff, 0xff}, CodeBadFrame)
	body("str32 of 4 GiB", "", CmdRead, []byte{0x91, 0xdb, 0xff, 0xff, 0xff, 0xff}, CodeBadFrame)
	body("bin32 of 4 GiB", "", CmdSignal, []byte{0x94, 1, 0xa1, 'b', 1, 0xc6, 0xff, 0xff, 0xff, 0xff}, CodeBadFrame)
	body("extra map32 of 4 billion", "", CmdRead, concat([]byte{0x93}, conv, []byte{1, 0xdf, 0xff, 0xff, 0xff, 0xff}), CodeBadFrame)
	body("extra ext32 of 4 GiB", "", CmdRead, concat([]byte{0x93}, conv, []byte{1, 0xc9, 0xff, 0xff, 0xff, 0xff, 1}), CodeBadFrame)
	body("extra element 17 arrays deep", "", CmdRead, concat([]byte{0x93}, conv, []byte{1}, bytes.Repeat([]byte{0x91}, 16), []byte{0x90}), CodeBadFrame)
	body("arrays for a string, 100 deep", "", CmdRead, concat([]byte{0x91}, bytes.Repeat([]byte{0x91}, 100), []byte{0x90}), CodeBadFrame)

	body("negative seq", "", CmdRead, concat([]byte{0x92}, conv, []byte{0xff}), CodeInvalidArgument)
	body("seq of 2^53", "", CmdRead, concat([]byte{0x92}, conv, []byte{0xcf, 0, 0x20, 0, 0, 0, 0, 0, 0}), CodeInvalidArgument)
	body("seq of 2^64 - 1", "", CmdRead, concat([]byte{0x92}, conv, []byte{0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), CodeInvalidArgument)
	body("time of -2^53", "", CmdPong, []byte{0x91, 0xd3, 0xff, 0xe0, 0, 0, 0, 0, 0, 0}, CodeInvalidArgument)
	body("kind of 256", "", CmdSend, []byte{0x92, 0xc0, 0xcd, 1, 0}, CodeInvalidArgument)
	body("limit of 65536", "", CmdPull, []byte{0x94, 0xc0, 0, 0, 0xce, 0, 1, 0, 0}, CodeInvalidArgument)
	body("flags of 2^32", "", CmdSend, []byte{0x96, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0}, CodeInvalidArgument)
	body("client_msg_id of 65 bytes", "", CmdSend, concat([]byte{0x91, 0xd9, 65}, bytes.Repeat([]byte{'c'}, 65)), CodeInvalidArgument)
	body("string that is not UTF-8", "", CmdSend, []byte{0x91, 0xa2, 0xc3, 0x28}, CodeInvalidArgument)
	body("reaction of 33 bytes", "", CmdReact, concat([]byte{0x93}, conv, []byte{1, 0xd9, 33}, bytes.Repeat([]byte{'r'}, 33)), CodeInvalidArgument)
	body("17 reactions", "", CmdPush, concat([]byte{0x91, 0x91, 0xdc, 0, 17}, bytes.Repeat([]byte{0xc0}, 16), []byte{0xdc, 0, 17}, bytes.Repeat([]byte{0xc0}, 17)), CodeInvalidArgument)
	body("65 users of a reaction", "", CmdPush, concat([]byte{0x91, 0x91, 0xdc, 0, 17}, bytes.Repeat([]byte{0xc0}, 16), []byte{0x91, 0x94, 0xc0, 0xc0, 0xc0, 0xdc, 0, 65}, bytes.Repeat([]byte{0xc0}, 65)), CodeInvalidArgument)
	body("201 seqs", "", CmdDelete, concat([]byte{0x92}, conv, []byte{0xdc, 0, 201}, bytes.Repeat([]byte{1}, 201)), CodeInvalidArgument)
	body("101 user ids", "", CmdGetProfiles, concat([]byte{0x91, 0xdc, 0, 101}, bytes.Repeat([]byte{0xa1, 'u'}, 101)), CodeInvalidArgument)
	return list
}

func streamSources() []stream {
	var list []stream
	add := func(name string, rest []byte, frames ...source) {
		s := stream{Name: name, Rest: len(rest), Frames: []streamFrame{}}
		var b []byte
		for _, f := range frames {
			body := AppendBody(nil, f.body)
			b = AppendRawFrame(b, f.cmd, f.id, body)
			s.Frames = append(s.Frames, streamFrame{f.cmd, f.id, hex.EncodeToString(body)})
		}
		s.Bytes = hex.EncodeToString(append(b, rest...))
		list = append(list, s)
	}
	ping := source{cmd: CmdPing, id: 2, body: &Empty{}}
	session, messages := sources["session.json"], sources["messages.json"]
	add("one", nil, ping)
	add("three empty ones", nil, ping, ping, source{cmd: CmdUnread, id: 3, body: &Empty{}})
	add("a session's first frames", nil, session[0], messages[0], ping, messages[1])
	add("a body that looks like a frame", nil, source{cmd: CmdSignal, body: &Signal{Data: AppendFrame(nil, CmdPing, 9, nil)}}, ping)
	add("a command that nobody knows", nil, source{cmd: 65535, id: 4, body: &Empty{}}, ping)
	add("the next one is not all there", AppendFrame(nil, CmdPing, 3, nil)[:7], ping)
	return list
}
