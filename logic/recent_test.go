package logic

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// stored is a conversation as the store has it: the model that recent must agree with.
type stored []storage.RecentID

// find is the horizon as it is written in the contract, on a plain list.
func (s stored) find(id protocol.MessageID, nowMS int64) (uint64, bool) {
	for i := len(s) - 1; i >= 0; i-- {
		depth := len(s) - 1 - i
		if depth >= repeatMost {
			break
		}
		if s[i].ID == id {
			return s[i].Seq, depth < repeatLast || s[i].LogTimeMS >= nowMS-repeatWindowMS
		}
	}
	return 0, false
}

func (s stored) newestFirst(yield func(storage.RecentID) bool) error {
	for i := len(s) - 1; i >= 0; i-- {
		if !yield(s[i]) {
			break
		}
	}
	return nil
}

func testID(n uint64) (id protocol.MessageID) {
	binary.LittleEndian.PutUint64(id[:], n*0x9e3779b97f4a7c15) // spread over the hash's bits
	binary.LittleEndian.PutUint64(id[8:], n)
	return id
}

// TestRecentAgrees runs random histories: bursts, quiet times, repeats near and far, and restarts that load the ring anew at any point. The
// ring that ran through, the one that was just loaded, and the plain list must decide alike.
func TestRecentAgrees(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var list stored
		var ring recent
		now := int64(1_800_000_000_000)
		next := uint64(0)
		for range 3000 {
			switch rng.IntN(20) {
			case 0:
				now += rng.Int64N(2 * repeatWindowMS) // quiet
				if rng.IntN(8) == 0 {
					now += rng.Int64N(1 << 33) // for months
				}
			case 1:
				loaded, err := loadRecent(uint64(len(list)), now, list.newestFirst)
				if err != nil {
					t.Fatal(err)
				}
				ring = loaded
			default:
				now += rng.Int64N(2000)
			}
			id := testID(next)
			if next > 0 && rng.IntN(4) == 0 {
				id = testID(next - 1 - rng.Uint64N(min(next, 600)))
			} else {
				next++
			}
			wantSeq, want := list.find(id, now)
			gotSeq, got := ring.find(id, now)
			if got != want || got && gotSeq != wantSeq {
				t.Fatalf("seed %d, at tail %d: find says %d %v, the list %d %v", seed, len(list), gotSeq, got, wantSeq, want)
			}
			if !got {
				ring.add(id, now)
				list = append(list, storage.RecentID{Seq: uint64(len(list) + 1), ID: id, LogTimeMS: now})
			}
		}
	}
}

// TestRecentIsBounded fills far more into five minutes than the horizon may hold.
func TestRecentIsBounded(t *testing.T) {
	var ring recent
	for n := range uint64(3 * repeatMost) {
		ring.add(testID(n), 1000)
	}
	if got, most := ring.bytes(), int64(200_000); got > most {
		t.Errorf("the ring takes %d bytes, more than %d", got, most)
	}
	newest := uint64(3*repeatMost - 1)
	if seq, ok := ring.find(testID(newest-repeatMost+1), 1000); !ok || seq != newest-repeatMost+2 {
		t.Errorf("the oldest of the last %d is not found: %d %v", repeatMost, seq, ok)
	}
	if _, ok := ring.find(testID(newest-repeatMost), 1000); ok {
		t.Error("a message beyond the horizon is found")
	}
	if _, ok := ring.find(testID(newest-repeatLast), 1000+repeatWindowMS+1); ok {
		t.Error("a message beyond the last 200 is found after the window")
	}
	if _, ok := ring.find(testID(newest-repeatLast+1), 1000+repeatWindowMS+1); !ok {
		t.Error("the 200th newest message is not found after the window")
	}
}

// TestQuietRingStaysSmall: one message an hour never needs more than the last 200.
func TestQuietRingStaysSmall(t *testing.T) {
	var ring recent
	for n := range uint64(5000) {
		ring.add(testID(n), int64(n)*3_600_000)
	}
	if len(ring.entries) != 256 {
		t.Errorf("the ring has %d places, want 256", len(ring.entries))
	}
}

func BenchmarkRecent(b *testing.B) {
	var ring recent
	now := int64(0)
	b.ReportAllocs()
	for n := range uint64(b.N) {
		id := testID(n)
		if _, ok := ring.find(id, now); ok {
			b.Fatal("found")
		}
		ring.add(id, now)
		now += int64(n & 1)
	}
}
