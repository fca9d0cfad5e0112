package embedded

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// labelled is the labels of a message.
type labelled struct {
	seq    uint64
	labels storage.Labels
}

// label takes the labels that the iterator is at, as they are durable. It returns false when it is at something else.
func (r *runs) label() bool {
	key := r.it.Key()
	_, seq, ok := cutLabel(key[len(r.prefix):])
	if !ok || key[len(r.prefix)-1] != runMark {
		return false
	}
	if seq < r.from || seq > r.to || r.err != nil {
		return true
	}
	value, err := r.it.ValueAndErr()
	if err != nil {
		r.err = err
		return true
	}
	stamp, _, _, ok := parseLabelHead(value)
	if old, flying := r.s.flight.before(key, stamp); ok && flying {
		if old == nil {
			return true
		}
		value = old
	}
	l := labelled{seq: seq}
	if l.labels, ok = parseLabels(value); !ok {
		r.err = damaged("a label", key)
	}
	r.labels = append(r.labels, l)
	return true
}

// show yields the page of the run that head is of, until yield returns false. It returns whether to go on.
func (r *runs) show(ctx context.Context, newestFirst bool, yield func(*storage.Slot) bool) (more bool) {
	head := r.head
	for i := range r.page {
		if newestFirst {
			i = len(r.page) - 1 - i
		}
		slot := r.slot(ctx, &head, max(head.first, r.from)+uint64(i), &r.page[i])
		if slot == nil || !yield(slot) {
			return false
		}
	}
	return r.err == nil
}

// slot is what a piece is of, nil after an error.
func (r *runs) slot(ctx context.Context, h *head, seq uint64, p *piece) *storage.Slot {
	if r.err != nil {
		return nil
	}
	slot := &storage.Slot{LogTimeMS: h.logTimeMS, Counts: p.counts}
	if p.gone {
		if r.err = r.settle(ctx); r.err != nil {
			return nil
		}
		slot.Message = protocol.Message{ConversationID: r.conversation, Seq: seq}
		slot.Labels.Gone = true
		return slot
	}
	if err := protocol.UnmarshalAlias(p.wire, &slot.Message); err != nil {
		r.err = damaged("a message", r.seekKey(seq))
		return nil
	}
	if i := slices.IndexFunc(r.labels, func(l labelled) bool { return l.seq == seq }); i >= 0 {
		slot.Labels = r.labels[i].labels
	}
	if r.viewer != "" {
		slot.Labels.Hidden = r.hidden(seq)
		r.mine(seq, slot.Labels.Reactions)
	}
	if r.err != nil {
		return nil
	}
	return slot
}

// settle waits, if a purge of the conversation is on its way to the disk, until it is there: what it removed is in no other place, and a message that
// was shown as gone may not come back.
func (r *runs) settle(ctx context.Context) error {
	if r.settled {
		return nil
	}
	if landed := r.s.flight.purge(r.conversation); landed != nil {
		select {
		case <-landed:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.s.space.stop: // it may have failed
			return storage.ErrClosed
		}
	}
	r.settled = true
	return nil
}

// seenBy says for whom the slots are. It comes before the first move.
func (r *runs) seenBy(viewer string) error {
	if viewer == "" || badID(viewer) {
		return nil
	}
	r.viewer = viewer
	key := hideKey(nil, r.conversation, viewer, 0)
	prefix := key[:len(key)-8]
	r.hides = r.it.SeekGE(prefix) && bytes.HasPrefix(r.it.Key(), prefix)
	return r.it.Error()
}

// lookBeside returns a value of the same moment, nil when there is none. It is good until the next call.
func (r *runs) lookBeside(key []byte) []byte {
	if r.beside == nil {
		var err error
		if r.beside, err = r.it.Clone(pebble.CloneOptions{}); err != nil {
			r.err = err
			return nil
		}
	}
	if !r.beside.SeekGE(key) || !bytes.Equal(r.beside.Key(), key) {
		r.err = cmp.Or(r.err, r.beside.Error())
		return nil
	}
	value, err := r.beside.ValueAndErr()
	r.err = cmp.Or(r.err, err)
	return value
}

// hidden tells whether the viewer deleted a message.
func (r *runs) hidden(seq uint64) bool {
	if !r.hides {
		return false
	}
	if r.chunk != seq/chunkSeqs+1 {
		key := hideKey(nil, r.conversation, r.viewer, seq)
		r.bits = r.bits[:0]
		if value := r.lookBeside(key); value != nil {
			bits, ok := r.s.durableBits(key, value)
			if !ok {
				r.err = damaged("what a user deleted", key)
			}
			r.bits = append(r.bits, bits...)
		}
		r.chunk = seq/chunkSeqs + 1
	}
	return bitOf(r.bits, seq)
}

// durableBits is what a chunk has of which the value was read, as it is durable.
func (s *Store) durableBits(key, value []byte) (bits []byte, ok bool) {
	stamp, bits, ok := parseHidden(value)
	if old, flying := s.flight.before(key, stamp); ok && flying {
		_, bits, _ = parseHidden(old) // none when there was nothing
	}
	return bits, ok
}

func bitOf(bits []byte, seq uint64) bool {
	i := seq % chunkSeqs
	return i/8 < uint64(len(bits)) && bits[i/8]>>(i%8)&1 != 0
}

// mine says which of the reactions are the viewer's: the labels name a part of the users, the others have keys of their own.
func (r *runs) mine(seq uint64, list []storage.Reaction) {
	for i := range list {
		e := &list[i]
		e.Mine = slices.Contains(e.Users, r.viewer) || int(e.Count) > len(e.Users) && r.reacted(seq, e.Kind)
	}
}

func (r *runs) reacted(seq uint64, kind string) bool {
	key := reactionKey(nil, r.conversation, seq, kind, r.viewer)
	value := r.lookBeside(key)
	if old, flying := r.s.flight.flying(key); flying {
		return old.old != nil
	}
	return value != nil
}
