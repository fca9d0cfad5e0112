package mongo

import (
	"context"
	"errors"
	"testing"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

// TestOperatorsOnMovedConversations: labels, deletions, purges and inspections find messages in another layout, also when the store does not know yet that
// they were moved, and Verify finds nothing wrong with a move, whether it ended or not.
func TestOperatorsOnMovedConversations(t *testing.T) {
	t.Parallel()
	s, k := openStore(t), storagetest.NewTalk("g:friends", users(70)...)
	sleeper := openAt(t, s.o.URI) // has looked at the conversation before it was moved
	r := seeded(60)
	appendRuns(t, s, k.Run(r, 330))
	number, seq := uint64(0), uint64(0)
	work := func(s *Store) {
		t.Helper()
		for range 3 {
			number, seq = number+1, seq+7
			c := revokeOf(k.ID, seq, number)
			apply(t, s, c)
			wantChange(t, s, c)
		}
		var owns []*storage.Own
		for _, user := range k.Members {
			owns = append(owns, &storage.Own{User: user, Conversation: k.ID, Hide: []uint64{seq + 1, 330 - seq}})
		}
		if err := s.ApplyOwn(t.Context(), owns); err != nil {
			t.Fatal(err)
		}
		purge(t, s, k.ID, seq-20, seq-15, 6)
		in, err := s.Inspect(t.Context(), k.ID, []uint64{seq - 20, seq, seq + 1, 330 - seq})
		if err != nil || len(in.Slots) != 4 || !in.Slots[0].Labels.Gone || in.Slots[1].Labels.Revoke == nil || !in.Slots[2].DelMore || len(in.Slots[3].DelList) != storage.MaxDeleters {
			t.Fatalf("%+v, %v", in, err)
		}
		for _, user := range []string{k.Members[0], k.Members[69]} {
			hidden := map[uint64]bool{}
			for _, seq := range hiddenFor(t, s, k.ID, user, 330) {
				hidden[seq] = true
			}
			if !hidden[seq+1] || !hidden[330-seq] || hidden[seq+2] {
				t.Fatalf("hidden from %s: %v", user, hidden)
			}
		}
		slot := slotOf(t, s, k.ID, "", 200)
		if n, err := s.LastBefore(t.Context(), k.ID, slot.LogTimeMS+1); err != nil || n < 200 {
			t.Fatalf("the last before: %d, %v", n, err)
		}
	}
	work(s)
	work(sleeper)
	for _, size := range []int{50, 110, 30} {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		err := s.Rebucket(ctx, k.ID, size, func(uint64, uint64) {
			if steps++; steps == 2 {
				cancel()
			}
		})
		if cancel(); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled, and yet %v", err)
		}
		sound(t, s)
		work(sleeper)
		work(s)
		if err := s.Rebucket(t.Context(), k.ID, size, nil); err != nil {
			t.Fatal(err)
		}
		sound(t, s)
		work(sleeper)
		work(s)
		appendRuns(t, s, k.Run(r, 5))
		if v := sound(t, sleeper); v.Messages != k.Tail() || v.Changes != number {
			t.Fatalf("verified %+v", v)
		}
	}
}
