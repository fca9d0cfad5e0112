package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/parley-im/parley/storage"
)

// Everything is in one ordered map of keys to values. Ids hold no byte below 0x20 and no 0xff, so a separator ends one.
//
//	'#' name                                           what the store knows of itself (open.go)
//	'd' user 00 device                                 the device was signed out: layout, uvarint stamp
//	'l' user 00 conversation                           the conversation is on the user's list: empty
//	'm' conversation 00 user                           a row: what is the user's alone
//	'm' conversation 00 ff                             the latest change that all see: layout, uvarints stamp, change_seq
//	'm' conversation 01 run                            a run: consecutive messages that were written together
//	'm' conversation 01 ^first ff ^seq                 the labels of a message of the run from first (labels.go)
//	'm' conversation 02 user 00 chunk                  what the user deleted: layout, uvarint stamp, a bit for each seq
//	'm' conversation 03 ^seq kind user                 a reaction that the labels do not name: layout, uvarint stamp
//	'm' conversation 04 change_seq                     the change of that number: layout, uvarints seq, time
//
// A run's key ends in its head, so that where a conversation stands is read without its messages, and a value is nothing but
// the messages as they are pushed (protocol.AppendBody of each):
//
//	0        8        9
//	├────────┼────────┼───────┬───────┬──────────┬───────┬───────┬─────────┬─────────┬────────┐
//	│ ^first │ layout │ count │ stamp │ log time │ after │ after │ counted │ counted │ active │
//	├────────┼────────┼───────┴───────┴──────────┴───────┴───────┴─────────┴─────────┴────────┤
//	│ 8 BE   │ 1      │ uvarints, but active: a varint                                         │
//	└────────┴────────┴────────────────────────────────────────────────────────────────────────┘
//
// ^first is the complement of the first message's seq: the newest run of a conversation comes first, right after the rows, and reading
// from the newest down is reading forward. Labels come right after their run, so that a reader of runs meets them on its way, and where there
// are none it does nothing for them; the newest run comes before its labels, so that they do not stand before where a conversation stands. after are the running counts at the run's end, counted how much of them is the
// run's own; active is the log time minus State.ActiveMS. Runs of a conversation are dense: each begins where the one before ended.
//
// A row: layout, then the uvarints stamp, read_seq, read_count, min_seq.
//
// layout is 1 everywhere; a store with another is refused (runs, rows) rather than misread. Numbers of 8 bytes are big-endian; ^n is the
// complement, so that the highest comes first. A kind has a byte with its length before it. A chunk is of 512 seqs; bits that are 0 at the
// end are left out.
const (
	metaSpace   = '#'
	deviceSpace = 'd'
	listSpace   = 'l'
	talkSpace   = 'm'

	endOfUser = 0x00 // after a user's id
	rowMark   = 0x00 // after a conversation's id: a row, or the latest change
	runMark   = 0x01 // a run, or labels
	hideMark  = 0x02 // what a user deleted
	reactMark = 0x03 // a reaction
	noteMark  = 0x04 // a change
	endMark   = 0x05 // above all of them

	headEnd  = 0xff // in place of a user: the latest change. No id has that byte
	labelEnd = 0xff // in place of a layout: labels

	layout = 1

	chunkSeqs = 512 // their bits take 64 bytes, so that the value stays in its table
)

// maxHead is the most bytes of a run's key after the run mark.
const maxHead = 8 + 1 + 8*binary.MaxVarintLen64

// badID tells whether s can not be part of a key. Callers check ids by their own rules; this one only keeps the keys apart.
func badID(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0xff {
			return true
		}
	}
	return s == ""
}

func appendKey(dst []byte, space byte, id string, mark byte) []byte {
	dst = append(dst, space)
	dst = append(dst, id...)
	return append(dst, mark)
}

func rowKey(dst []byte, conversation, user string) []byte {
	return append(appendKey(dst, talkSpace, conversation, rowMark), user...)
}

func listKey(dst []byte, user, conversation string) []byte {
	return append(appendKey(dst, listSpace, user, endOfUser), conversation...)
}

func deviceKey(dst []byte, user, device string) []byte {
	return append(appendKey(dst, deviceSpace, user, endOfUser), device...)
}

// seekRun is a key that is at or before the run with seq, and after all runs above it.
func seekRun(dst []byte, conversation string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendKey(dst, talkSpace, conversation, runMark), ^seq)
}

// headKey is that of the latest change.
func headKey(dst []byte, conversation string) []byte {
	return append(appendKey(dst, talkSpace, conversation, rowMark), headEnd)
}

// labelKey is that of the labels of a message of the run from first.
func labelKey(dst []byte, conversation string, first, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(seekRun(dst, conversation, first), labelEnd), ^seq)
}

// cutLabel takes a key after the run mark apart.
func cutLabel(b []byte) (first, seq uint64, ok bool) {
	if len(b) != 17 || b[8] != labelEnd {
		return 0, 0, false
	}
	return ^binary.BigEndian.Uint64(b), ^binary.BigEndian.Uint64(b[9:]), true
}

// hideKey is that of the chunk of seq.
func hideKey(dst []byte, conversation, user string, seq uint64) []byte {
	dst = append(append(appendKey(dst, talkSpace, conversation, hideMark), user...), endOfUser)
	return binary.BigEndian.AppendUint64(dst, seq/chunkSeqs)
}

// seekReaction is a key before all reactions to seq, and after those to messages above it.
func seekReaction(dst []byte, conversation string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendKey(dst, talkSpace, conversation, reactMark), ^seq)
}

func reactionKey(dst []byte, conversation string, seq uint64, kind, user string) []byte {
	dst = append(seekReaction(dst, conversation, seq), byte(len(kind)))
	return append(append(dst, kind...), user...)
}

