package embedded

import (
	"bytes"
	"cmp"
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/storage"
)

// Conversations implements storage.Operator.
func (s *Store) Conversations(ctx context.Context, after string, yield func(conversation string) bool) (err error) {
	if !s.gate.enter() {
		return storage.ErrClosed
	}
	defer s.gate.leave()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{talkSpace}, UpperBound: []byte{talkSpace + 1}})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	key := []byte{talkSpace}
	if after != "" {
		key = appendKey(nil, talkSpace, after, endMark)
	}
	for ok := it.SeekGE(key); ok; ok = it.SeekGE(key) {
		if err := ctx.Err(); err != nil {
			return err
		}
		conversation, ok := conversationOf(it.Key())
		if !ok {
			return damaged("a conversation", it.Key())
		}
		key = appendKey(key[:0], talkSpace, conversation, endMark)
		if s.flight.durable(conversation) > 0 && !yield(conversation) {
			return nil
		}
	}
	return it.Error()
}

// conversationOf is whose key it is: the id ends where a mark stands.
func conversationOf(key []byte) (string, bool) {
	i := bytes.IndexFunc(key[1:], func(r rune) bool { return r < endMark })
	if i <= 0 {
		return "", false
	}
	return string(key[1 : 1+i]), true
}

// LastBefore implements storage.Operator. Log times never fall, so it looks at few of the runs.
func (s *Store) LastBefore(ctx context.Context, conversation string, timeMS int64) (last uint64, err error) {
	err = s.read(ctx, conversation, func(r *runs) error {
		if !r.newest() {
			return r.err
		}
		low, high := uint64(0), r.head.last() // the answer is in [low, high]
		for low < high && r.err == nil {
			if !r.seek(low+(high-low+1)/2, false) {
				break
			}
			if r.head.logTimeMS < timeMS {
				low = r.head.last()
			} else {
				high = r.head.first - 1
			}
		}
		last = low
		return r.err
	})
	return last, err
}
