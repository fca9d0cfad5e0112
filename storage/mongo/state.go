package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/storage"
)

// State implements storage.Buckets. It is one query, by the newest flag.
func (s *Store) State(ctx context.Context, conversation string) (storage.State, error) {
	head, err := s.newest(ctx, conversation)
	if err != nil || head == nil {
		return storage.State{}, s.fault(err)
	}
	return head.state(), nil
}

// newest is the conversation's newest bucket, without its slots; nil when there is no such conversation. Where it says that the conversation is, is
// remembered: so whoever knows a tail also knows where the next message goes.
func (s *Store) newest(ctx context.Context, conversation string) (head *bucket, err error) {
	err = s.again(ctx, func() (bool, error) {
		heads, err := s.heads(ctx, []string{conversation})
		if err != nil {
			return false, err
		}
		if head = heads[conversation]; head != nil {
			return true, s.learn(ctx, head)
		}
		first, err := s.oneBucket(ctx, bson.D{{Key: "conv", Value: conversation}}, 1)
		return first == nil, err // a bucket without a flag: the flag moved on between two steps of the query
	})
	if err != nil && errors.Is(err, errBusy) && !transient(err) {
		err = damaged("the newest flag of "+conversation, nil)
	}
	return head, err
}

// heads are the newest buckets of conversations, as far as they have a flag. When several have one, the highest tail counts, and the others'
// flags are taken off with the next write.
func (s *Store) heads(ctx context.Context, conversations []string) (map[string]*bucket, error) {
	found := make(map[string]*bucket, len(conversations))
	for part := range slices.Chunk(conversations, idsPerQuery) {
		var in any = part[0]
		if len(part) > 1 {
			in = bson.D{{Key: "$in", Value: part}}
		}
		var list []*bucket
		filter := bson.D{{Key: "conv", Value: in}, {Key: "newest", Value: true}}
		if err := all(ctx, s.buckets, filter, withoutSlots(), &list); err != nil {
			return nil, err
		}
		for _, b := range list {
			low, high := b, found[b.Conv]
			if high == nil || b.Tail > high.Tail {
				low, high = high, b
			}
			found[b.Conv] = high
			if low != nil && low.Move == high.Move {
				s.writer.unflag(low.ID)
			}
		}
	}
	return found, nil
}

// states are the states of those of the conversations that have any messages.
func (s *Store) states(ctx context.Context, conversations []string) (map[string]storage.State, error) {
	heads, err := s.heads(ctx, conversations)
	if err != nil {
		return nil, err
	}
	found := make(map[string]storage.State, len(heads))
	for _, conversation := range conversations {
		head := heads[conversation]
		if head == nil { // none, or between two steps of the query
			if head, err = s.newest(ctx, conversation); err != nil {
				return nil, err
			}
		}
		if head != nil {
			found[conversation] = head.state()
		}
	}
	return found, nil
}

// learn looks where the conversation is when its newest bucket says that it is not where it was.
func (s *Store) learn(ctx context.Context, head *bucket) error {
	h, ok := s.homes.known.Get(head.Conv)
	if p := head.place(); ok && (p == h.now || p == h.old) {
		return nil
	} else if !ok && p == plain() {
		return nil
	}
	_, err := s.loadHome(ctx, head.Conv)
	return err
}

// fault puts storage.ErrUnavailable into the chain of errors that pass.
func (s *Store) fault(err error) error {
	if err == nil || errors.Is(err, storage.ErrUnavailable) || !transient(err) && !errors.Is(err, errBusy) {
		return err
	}
	return fmt.Errorf("mongo: %w: %w", storage.ErrUnavailable, err)
}
