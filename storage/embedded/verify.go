package embedded

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Verify implements storage.Operator. It reads the store as it is at one moment, what is in flight included.
//
// Of each conversation: every key and value can be read; runs are dense from 1 on and their heads say what their messages add up to; ids can be
// read; labels are of messages that there are, and each has its note and each note its label; what users deleted and reacted to is there; rows
// are not ahead, and stand on their users' lists. And every entry of a list has its row.
func (s *Store) Verify(ctx context.Context, fault func(storage.Fault), progress func(storage.Verified)) (storage.Verified, error) {
	if !s.gate.enter() {
		return storage.Verified{}, storage.ErrClosed
	}
	defer s.gate.leave()
	snap := s.db.NewSnapshot()
	v := &verifier{ctx: ctx, snap: snap, fault: fault, progress: progress}
	err := v.all()
	return v.done, cmp.Or(err, snap.Close())
}

// verifier goes over all keys of a store.
type verifier struct {
	ctx      context.Context
	snap     *pebble.Snapshot
	fault    func(storage.Fault)
	progress func(storage.Verified)
	done     storage.Verified
	talk     *verifiedTalk
}

func (v *verifier) found(conversation string, seq uint64, format string, args ...any) {
	v.done.Faults++
	v.fault(storage.Fault{Conversation: conversation, Seq: seq, What: fmt.Sprintf(format, args...)})
}

func (v *verifier) all() (err error) {
	it, err := v.snap.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		if err := v.key(it.Key(), it); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	return v.endTalk()
}

func (v *verifier) key(key []byte, it *pebble.Iterator) error {
	if key[0] == talkSpace {
		conversation, ok := conversationOf(key)
		if !ok {
			v.found("", 0, "the key %q is of no conversation", key)
			return nil
		}
		if v.talk == nil || v.talk.id != conversation {
			if err := v.endTalk(); err != nil {
				return err
			}
			v.talk = newVerifiedTalk(v, conversation)
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return v.unreadable(conversation, key, err)
		}
		mark := key[1+len(conversation)]
		return v.talk.key(mark, key[2+len(conversation):], value)
	}
	switch key[0] {
	case listSpace:
		return v.list(key)
	case deviceSpace, metaSpace:
	default:
		v.found("", 0, "the key %q is not one of this store", key)
	}
	return nil
}

// unreadable makes a fault of damage that the disk's checksums found; anything else ends the verification.
func (v *verifier) unreadable(conversation string, key []byte, err error) error {
	if !errors.Is(err, pebble.ErrCorruption) {
		return err
	}
	v.found(conversation, 0, "the value at key %q cannot be read: %v", key, err)
	return nil
}

// list verifies that what stands on a list has a row.
func (v *verifier) list(key []byte) error {
	i := slices.Index(key, endOfUser)
	if i <= 1 || i == len(key)-1 {
		v.found("", 0, "the key %q is of no list", key)
		return nil
	}
	user, conversation := string(key[1:i]), string(key[i+1:])
	there, err := v.has(rowKey(nil, conversation, user))
	if err == nil && !there {
		v.found(conversation, 0, "it is on the list of %s, who has no row in it", user)
	}
	return err
}

