package storage

import (
	"errors"
	"math"
	"testing"
)

// TestAddressOf is the table of where messages lie.
func TestAddressOf(t *testing.T) {
	for _, c := range []struct {
		seq, bucket uint64
		slot        int
		id          string
	}{
		{1, 0, 0, "p:a:b:0"},
		{2, 0, 1, "p:a:b:0"},
		{99, 0, 98, "p:a:b:0"},
		{100, 0, 99, "p:a:b:0"},
		{101, 1, 0, "p:a:b:1"},
		{200, 1, 99, "p:a:b:1"},
		{201, 2, 0, "p:a:b:2"},
		{10086, 100, 85, "p:a:b:100"},
		{math.MaxUint64, (math.MaxUint64 - 1) / 100, 14, "p:a:b:184467440737095516"},
	} {
		a, err := AddressOf(c.seq)
		if err != nil || a != (Address{Bucket: c.bucket, Slot: c.slot}) || a.DocumentID("p:a:b") != c.id {
			t.Errorf("seq %d is at %+v, document %s, %v; want %d, %d, %s", c.seq, a, a.DocumentID("p:a:b"), err, c.bucket, c.slot, c.id)
		}
		if first := a.FirstSeq(); first+uint64(a.Slot) != c.seq {
			t.Errorf("seq %d: its bucket begins at %d, its slot is %d", c.seq, first, a.Slot)
		}
	}
}

// TestAddressOfZero: 0 is no seq. It must be an error, not slot -1 of bucket 0 or the last slot of the last bucket there can be.
func TestAddressOfZero(t *testing.T) {
	if a, err := AddressOf(0); !errors.Is(err, ErrInvalidSeq) || a != (Address{}) {
		t.Fatalf("seq 0 is at %+v, %v", a, err)
	}
}

// TestAddressesAreDense: each seq has a slot of its own, and they follow each other.
func TestAddressesAreDense(t *testing.T) {
	want := Address{}
	for seq := uint64(1); seq <= 1000; seq++ {
		if a, err := AddressOf(seq); err != nil || a != want {
			t.Fatalf("seq %d is at %+v, want %+v, %v", seq, a, want, err)
		}
		if want.Slot++; want.Slot == BucketSize {
			want = Address{Bucket: want.Bucket + 1}
		}
	}
}
