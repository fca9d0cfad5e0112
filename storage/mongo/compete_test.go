package mongo

import (
	"errors"
	"fmt"
	"testing"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

// TestRunsThatCompete: two runs for the same seqs that are written together. The first one wins, whatever their lengths, and none of the other is
// stored.
func TestRunsThatCompete(t *testing.T) {
	s := openStore(t)
	for _, n := range [][2]int{{1, 1}, {1, 2}, {2, 1}, {2, 3}, {2, 120}, {99, 100}, {100, 101}, {101, 250}} {
		r := seeded(uint64(n[0]*1000 + n[1]))
		a := storagetest.Direct("alice", fmt.Sprint("bob", n[0], "-", n[1]))
		appendRuns(t, s, a.Run(r, 5))
		b := storagetest.Direct("alice", fmt.Sprint("bob", n[0], "-", n[1]))
		b.Slots, b.Ends = append(b.Slots, a.Slots...), append(b.Ends, a.Ends...)
		first, second := a.Run(r, n[0]), b.Run(r, n[1])
		busy := storagetest.Direct("carol", fmt.Sprint("bob", n[0], "-", n[1])).Run(r, 1) // the writer is at it while the others gather
		var commits []storage.Commit
		for _, run := range []*storage.Run{busy, first, second} {
			c, err := s.Append(t.Context(), []*storage.Run{run})
			if err != nil {
				t.Fatal(err)
			}
			commits = append(commits, c)
		}
		for _, c := range commits {
			if err := c.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if first.Err != nil || !errors.Is(second.Err, storage.ErrStale) {
			t.Errorf("runs of %v: %v and %v", n, first.Err, second.Err)
		}
		a.Check(t, s, a.Tail())
	}
}
