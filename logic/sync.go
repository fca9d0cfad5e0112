package logic

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

const defaultSyncLimit = 50

// sync answers which conversations changed since a token, most recently active first, in pages. What the token of the last page covers
// was fixed when the first page was read, and goes from page to page in the cursor: what changes meanwhile comes again rather than being missed.
func (l *Logic) sync(s *session, q *protocol.Sync) (*protocol.SyncReply, error) {
	at, err := l.syncStart(q)
	if err != nil {
		return nil, err
	}
	entries, upTo, err := l.o.Directory.Changed(l.ctx, s.User, at.since)
	if err != nil {
		return nil, err
	}
	if at.since > upTo { // a token of a future that this store has not had: the list is read anew
		at = syncCursor{reset: true}
		if entries, _, err = l.o.Directory.Changed(l.ctx, s.User, 0); err != nil {
			return nil, err
		}
	}
	if at.upTo == 0 {
		at.upTo = upTo
	}
	return l.syncPage(s, q, at, entries)
}

// syncStart is where the request goes on.
func (l *Logic) syncStart(q *protocol.Sync) (syncCursor, error) {
	if q.Cursor != "" {
		at, ok := parseCursor(q.Cursor)
		if !ok {
			return at, invalid("cursor is not one of ours")
		}
		return at, nil
	}
	if q.Token == "" {
		return syncCursor{}, nil
	}
	since, ok := parseToken(q.Token, l.epoch)
	return syncCursor{since: since, reset: !ok}, nil
}

// syncPage cuts the next page out of the entries.
func (l *Logic) syncPage(s *session, q *protocol.Sync, at syncCursor, entries []storage.Entry) (*protocol.SyncReply, error) {
	slices.SortFunc(entries, compareEntries)
	if at.conversation != "" {
		last := storage.Entry{View: storage.View{Conversation: at.conversation}, State: storage.State{ActiveMS: at.activeMS}}
		n, found := slices.BinarySearchFunc(entries, last, compareEntries)
		if found {
			n++
		}
		entries = entries[n:]
	}
	reply := &protocol.SyncReply{Reset: at.reset}
	room := l.o.MaxDown - replyOverhead - 2*len(l.epoch) - 2*conversationBytes
	limit := pageLimit(q.Limit, defaultSyncLimit, protocol.MaxArray)
	for i := range entries {
		c, err := l.conversation(s, &entries[i])
		if err != nil {
			return nil, err
		}
		size := conversationBytes
		if c.LastMessage != nil {
			size += encodedSize(c.LastMessage)
		}
		if room -= size; i > 0 && room < 0 || i == limit {
			return reply, nil
		}
		reply.Conversations = append(reply.Conversations, c)
		at.conversation, at.activeMS = c.ConversationID, entries[i].State.ActiveMS
		reply.NextCursor = at.String()
	}
	reply.NextCursor, reply.Token = "", formatToken(at.upTo, l.epoch)
	return reply, nil
}

// compareEntries is the order of the list: the most recently active first.
func compareEntries(a, b storage.Entry) int {
	return cmp.Or(cmp.Compare(b.State.ActiveMS, a.State.ActiveMS), cmp.Compare(a.Conversation, b.Conversation))
}

// A token is base64url over: 1, uvarint stamp, epoch. A cursor: 1, uvarint since, uvarint upTo, reset, uvarint activeMS, conversation of the
// last entry that was sent. Both are opaque to clients, and no credential: whose list is read is the session's user's.
const syncVersion = 1

type syncCursor struct {
	since, upTo  storage.Stamp
	reset        bool
	activeMS     int64
	conversation string
}

// String is the cursor as it is sent.
func (c syncCursor) String() string {
	b := binary.AppendUvarint([]byte{syncVersion}, uint64(c.since))
	b = binary.AppendUvarint(b, uint64(c.upTo))
	b = append(b, 0)
	if c.reset {
		b[len(b)-1] = 1
	}
	b = binary.AppendVarint(b, c.activeMS)
	return base64.RawURLEncoding.EncodeToString(append(b, c.conversation...))
}

func parseCursor(s string) (c syncCursor, ok bool) {
	b, ok := opaque(s)
	if !ok {
		return c, false
	}
	since, b, ok1 := uvarint(b)
	upTo, b, ok2 := uvarint(b)
	if !ok1 || !ok2 || len(b) == 0 || b[0] > 1 {
		return c, false
	}
	c.since, c.upTo, c.reset = storage.Stamp(since), storage.Stamp(upTo), b[0] == 1
	active, n := binary.Varint(b[1:])
	if n <= 0 {
		return c, false
	}
	c.activeMS, c.conversation = active, string(b[1+n:])
	kind, _, _ := protocol.ParseConversation(c.conversation)
	return c, kind != protocol.KindInvalid
}

func formatToken(stamp storage.Stamp, epoch string) string {
	b := binary.AppendUvarint([]byte{syncVersion}, uint64(stamp))
	return base64.RawURLEncoding.EncodeToString(append(b, epoch...))
}

// parseToken returns the stamp of a token of this epoch. ok is false for any other, or a damaged one: then the whole list is due.
func parseToken(s, epoch string) (since storage.Stamp, ok bool) {
	b, ok := opaque(s)
	if !ok {
		return 0, false
	}
	stamp, b, ok := uvarint(b)
	if !ok || string(b) != epoch {
		return 0, false
	}
	return storage.Stamp(stamp), true
}

func opaque(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != syncVersion {
		return nil, false
	}
	return b[1:], true
}

func uvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}