func noteKey(dst []byte, conversation string, changeSeq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendKey(dst, talkSpace, conversation, noteMark), changeSeq)
}

// head is what a run's key says.
type head struct {
	first, count  uint64
	stamp         storage.Stamp
	logTimeMS     int64
	before, after storage.Counts
	activeMS      int64
}

// last is the seq of the run's last message.
func (h *head) last() uint64 { return h.first + h.count - 1 }

func (h *head) state() storage.State {
	return storage.State{Tail: h.last(), Counts: h.after, ActiveMS: h.activeMS, Stamp: h.stamp}
}

// appendHead appends the end of the run's key, after the run mark.
func appendHead(dst []byte, r *storage.Run, stamp storage.Stamp) []byte {
	dst = binary.BigEndian.AppendUint64(dst, ^r.First)
	dst = append(dst, layout)
	dst = binary.AppendUvarint(dst, uint64(len(r.Messages)))
	dst = binary.AppendUvarint(dst, uint64(stamp))
	dst = binary.AppendUvarint(dst, uint64(r.LogTimeMS))
	dst = binary.AppendUvarint(dst, r.After[0])
	dst = binary.AppendUvarint(dst, r.After[1])
	dst = binary.AppendUvarint(dst, r.After[0]-r.Before[0])
	dst = binary.AppendUvarint(dst, r.After[1]-r.Before[1])
	return binary.AppendVarint(dst, r.LogTimeMS-r.ActiveMS)
}

// errDamaged is in the chain of every error that says that the bytes on the disk are not what was written.
var errDamaged = errors.New("damaged")

func damaged(what string, key []byte) error {
	return fmt.Errorf("embedded: %s at key %q is %w: restore the data folder from a backup", what, key, errDamaged)
}

// parseHead reads the end of a run's key, after the run mark.
func parseHead(b []byte) (h head, ok bool) {
	if len(b) < 9 || b[8] != layout {
		return h, false
	}
	h.first = ^binary.BigEndian.Uint64(b)
	f := fields{b: b[9:]}
	h.count = f.uint()
	h.stamp = storage.Stamp(f.uint())
	h.logTimeMS = int64(f.uint())
	h.after = storage.Counts{f.uint(), f.uint()}
	h.before = storage.Counts{h.after[0] - f.uint(), h.after[1] - f.uint()}
	h.activeMS = h.logTimeMS - f.int()
	return h, f.end() && h.first > 0 && h.count > 0
}

func appendRow(dst []byte, v *storage.View) []byte {
	dst = append(dst, layout)
	dst = binary.AppendUvarint(dst, uint64(v.Stamp))
	dst = binary.AppendUvarint(dst, v.ReadSeq)
	dst = binary.AppendUvarint(dst, v.ReadCount)
	return binary.AppendUvarint(dst, v.MinSeq)
}

// parseRow reads a row's value; the conversation is in its key.
func parseRow(b []byte, conversation string) (v storage.View, ok bool) {
	f := layoutFields(b)
	v = storage.View{Conversation: conversation, Stamp: storage.Stamp(f.uint()), ReadSeq: f.uint(), ReadCount: f.uint(), MinSeq: f.uint()}
	return v, f.end()
}

// appendChange is the value of the latest change, and parseChange reads it.
func appendChange(dst []byte, stamp storage.Stamp, changeSeq uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(dst, layout), uint64(stamp)), changeSeq)
}

func parseChange(b []byte) (stamp storage.Stamp, changeSeq uint64, ok bool) {
	f := layoutFields(b)
	stamp, changeSeq = storage.Stamp(f.uint()), f.uint()
	return stamp, changeSeq, f.end() && changeSeq > 0
}

func appendNote(dst []byte, n storage.Note) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(dst, layout), n.Seq), uint64(n.TimeMS))
}

// parseNote reads a note's value; its number is in its key.
func parseNote(b []byte, changeSeq uint64) (n storage.Note, ok bool) {
	f := layoutFields(b)
	n = storage.Note{ChangeSeq: changeSeq, Seq: f.uint(), TimeMS: int64(f.uint())}
	return n, f.end() && n.Seq > 0
}

// appendHidden is the value of a chunk, and parseHidden reads it. bits alias b.
func appendHidden(dst []byte, stamp storage.Stamp, bits []byte) []byte {
	return append(binary.AppendUvarint(append(dst, layout), uint64(stamp)), bits...)
}

func parseHidden(b []byte) (stamp storage.Stamp, bits []byte, ok bool) {
	f := layoutFields(b)
	stamp = storage.Stamp(f.uint())
	return stamp, f.b, !f.bad && len(f.b) <= chunkSeqs/8
}

// fields reads varints one after the other. Once bad, it returns zeros.
type fields struct {
	b   []byte
	bad bool
}

// layoutFields are those after the layout.
func layoutFields(b []byte) fields {
	if len(b) == 0 || b[0] != layout {
		return fields{bad: true}
	}
	return fields{b: b[1:]}
}

// bytes reads a length and so many bytes, which alias b.
func (f *fields) bytes() []byte {
	n := f.uint()
	if f.bad || n > uint64(len(f.b)) {
		f.bad = true
		return nil
	}
	b := f.b[:n:n]
	f.b = f.b[n:]
	return b
}

func (f *fields) uint() uint64 {
	n, size := binary.Uvarint(f.b)
	return n * f.advance(size)
}

func (f *fields) int() int64 {
	n, size := binary.Varint(f.b)
	return n * int64(f.advance(size))
}

// advance returns 1, or 0 when there was no number.
func (f *fields) advance(size int) uint64 {
	if f.bad || size <= 0 {
		f.bad = true
		return 0
	}
	f.b = f.b[size:]
	return 1
}

func (f *fields) end() bool { return !f.bad && len(f.b) == 0 }
