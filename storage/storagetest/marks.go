package storagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// marks is what was done to a Talk's messages after they were stored.
type marks struct {
	changes []change
	reacted map[reaction]map[string]bool // everybody who reacted so
	hidden  map[string]map[uint64]bool   // by user
	minSeq  map[string]uint64            // by user
	readSeq map[string]uint64            // by user
	gone    map[uint64]bool
}

// change is a change, and who reacted by it, if that is what it was.
type change struct {
	storage.Change
	who string
	to  reaction
	on  bool
}

type reaction struct {
	seq  uint64
	kind string
}

// cut takes out what was done to messages above tail.
func (m *marks) cut(tail uint64) {
	above := func(seq uint64, _ bool) bool { return seq > tail }
	for _, set := range m.hidden {
		maps.DeleteFunc(set, above)
	}
	maps.DeleteFunc(m.gone, above)
	for i, c := range m.changes {
		if c.Seq > tail {
			panic(fmt.Sprintf("change %d of seq %d was made, and the message is lost", i+1, c.Seq))
		}
	}
	if tail == 0 {
		m.minSeq = nil
	}
}

// ChangeSeq is the number of the latest change that was made.
func (k *Talk) ChangeSeq() uint64 { return uint64(len(k.marks.changes)) }

// ChangeOf is the change of that number.
func (k *Talk) ChangeOf(changeSeq uint64) *storage.Change {
	return &k.marks.changes[changeSeq-1].Change
}

// CutChanges takes the changes above changeSeq out of the model: they were lost in a crash, as they may.
func (k *Talk) CutChanges(changeSeq uint64) {
	all := k.marks.changes[:changeSeq]
	k.marks.changes, k.marks.reacted = nil, nil
	for _, c := range all {
		k.take(c)
	}
}

// labels are those of a message that everybody sees.
func (k *Talk) labels(seq uint64) storage.Labels {
	for _, c := range slices.Backward(k.marks.changes) {
		if c.Seq == seq {
			l := c.Labels
			l.ChangeSeq = c.ChangeSeq
			return l
		}
	}
	return storage.Labels{}
}

// View is the slot of a message as it is read for a viewer.
func (k *Talk) View(viewer string, seq uint64) storage.Slot {
	slot := k.Slots[seq-1]
	if k.marks.gone[seq] {
		slot.Message = protocol.Message{ConversationID: k.ID, Seq: seq}
		slot.Labels = storage.Labels{Gone: true}
		return slot
	}
	slot.Labels = k.labels(seq)
	slot.Labels.Hidden = viewer != "" && k.marks.hidden[viewer][seq]
	slot.Labels.Reactions = slices.Clone(slot.Labels.Reactions)
	for i := range slot.Labels.Reactions {
		r := &slot.Labels.Reactions[i]
		r.Mine = viewer != "" && k.marks.reacted[reaction{seq, r.Kind}][viewer]
	}
	return slot
}

// SameLabels compares labels as a reader sees them.
func SameLabels(a, b *storage.Labels) bool {
	if len(a.Reactions) != len(b.Reactions) || a.Hidden != b.Hidden || a.Gone != b.Gone || a.ChangeSeq != b.ChangeSeq ||
		!reflect.DeepEqual(a.Revoke, b.Revoke) || (a.Edit == nil) != (b.Edit == nil) {
		return false
	}
	if e, f := a.Edit, b.Edit; e != nil && (e.ContentType != f.ContentType || e.TimeMS != f.TimeMS || string(e.Content) != string(f.Content)) {
		return false
	}
	for i := range a.Reactions {
		r, s := &a.Reactions[i], &b.Reactions[i]
		if r.Kind != s.Kind || r.Count != s.Count || r.Mine != s.Mine || !slices.Equal(r.Users, s.Users) {
			return false
		}
	}
	return true
}

