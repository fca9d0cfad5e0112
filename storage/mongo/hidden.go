package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// hiddenSeqs tells which of the seqs the user has deleted, as far as the slots do not say: it is asked only for slots with del_more.
func (s *Store) hiddenSeqs(ctx context.Context, conversation, user string, seqs []uint64) (map[uint64]bool, error) {
	asked := make([]seqIn, len(seqs))
	for i, seq := range seqs {
		asked[i] = seqIn{hiddenFrom(user, conversation), seq}
	}
	found, err := seqsIn(ctx, s.hidden, asked)
	if err != nil {
		return nil, err
	}
	hidden := make(map[uint64]bool, len(found))
	for _, at := range found {
		hidden[at.seq] = true
	}
	return hidden, nil
}

// reactedTo is a message and a kind of reaction.
type reactedTo struct {
	seq  uint64
	kind string
}

// reactedSeqs tells which of the reactions are the user's too, as far as the slots do not say: it is asked only for kinds with a count above
// that of the users who are named.
func (s *Store) reactedSeqs(ctx context.Context, conversation, user string, to []reactedTo) (map[reactedTo]bool, error) {
	asked := make([]seqIn, len(to))
	kinds := make(map[seqIn]reactedTo, len(to))
	for i, r := range to {
		asked[i] = seqIn{reactedBy(user, conversation, r.kind), r.seq}
		kinds[asked[i]] = r
	}
	found, err := seqsIn(ctx, s.reactors, asked)
	if err != nil {
		return nil, err
	}
	reacted := make(map[reactedTo]bool, len(found))
	for _, at := range found {
		reacted[kinds[at]] = true
	}
	return reacted, nil
}

// seqIn asks whether a seq is in a set.
type seqIn struct {
	set bitsOf
	seq uint64
}

// seqsIn returns those of asked that are so.
func seqsIn(ctx context.Context, in *mongo.Collection, asked []seqIn) ([]seqIn, error) {
	byID := make(map[string][]seqIn)
	var ids []string
	for _, a := range asked {
		id := a.set.id(a.seq)
		if byID[id] == nil {
			ids = append(ids, id)
		}
		byID[id] = append(byID[id], a)
	}
	docs, err := findBitmaps(ctx, in, ids)
	if err != nil {
		return nil, err
	}
	var found []seqIn
	for id, doc := range docs {
		set, err := doc.set()
		if err != nil {
			return nil, err
		}
		for _, a := range byID[id] {
			if set.Contains(uint32(a.seq & chunkMask)) {
				found = append(found, a)
			}
		}
	}
	return found, nil
}