func (v *verifier) has(key []byte) (bool, error) {
	_, closer, err := v.snap.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

func (v *verifier) endTalk() error {
	if v.talk == nil {
		return nil
	}
	err := v.talk.end()
	v.talk = nil
	v.done.Conversations++
	if v.progress != nil {
		v.progress(v.done)
	}
	return err
}

// verifiedTalk is the conversation that is being verified. Its keys come in the order of their marks: rows, the latest change, runs with their
// labels from the newest down, what users deleted, reactions, notes.
type verifiedTalk struct {
	v     *verifier
	id    string
	first string // the user of side 0

	rows      map[string]storage.View
	changeSeq uint64
	run       head // the last one that was read
	tail      uint64
	gone      []span             // from the highest down
	labels    map[uint64]uint64  // the numbers of the latest changes, by seq
	reactions map[reactionTo]int // how many the labels do not name
	notes     uint64
}

func newVerifiedTalk(v *verifier, conversation string) *verifiedTalk {
	_, a, _ := protocol.ParseConversation(conversation)
	return &verifiedTalk{
		v: v, id: conversation, first: a, rows: make(map[string]storage.View), labels: make(map[uint64]uint64), reactions: make(map[reactionTo]int),
	}
}

type reactionTo struct {
	seq  uint64
	kind string
}

// span is messages that follow each other.
type span struct{ low, high uint64 }

func (t *verifiedTalk) found(seq uint64, format string, args ...any) {
	t.v.found(t.id, seq, format, args...)
}

func (t *verifiedTalk) key(mark byte, end, value []byte) error {
	switch mark {
	case rowMark:
		return t.row(end, value)
	case runMark:
		if first, seq, ok := cutLabel(end); ok {
			t.label(first, seq, value)
		} else {
			t.readRun(end, value)
		}
	case hideMark:
		t.hidden(end, value)
	case reactMark:
		t.reaction(end, value)
	case noteMark:
		t.note(end, value)
	}
	return nil
}

func (t *verifiedTalk) row(end, value []byte) error {
	if len(end) == 1 && end[0] == headEnd {
		var ok bool
		if _, t.changeSeq, ok = parseChange(value); !ok {
			t.found(0, "the latest change cannot be read")
		}
		return nil
	}
	t.v.done.Rows++
	view, ok := parseRow(value, t.id)
	if !ok {
		t.found(0, "the row of %s cannot be read", end)
		return nil
	}
	t.rows[string(end)] = view
	listed, err := t.v.has(listKey(nil, string(end), t.id))
	if err == nil && !listed {
		t.found(0, "%s has a row, but it is not on the list", end)
	}
	return err
}

func (t *verifiedTalk) readRun(end, value []byte) {
	h, ok := parseHead(end)
	if !ok {
		t.found(0, "a run's key %x cannot be read", end)
		return
	}
	t.v.done.Buckets++
	if t.tail == 0 {
		t.tail = h.last()
	} else if h.last() != t.run.first-1 {
		t.found(h.last()+1, "the run from %d ends at %d, the next begins at %d", h.first, h.last(), t.run.first)
	} else if h.after != t.run.before || h.stamp >= t.run.stamp {
		t.found(h.first, "the run's counts %v or stamp %d do not lead to %v and %d of the next", h.after, h.stamp, t.run.before, t.run.stamp)
	}
	t.run = h
	t.messages(&h, value)
}

func (t *verifiedTalk) messages(h *head, wire []byte) {
	r := runs{first: t.first}
	counts := h.before
	var goneHere []span
	for seq := h.first; seq <= h.last(); seq++ {
		m, message, rest, err := protocol.CutMessage(wire)
		if err != nil || m.Seq != seq {
			t.found(seq, "the message cannot be read")
			return
		}
		wire = rest
		r.count(&counts, &m)
		t.v.done.Messages++
		if _, ok := protocol.ParseMessageID(string(m.ServerMsgID)); !ok {
			t.found(seq, "the message has no id that can be read")
		}
		if m.Status == protocol.StatusGone {
			t.v.done.Gone++
			goneHere = addSpan(goneHere, seq)
		} else if err := protocol.UnmarshalAlias(message, &protocol.Message{}); err != nil {
			t.found(seq, "the message cannot be decoded: %v", err)
		}
	}
	if counts != h.after || len(wire) > 0 {
		t.found(h.first, "the run's messages count to %v, its key says %v; %d bytes are left", counts, h.after, len(wire))
	}
	for _, s := range slices.Backward(goneHere) {
		t.gone = append(t.gone, s)
	}
}

// addSpan adds a seq that is above all others.
func addSpan(list []span, seq uint64) []span {
	if n := len(list); n > 0 && list[n-1].high == seq-1 {
		list[n-1].high = seq
		return list
	}
	return append(list, span{seq, seq})
}

func (t *verifiedTalk) isGone(seq uint64) bool {
	_, ok := slices.BinarySearchFunc(t.gone, seq, func(s span, seq uint64) int {
		switch {
		case seq > s.high:
			return 1
		case seq < s.low:
			return -1
		}
		return 0
	})
	return ok
}

func (t *verifiedTalk) label(first, seq uint64, value []byte) {
	l, ok := parseLabels(value)
	switch {
	case !ok:
		t.found(seq, "the labels cannot be read")
		return
	case first != t.run.first || seq < t.run.first || seq > t.run.last():
		t.found(seq, "labels of no message, at the run from %d", first)
	case t.isGone(seq):
		t.found(seq, "labels of a message that is gone")
	case l.ChangeSeq > t.changeSeq:
		t.found(seq, "the labels are of change %d, the conversation's latest is %d", l.ChangeSeq, t.changeSeq)
	}
	t.labels[seq] = l.ChangeSeq
	if len(l.Reactions) > protocol.MaxReactions {
		t.found(seq, "%d kinds of reactions", len(l.Reactions))
	}
	for i := range l.Reactions {
		r := &l.Reactions[i]
		if n := int(r.Count) - len(r.Users); n != 0 {
			t.reactions[reactionTo{seq, r.Kind}] = n
		}
	}
}

func (t *verifiedTalk) hidden(end, value []byte) {
	user, first, ok := cutHide(end)
	_, set, ok2 := parseHidden(value)
	if !ok || !ok2 {
		t.found(0, "what a user deleted cannot be read: %q", end)
		return
	}
	if _, ok := t.rows[user]; !ok {
		t.found(0, "%s deleted messages and has no row", user)
	}
	for seq := first; seq < first+chunkSeqs; seq++ {
		if bitOf(set, seq) && (seq == 0 || seq > t.tail) {
			t.found(seq, "%s deleted it, and there is no such message", user)
		}
	}
}

func (t *verifiedTalk) reaction(end, value []byte) {
	if len(end) < 9 || len(end) < 9+int(end[8]) {
		t.found(0, "a reaction's key cannot be read: %q", end)
		return
	}
	to := reactionTo{seq: ^binary.BigEndian.Uint64(end), kind: string(end[9 : 9+int(end[8])])}
	if _, _, ok := parseHidden(value); !ok {
		t.found(to.seq, "a reaction cannot be read")
	}
	t.reactions[to]--
}

func (t *verifiedTalk) note(end, value []byte) {
	if len(end) != 8 {
		t.found(0, "a change's key cannot be read: %x", end)
		return
	}
	t.v.done.Changes++
	t.notes++
	n, ok := parseNote(value, binary.BigEndian.Uint64(end))
	switch {
	case !ok:
		t.found(0, "change %d cannot be read", n.ChangeSeq)
		return
	case n.ChangeSeq > t.changeSeq || n.Seq > t.tail:
		t.found(n.Seq, "change %d is above the latest, %d, or of a message above the last, %d", n.ChangeSeq, t.changeSeq, t.tail)
	case t.labels[n.Seq] != n.ChangeSeq && !t.isGone(n.Seq):
		t.found(n.Seq, "change %d was its last, its labels are of change %d", n.ChangeSeq, t.labels[n.Seq])
	}
	delete(t.labels, n.Seq)
}

// end verifies what takes the whole conversation to see.
func (t *verifiedTalk) end() error {
	if t.tail > 0 && t.run.first != 1 || t.run.before != (storage.Counts{}) {
		t.found(t.run.first, "the oldest run begins at %d with the counts %v", t.run.first, t.run.before)
	}
	if t.tail == 0 {
		t.found(0, "it has no messages")
	}
	for _, user := range slices.Sorted(maps.Keys(t.rows)) {
		if v := t.rows[user]; v.ReadSeq > t.tail || v.MinSeq == 0 || v.MinSeq > t.tail+1 {
			t.found(0, "the row of %s has read_seq %d and min_seq %d, the last message is %d", user, v.ReadSeq, v.MinSeq, t.tail)
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(t.labels)) {
		t.found(seq, "labels of change %d, which is not among the changes", t.labels[seq])
	}
	for to, n := range t.reactions {
		if n != 0 {
			t.found(to.seq, "its count of %q is off by %d", to.kind, n)
		}
	}
	return nil
}