func describe(l *storage.Labels) string {
	b, err := json.Marshal(l)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Change makes the next change of a message, and takes it into the model: a random one that may be made of it. It returns nil when there is none:
// the message was revoked or purged.
func (k *Talk) Change(r *rand.Rand, seq uint64) *storage.Change {
	labels := k.labels(seq)
	if labels.Revoke != nil || k.marks.gone[seq] {
		return nil
	}
	k.nowMS += r.Int64N(10)
	switch n := r.IntN(10); {
	case n == 0:
		user := k.Members[r.IntN(len(k.Members))]
		return k.add(seq, storage.Labels{Revoke: &protocol.Revoke{User: user, Role: protocol.Role(1 + r.IntN(4)), TimeMS: k.nowMS}})
	case n < 4:
		edit := &storage.Edit{ContentType: protocol.ContentText, Content: content(r), TimeMS: k.nowMS}
		return k.add(seq, storage.Labels{Edit: edit, Reactions: labels.Reactions})
	default:
		user, kind := fmt.Sprint("fan", r.IntN(90)), fmt.Sprintf("%c", rune(0x1f600+r.IntN(5)))
		return k.React(seq, user, kind, !k.marks.reacted[reaction{seq, kind}][user])
	}
}

// add makes the next change of a message with these labels.
func (k *Talk) add(seq uint64, labels storage.Labels) *storage.Change {
	c := change{Change: storage.Change{Conversation: k.ID, Seq: seq, ChangeSeq: k.ChangeSeq() + 1, TimeMS: k.nowMS, Labels: labels}}
	k.take(c)
	return &c.Change
}

// React makes the next change: the user reacts, or takes it back. Users are named in the labels as far as there is room.
func (k *Talk) React(seq uint64, user, kind string, on bool) *storage.Change {
	l := k.labels(seq)
	list := slices.Clone(l.Reactions)
	named := 0
	for i := range list {
		list[i].Users = slices.Clone(list[i].Users)
		named += len(list[i].Users)
	}
	i := slices.IndexFunc(list, func(r storage.Reaction) bool { return r.Kind == kind })
	if i < 0 {
		i = len(list)
		list = append(list, storage.Reaction{Kind: kind})
	}
	e := &list[i]
	place := slices.Index(e.Users, user)
	c := change{Change: storage.Change{Conversation: k.ID, Seq: seq, ChangeSeq: k.ChangeSeq() + 1, TimeMS: k.nowMS}, who: user, to: reaction{seq, kind}, on: on}
	switch {
	case on && named < protocol.MaxReactors:
		e.Users = append(e.Users, user)
	case place >= 0:
		e.Users = slices.Delete(e.Users, place, place+1)
	default:
		c.Reactor = &storage.Reactor{User: user, Reaction: kind, On: on}
	}
	if on {
		e.Count++
	} else {
		e.Count--
	}
	if e.Count == 0 {
		list = slices.Delete(list, i, i+1)
	}
	c.Labels = storage.Labels{Edit: l.Edit, Reactions: list}
	k.take(c)
	return &c.Change
}

// take takes a change into the model.
func (k *Talk) take(c change) {
	k.marks.changes = append(k.marks.changes, c)
	if c.who == "" {
		return
	}
	if k.marks.reacted == nil {
		k.marks.reacted = make(map[reaction]map[string]bool)
	}
	if k.marks.reacted[c.to] == nil {
		k.marks.reacted[c.to] = make(map[string]bool)
	}
	k.marks.reacted[c.to][c.who] = c.on
}

// Own makes a change of a user's own view, and takes it into the model.
func (k *Talk) Own(user string, minSeq uint64, hide ...uint64) *storage.Own {
	m := &k.marks
	if m.hidden == nil {
		m.hidden = make(map[string]map[uint64]bool)
	}
	if m.minSeq == nil {
		m.minSeq = make(map[string]uint64)
	}
	if m.hidden[user] == nil {
		m.hidden[user] = make(map[uint64]bool)
	}
	for _, seq := range hide {
		m.hidden[user][seq] = true
	}
	m.minSeq[user] = max(m.minSeq[user], minSeq)
	return &storage.Own{User: user, Conversation: k.ID, Hide: hide, MinSeq: minSeq}
}

// read takes a mark that was raised into the model.
func (k *Talk) read(user string, seq uint64) {
	if k.marks.readSeq == nil {
		k.marks.readSeq = make(map[string]uint64)
	}
	k.marks.readSeq[user] = max(k.marks.readSeq[user], seq)
}

// MinSeq is the user's.
func (k *Talk) MinSeq(user string) uint64 { return max(k.marks.minSeq[user], 1) }

// Gone takes a purge into the model, and returns how many messages were purged by it.
func (k *Talk) Gone(from, to uint64) (purged uint64) {
	if k.marks.gone == nil {
		k.marks.gone = make(map[uint64]bool)
	}
	for seq := from; seq <= min(to, k.Tail()); seq++ {
		if !k.marks.gone[seq] {
			k.marks.gone[seq] = true
			purged++
		}
	}
	return purged
}

// Marked replaces what the model knows of purges, and of what users deleted and cleared, after a crash in which some of it may have been lost.
func (k *Talk) Marked(gone []uint64, hidden map[string][]uint64, minSeq map[string]uint64) {
	k.marks.gone, k.marks.hidden, k.marks.minSeq = nil, nil, nil
	for _, seq := range gone {
		k.Gone(seq, seq)
	}
	for user, seqs := range hidden {
		k.Own(user, 0, seqs...)
	}
	for user, seq := range minSeq {
		k.Own(user, seq)
	}
}

// IsGone tells whether a message was purged.
func (k *Talk) IsGone(seq uint64) bool { return k.marks.gone[seq] }

// CheckChanges holds the number of the latest change, and the notes, against the model.
func (k *Talk) CheckChanges(tb testing.TB, c storage.Changes) {
	tb.Helper()
	last, err := c.ChangeSeq(context.Background(), k.ID)
	if err != nil || last != k.ChangeSeq() {
		tb.Fatalf("%s: the latest change is %d, want %d, %v", k.ID, last, k.ChangeSeq(), err)
	}
	for _, since := range []uint64{0, 1, last / 2, last - min(last, 1), last, last + 1} {
		k.CheckNotes(tb, c, since)
	}
}

// CheckNotes holds the notes since a number against the model: in their order, with the last of each message among them.
func (k *Talk) CheckNotes(tb testing.TB, c storage.Changes, since uint64) {
	tb.Helper()
	missing := make(map[uint64]uint64) // the number of the last change, by seq
	for _, c := range k.marks.changes[min(since, k.ChangeSeq()):] {
		missing[c.Seq] = c.ChangeSeq
	}
	last := since
	err := c.Notes(context.Background(), k.ID, since, func(n storage.Note) bool {
		if n.ChangeSeq <= last || n.ChangeSeq > k.ChangeSeq() {
			tb.Fatalf("%s: since %d, after %d comes %+v", k.ID, since, last, n)
		}
		if want := k.ChangeOf(n.ChangeSeq); n.Seq != want.Seq || n.TimeMS != want.TimeMS {
			tb.Fatalf("%s: change %+v, want seq %d at %d", k.ID, n, want.Seq, want.TimeMS)
		}
		last = n.ChangeSeq
		if missing[n.Seq] == n.ChangeSeq {
			delete(missing, n.Seq)
		}
		return true
	})
	if err != nil || len(missing) != 0 {
		tb.Fatalf("%s: the notes since %d lack %v, %v", k.ID, since, missing, err)
	}
}

// apply stores changes, all of which must be taken.
func apply(tb testing.TB, c storage.Changes, changes ...*storage.Change) {
	tb.Helper()
	if err := c.Apply(context.Background(), changes); err != nil {
		tb.Fatal(err)
	}
	for _, c := range changes {
		if c.Err != nil {
			tb.Fatalf("%s: change %d of seq %d: %v", c.Conversation, c.ChangeSeq, c.Seq, c.Err)
		}
	}
}

func applyOwn(tb testing.TB, d storage.Directory, changes ...*storage.Own) {
	tb.Helper()
	if err := d.ApplyOwn(context.Background(), changes); err != nil {
		tb.Fatal(err)
	}
}
