package embedded

import (
	"bytes"
	"encoding/binary"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// The labels of a message that all see are one value, written whole with each change:
//
//	layout │ stamp │ change_seq │ what │ revoke │ edit │ reactions
//
// what is a byte that says which of the three there are. Revoke: role, time, user. Edit: content_type, time, content. Reactions: how many, and for
// each kind, count, how many users, and them. Numbers are uvarints, texts have their length before them.
const (
	hasRevoke    = 1 << 0
	hasEdit      = 1 << 1
	hasReactions = 1 << 2
)

func appendLabels(dst []byte, stamp storage.Stamp, changeSeq uint64, l *storage.Labels) []byte {
	dst = binary.AppendUvarint(append(dst, layout), uint64(stamp))
	dst = binary.AppendUvarint(dst, changeSeq)
	at := len(dst)
	dst = append(dst, 0)
	if r := l.Revoke; r != nil {
		dst[at] |= hasRevoke
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.Role)), uint64(r.TimeMS))
		dst = appendText(dst, r.User)
	}
	if e := l.Edit; e != nil {
		dst[at] |= hasEdit
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(e.ContentType)), uint64(e.TimeMS))
		dst = appendText(dst, e.Content)
	}
	if len(l.Reactions) > 0 {
		dst[at] |= hasReactions
		dst = appendReactions(dst, l.Reactions)
	}
	return dst
}

func appendReactions(dst []byte, list []storage.Reaction) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		dst = binary.AppendUvarint(appendText(dst, list[i].Kind), uint64(list[i].Count))
		dst = binary.AppendUvarint(dst, uint64(len(list[i].Users)))
		for _, user := range list[i].Users {
			dst = appendText(dst, user)
		}
	}
	return dst
}

func appendText[T ~string | ~[]byte](dst []byte, text T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// parseLabelHead reads the beginning of the labels of a message.
func parseLabelHead(b []byte) (stamp storage.Stamp, changeSeq uint64, rest fields, ok bool) {
	f := layoutFields(b)
	stamp, changeSeq = storage.Stamp(f.uint()), f.uint()
	return stamp, changeSeq, f, !f.bad && changeSeq > 0
}

// parseLabels reads labels into memory of their own.
func parseLabels(b []byte) (l storage.Labels, ok bool) {
	_, changeSeq, f, ok := parseLabelHead(b)
	if !ok || len(f.b) == 0 {
		return l, false
	}
	l.ChangeSeq = changeSeq
	what := f.b[0]
	f.b = f.b[1:]
	if what&hasRevoke != 0 {
		l.Revoke = &protocol.Revoke{Role: protocol.Role(f.uint()), TimeMS: int64(f.uint()), User: string(f.bytes())}
	}
	if what&hasEdit != 0 {
		l.Edit = &storage.Edit{ContentType: uint16(f.uint()), TimeMS: int64(f.uint()), Content: bytes.Clone(f.bytes())}
	}
	if what&hasReactions != 0 {
		l.Reactions = f.reactions()
	}
	return l, f.end() && what < 1<<3
}

// reactions reads what appendReactions wrote. Each takes a byte at least, so a number that lies ends at the end.
func (f *fields) reactions() (list []storage.Reaction) {
	for n := f.uint(); n > 0 && !f.bad; n-- {
		r := storage.Reaction{Kind: string(f.bytes()), Count: uint32(f.uint())}
		for users := f.uint(); users > 0 && !f.bad; users-- {
			r.Users = append(r.Users, string(f.bytes()))
		}
		list = append(list, r)
	}
	return list
}
