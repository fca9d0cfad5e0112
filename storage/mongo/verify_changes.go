package mongo

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/storage"
)

// changes looks at all change buckets, from the highest number of a conversation down.
func (v *verifier) changes(ctx context.Context) error {
	var above changeBucketDoc // without its slots
	end := func() {
		if above.Conv != "" && above.N != 0 {
			v.fault(above.Conv, 0, "the change buckets below number %d are missing", above.N)
		}
	}
	order := bson.D{{Key: "conv", Value: 1}, {Key: "n", Value: -1}}
	err := each(ctx, v, v.s.changes, order, 1, func(ctx context.Context, docs []changeBucketDoc) error {
		b := &docs[0]
		newest := b.Conv != above.Conv
		if newest {
			end()
		} else if b.N+1 != above.N {
			v.fault(b.Conv, 0, "of the change buckets, those between the numbers %d and %d are missing", b.N, above.N)
		}
		next := !newest && above.Newest
		if err := v.changeBucket(ctx, b, newest, next); err != nil {
			return err
		}
		b.Slots, above = nil, *b
		if !newest {
			above.Newest = false // only the one right below the newest may be flagged too
		}
		return nil
	})
	if err == nil {
		end()
	}
	return err
}

// changeBucket looks at one. next says that it is the one right below the newest.
func (v *verifier) changeBucket(ctx context.Context, b *changeBucketDoc, newest, next bool) error {
	first, last := b.N*storage.BucketSize+1, (b.N+1)*storage.BucketSize
	switch {
	case b.ID != changeBucket(b.Conv, first):
		v.fault(b.Conv, 0, "change bucket %s has the number %d", b.ID, b.N)
	case newest && !b.Newest:
		v.fault(b.Conv, 0, "change bucket %s has the highest number, and is not flagged as the newest", b.ID)
	case !newest && b.Newest && !next:
		v.fault(b.Conv, 0, "the old change bucket %s is flagged as the newest", b.ID)
	}
	switch {
	case len(b.Slots) != storage.BucketSize:
		v.fault(b.Conv, 0, "change bucket %s has %d slots", b.ID, len(b.Slots))
		return nil
	case b.Tail < first || b.Tail > last || !newest && b.Tail != last:
		v.fault(b.Conv, 0, "the tail of change bucket %s is %d", b.ID, b.Tail)
		return nil
	}
	latest := make(map[uint64]uint64)
	for i, n := range b.Slots {
		number := first + uint64(i)
		if (n.Seq == 0) != (number > b.Tail) {
			v.fault(b.Conv, 0, "change %d is of message %d, and the highest is %d", number, n.Seq, b.Tail)
		}
		if n.Seq > 0 {
			latest[n.Seq] = number
		}
	}
	v.done.Changes += b.Tail - first + 1
	return v.changed(ctx, b.Conv, latest)
}

// changed holds messages against the number of a change that each of them had: it had that, or a later one, or is gone.
func (v *verifier) changed(ctx context.Context, conversation string, latest map[uint64]uint64) error {
	seqs := slices.Sorted(maps.Keys(latest))
	found, err := v.marks(ctx, conversation, seqs)
	if err != nil {
		return err
	}
	for _, seq := range seqs {
		switch m, ok := found[seq]; {
		case !ok:
			v.fault(conversation, seq, "it had change %d, and there is no such message", latest[seq])
		case !m.Gone && m.ChangeSeq < latest[seq]:
			v.fault(conversation, seq, "change %d was noted, and its label is of %d", latest[seq], m.ChangeSeq)
		}
	}
	return nil
}

// marks reads the marks of those of the messages that there are, wherever they are by then.
func (v *verifier) marks(ctx context.Context, conversation string, seqs []uint64) (found map[uint64]mark, err error) {
	err = v.s.again(ctx, func() (bool, error) {
		found = make(map[uint64]mark, len(seqs))
		byBucket := make(map[string][]uint64)
		for _, seq := range seqs {
			bucket, _ := v.s.place(conversation, seq)
			byBucket[bucket] = append(byBucket[bucket], seq)
		}
		for bucket, seqs := range byBucket {
			if unmoved, err := v.marksIn(ctx, conversation, bucket, seqs, found); err != nil || !unmoved {
				return false, err
			}
		}
		return true, nil
	})
	return found, err
}

// marksIn reads those of one bucket. unmoved is false when they are somewhere else by now.
func (v *verifier) marksIn(ctx context.Context, conversation, bucket string, seqs []uint64, found map[uint64]mark) (unmoved bool, err error) {
	slots := make([]int, len(seqs))
	for i, seq := range seqs {
		_, slots[i] = v.s.place(conversation, seq)
	}
	var marks []mark
	head, err := v.s.pick(ctx, bucket, slots, fieldsOf("gone", "change_seq"), &marks)
	if noDocument(err) || err == nil && head.Sealed {
		moved, err := v.s.moved(ctx, conversation, seqs[0], bucket)
		return !moved && !head.Sealed, err
	}
	for i, m := range marks {
		if seqs[i] <= head.Tail {
			found[seqs[i]] = m
		}
	}
	return true, err
}
