package embedded

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/storage"
)

// ApplyOwn implements storage.Directory, in one batch.
func (s *Store) ApplyOwn(ctx context.Context, changes []*storage.Own) error {
	keys := make([][]byte, len(changes))
	for i, c := range changes {
		if badID(c.User) || badID(c.Conversation) {
			return fmt.Errorf("embedded: %q cannot have a row in %q", c.User, c.Conversation)
		}
		for _, seq := range c.Hide {
			if seq == 0 {
				return storage.ErrInvalidSeq
			}
		}
		keys[i] = rowKey(nil, c.Conversation, c.User)
	}
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	defer s.rowLocks.all(keys)()
	o := own{s: s, rows: make(map[string]*ownRow), chunks: make(map[string]*ownChunk)}
	for i, c := range changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := o.take(keys[i], c); err != nil {
			return err
		}
	}
	return o.write()
}

// own is what an ApplyOwn changes, by key. The caller holds the locks of all rows, which guard the chunks too.
type own struct {
	s      *Store
	rows   map[string]*ownRow
	chunks map[string]*ownChunk
}

type ownRow struct {
	was  []byte // nil: there is none
	view storage.View
	min  uint64 // MinSeq before
}

type ownChunk struct {
	was, bits []byte
	before    []byte // bits before
}

func (o *own) take(key []byte, c *storage.Own) error {
	row := o.rows[string(key)]
	if row == nil {
		row = &ownRow{}
		var err error
		if row.was, row.view, err = o.s.row(key, c.Conversation); err != nil {
			return err
		}
		row.min = row.view.MinSeq
		o.rows[string(key)] = row
	}
	if row.was == nil {
		return nil
	}
	row.view.MinSeq = max(row.view.MinSeq, c.MinSeq)
	if len(c.Hide) == 0 {
		return nil
	}
	tail, err := o.s.durableTail(c.Conversation)
	if err != nil {
		return err
	}
	for _, seq := range c.Hide {
		if seq > tail {
			continue
		}
		chunk, err := o.chunk(hideKey(nil, c.Conversation, c.User, seq))
		if err != nil {
			return err
		}
		chunk.set(seq)
	}
	return nil
}

func (o *own) chunk(key []byte) (*ownChunk, error) {
	if c := o.chunks[string(key)]; c != nil {
		return c, nil
	}
	value, err := o.s.value(key)
	if err != nil {
		return nil, err
	}
	c := &ownChunk{was: value}
	if value != nil {
		_, bits, ok := parseHidden(value)
		if !ok {
			return nil, damaged("what a user deleted", key)
		}
		c.bits, c.before = bytes.Clone(bits), bits
	}
	o.chunks[string(key)] = c
	return c, nil
}

func (c *ownChunk) set(seq uint64) {
	i := int(seq % chunkSeqs)
	for len(c.bits) <= i/8 {
		c.bits = append(c.bits, 0)
	}
	c.bits[i/8] |= 1 << (i % 8)
}

// write stores what is not as it was.
func (o *own) write() error {
	w := &write{s: o.s}
	for key, r := range o.rows {
		if r.was != nil && r.view.MinSeq != r.min {
			w.keys = append(w.keys, flyingKey{key: key, old: r.was})
		} else {
			delete(o.rows, key)
		}
	}
	for key, c := range o.chunks {
		if !bytes.Equal(c.bits, c.before) {
			w.keys = append(w.keys, flyingKey{key: key, old: c.was})
		} else {
			delete(o.chunks, key)
		}
	}
	if len(w.keys) == 0 {
		return nil
	}
	return o.s.writeRow(w, func(b *pebble.Batch) error {
		for key, r := range o.rows {
			r.view.Stamp = w.stamp
			w.must(b.Set([]byte(key), appendRow(nil, &r.view), nil))
		}
		for key, c := range o.chunks {
			w.must(b.Set([]byte(key), appendHidden(nil, w.stamp, c.bits), nil))
		}
		return nil
	})
}

// durableTail is the conversation's tail as readers see it.
func (s *Store) durableTail(conversation string) (tail uint64, err error) {
	r, err := s.newRuns(conversation)
	if err != nil {
		return 0, err
	}
	r.limit = s.flight.durable(conversation)
	if r.newest() {
		tail = r.head.last()
	}
	if err := r.close(); err != nil {
		return 0, err
	}
	return tail, r.err
}
