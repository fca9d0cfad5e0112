package main

import (
	"encoding/json"
	"io"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// What "admin inspect --json" prints. Times are in milliseconds; a content is text when it is UTF-8 of type 1, else base64.

type jsonInspection struct {
	Conversation string       `json:"conversation"`
	MaxSeq       uint64       `json:"max_seq"`
	ChangeSeq    uint64       `json:"change_seq"`
	ActiveMS     int64        `json:"active_ms"`
	Counts       [2]uint64    `json:"counts"`
	Stamp        uint64       `json:"stamp"`
	Rows         []jsonRow    `json:"rows"`
	Buckets      []jsonBucket `json:"buckets"`
	Messages     []jsonSlot   `json:"messages,omitempty"`
}

type jsonRow struct {
	User      string `json:"user"`
	ReadSeq   uint64 `json:"read_seq"`
	ReadCount uint64 `json:"read_count"`
	MinSeq    uint64 `json:"min_seq"`
	Hidden    uint64 `json:"hidden"`
	Stamp     uint64 `json:"stamp"`
}

type jsonBucket struct {
	ID     string `json:"id"`
	First  uint64 `json:"first"`
	Last   uint64 `json:"last"`
	Slots  int    `json:"slots"`
	Layout int    `json:"layout,omitempty"`
	Rev    uint64 `json:"rev,omitempty"`
	Bytes  int    `json:"bytes"`
	Sealed bool   `json:"sealed,omitempty"`
}

type jsonSlot struct {
	Seq         uint64         `json:"seq"`
	Bucket      string         `json:"bucket"`
	Bytes       int            `json:"bytes"`
	LogTimeMS   int64          `json:"log_time_ms"`
	Counts      [2]uint64      `json:"counts"`
	Gone        bool           `json:"gone,omitempty"`
	ServerMsgID string         `json:"server_msg_id,omitempty"`
	ClientMsgID string         `json:"client_msg_id,omitempty"`
	Sender      string         `json:"sender,omitempty"`
	SendTimeMS  int64          `json:"send_time_ms,omitempty"`
	ContentType uint16         `json:"content_type,omitempty"`
	Text        string         `json:"text,omitempty"`
	Content     []byte         `json:"content,omitempty"`
	Flags       uint32         `json:"flags,omitempty"`
	Mentions    []string       `json:"mentions,omitempty"`
	Revoke      *jsonRevoke    `json:"revoke,omitempty"`
	Edit        *jsonEdit      `json:"edit,omitempty"`
	Reactions   []jsonReaction `json:"reactions,omitempty"`
	ChangeSeq   uint64         `json:"change_seq,omitempty"`
	DeletedBy   []string       `json:"deleted_by,omitempty"`
	DeletedMore bool           `json:"deleted_by_more,omitempty"`
}

type jsonRevoke struct {
	User   string `json:"user"`
	Role   string `json:"role"`
	TimeMS int64  `json:"time_ms"`
}

type jsonEdit struct {
	ContentType uint16 `json:"content_type"`
	Text        string `json:"text,omitempty"`
	Content     []byte `json:"content,omitempty"`
	TimeMS      int64  `json:"time_ms"`
}

type jsonReaction struct {
	Reaction string   `json:"reaction"`
	Count    uint32   `json:"count"`
	Users    []string `json:"users"`
}

func inspectJSON(in *storage.Inspection, out io.Writer) error {
	j := jsonInspection{
		Conversation: in.Conversation, MaxSeq: in.State.Tail, ChangeSeq: in.ChangeSeq, ActiveMS: in.State.ActiveMS,
		Counts: in.State.Counts, Stamp: uint64(in.State.Stamp), Rows: []jsonRow{}, Buckets: []jsonBucket{},
	}
	for _, r := range in.Rows {
		j.Rows = append(j.Rows, jsonRow{r.User, r.ReadSeq, r.ReadCount, r.MinSeq, r.Hidden, uint64(r.Stamp)})
	}
	for _, b := range in.Buckets {
		j.Buckets = append(j.Buckets, jsonBucket(b))
	}
	for i := range in.Slots {
		j.Messages = append(j.Messages, slotJSON(&in.Slots[i]))
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(&j)
}

func slotJSON(s *storage.InspectedSlot) jsonSlot {
	m, l := &s.Message, &s.Labels
	j := jsonSlot{
		Seq: m.Seq, Bucket: s.Bucket, Bytes: s.Bytes, LogTimeMS: s.LogTimeMS, Counts: s.Counts, Gone: l.Gone,
		ServerMsgID: m.ServerMsgID, ClientMsgID: m.ClientMsgID, Sender: m.Sender, SendTimeMS: m.SendTimeMS, ContentType: m.ContentType,
		Flags: m.Flags, Mentions: m.Mentions, ChangeSeq: l.ChangeSeq, DeletedBy: s.DelList, DeletedMore: s.DelMore,
	}
	j.Text, j.Content = contentJSON(m.ContentType, m.Content)
	if r := l.Revoke; r != nil {
		j.Revoke = &jsonRevoke{r.User, roleName(r.Role), r.TimeMS}
	}
	if e := l.Edit; e != nil {
		j.Edit = &jsonEdit{ContentType: e.ContentType, TimeMS: e.TimeMS}
		j.Edit.Text, j.Edit.Content = contentJSON(e.ContentType, e.Content)
	}
	for _, r := range l.Reactions {
		j.Reactions = append(j.Reactions, jsonReaction{r.Kind, r.Count, r.Users})
	}
	return j
}

func contentJSON(contentType uint16, content []byte) (text string, other []byte) {
	if contentType == protocol.ContentText {
		return string(content), nil
	}
	return "", content
}
