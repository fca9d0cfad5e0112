package mongo

import (
	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// What a bucket may take at most. MongoDB refuses a document above 16 MiB, and a bucket that reached that could take no label any more, so
// Open and Rebucket do the sum for the worst that the limits of the protocol allow, with one key and five bytes for the head of each value:
//
//	a slot   the message: its body, and what the server adds to it (ids, times)
//	         the edit: another body
//	         64 users in del_list, 64 in the reactions together, 16 kinds
//	a bucket layout slots, and its own fields
//
// With bodies of 64 KiB a bucket of 100 takes at most 14.9 MB; a third of it only when every message was edited.
const (
	maxDocument = 16 << 20

	userBytes     = protocol.MaxIDLen + 12 // as an element of an array: type, index as text, length, end
	envelopeBytes = 1024                   // what the server adds to a message; held against the encoder by a test
	slotBytes     = 512                    // names and heads of a slot's fields, id, time, counts, the revoke
	reactionBytes = protocol.MaxReactionLen + 64
	documentBytes = 1024 // a bucket's fields beside its slots
)

// slotLimit is what a slot takes at most.
func slotLimit(body int) int {
	return slotBytes + 2*(body+envelopeBytes) + (storage.MaxDeleters+protocol.MaxReactors)*userBytes + protocol.MaxReactions*reactionBytes
}

// bucketBytes is what a bucket of size slots takes at most, with bodies of at most body bytes.
func bucketBytes(size, body int) int { return documentBytes + size*slotLimit(body) }

// maxBody is the largest limit of bodies that size slots allow; negative when none does.
func maxBody(size int) int { return ((maxDocument-documentBytes)/size - slotLimit(0)) / 2 }
