package storage

import "strconv"

// BucketSize is how many consecutive messages of a conversation one bucket holds. It is part of every address.
const BucketSize = 100

// Address is where a message lies: arithmetic, never a query.
type Address struct {
	Bucket uint64 // (seq-1) / 100
	Slot   int    // (seq-1) % 100
}

// AddressOf is the address of seq. Seq 0 is ErrInvalidSeq, never slot -1 or a false hit.
func AddressOf(seq uint64) (Address, error) {
	if seq == 0 {
		return Address{}, ErrInvalidSeq
	}
	return Address{Bucket: (seq - 1) / BucketSize, Slot: int((seq - 1) % BucketSize)}, nil
}

// DocumentID is the id of the bucket's document: <conversation>:<bucket>.
func (a Address) DocumentID(conversation string) string {
	return conversation + ":" + strconv.FormatUint(a.Bucket, 10)
}

// FirstSeq is the seq of the bucket's slot 0.
func (a Address) FirstSeq() uint64 { return a.Bucket*BucketSize + 1 }
