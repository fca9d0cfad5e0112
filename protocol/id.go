package protocol

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// MaxIDLen is the longest user or group id, in bytes.
const MaxIDLen = 64

// idByte marks the bytes of [A-Za-z0-9._@+=|-].
var idByte = func() (t [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@+=|-" {
		t[c] = true
	}
	return t
}()

// ValidID tells whether s can be a user or group id: 1 to 64 bytes of [A-Za-z0-9._@+=|-]. A colon is not among them, so no two pairs
// of users share a conversation id.
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > MaxIDLen {
		return false
	}
	for i := range len(s) {
		if !idByte[s[i]] {
			return false
		}
	}
	return true
}

// DirectConversation is the id of the conversation of two users: p:<a>:<b>, in byte order. Both must be valid ids; with a colon in one, two
// pairs could share a conversation.
func DirectConversation(a, b string) string {
	if b < a {
		a, b = b, a
	}
	return "p:" + a + ":" + b
}

// GroupConversation is the id of a group's conversation.
func GroupConversation(group string) string { return "g:" + group }

// UserStream is the id of a user's own stream.
func UserStream(user string) string { return "u:" + user }

// ConversationKind is what a conversation's id says of it.
type ConversationKind uint8

// The kinds of a conversation. KindDirect and KindGroup are also the kinds of a SEND.
const (
	KindInvalid ConversationKind = 0
	KindDirect  ConversationKind = 1
	KindGroup   ConversationKind = 2
	KindUser    ConversationKind = 3
)

// ParseConversation takes a conversation's id apart: a and b are the users of a direct one in byte order; a alone is the
// group, or the owner of a user's stream. KindInvalid when it is no id.
func ParseConversation(id string) (kind ConversationKind, a, b string) {
	if len(id) < 3 || id[1] != ':' {
		return KindInvalid, "", ""
	}
	rest := id[2:]
	switch id[0] {
	case 'p':
		a, b, _ = strings.Cut(rest, ":")
		if ValidID(a) && ValidID(b) && a <= b {
			return KindDirect, a, b
		}
	case 'g':
		if ValidID(rest) {
			return KindGroup, rest, ""
		}
	case 'u':
		if ValidID(rest) {
			return KindUser, rest, ""
		}
	}
	return KindInvalid, "", ""
}

// MessageID is a server_msg_id before it is written as text: a hash over who sent what to where, so that a repeated SEND gets the
// same one though nothing of the first is remembered.
type MessageID [16]byte

// NewMessageID hashes the length-prefixed conversation, sender and client_msg_id: SHA-256, cut to 128 bits.
func NewMessageID(conversation, sender, clientMsgID string) MessageID {
	var scratch [512]byte
	b := scratch[:0]
	for _, s := range [...]string{conversation, sender, clientMsgID} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return MessageID(sum[:16])
}

// MessageIDLen is the length of a server_msg_id as text.
const MessageIDLen = 22

// Append appends the id as text: base64url without padding, 22 bytes.
func (id MessageID) Append(dst []byte) []byte {
	return base64.RawURLEncoding.AppendEncode(dst, id[:])
}

// String is the id as text.
func (id MessageID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseMessageID reads what Append wrote, and nothing else: an id has one text.
func ParseMessageID(s string) (id MessageID, ok bool) {
	if len(s) != MessageIDLen {
		return id, false
	}
	n, err := base64.RawURLEncoding.Strict().Decode(id[:], []byte(s))
	return id, err == nil && n == len(id)
}
