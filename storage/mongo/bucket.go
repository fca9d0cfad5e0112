package mongo

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// bucket is a document of buckets: see the package's comment.
type bucket struct {
	ID       string         `bson:"_id"`
	Conv     string         `bson:"conv"`
	N        uint64         `bson:"n"`
	Layout   int            `bson:"layout"`
	Move     int            `bson:"move"`
	Tail     uint64         `bson:"tail"`
	Counts   storage.Counts `bson:"counts"`
	ActiveMS int64          `bson:"active_ms"`
	Stamp    bson.DateTime  `bson:"stamp"`
	Rev      int64          `bson:"rev"`
	Newest   bool           `bson:"newest,omitempty"`
	Sealed   bool           `bson:"sealed,omitempty"`
	Slots    []slot         `bson:"slots,omitempty"`
}

func (b *bucket) state() storage.State {
	return storage.State{Tail: b.Tail, Counts: b.Counts, ActiveMS: b.ActiveMS, Stamp: stampOf(b.Stamp)}
}

func (b *bucket) place() place { return place{layout: b.Layout, move: b.Move} }

// withoutSlots is the projection for everything else of a bucket.
func withoutSlots() bson.D { return bson.D{{Key: "slots", Value: 0}} }

// slot is an element of a bucket's slots. Of an empty one ID is nil.
type slot struct {
	ID     []byte         `bson:"id,omitempty"`
	Time   int64          `bson:"time,omitempty"`
	Counts storage.Counts `bson:"counts,omitempty"`
	Msg    []byte         `bson:"msg,omitempty"`

	// The labels:
	Revoke    *revoke    `bson:"revoke,omitempty"`
	Edit      *edit      `bson:"edit,omitempty"`
	Reactions []reaction `bson:"reactions,omitempty"`
	ChangeSeq uint64     `bson:"change_seq,omitempty"`
	DelList   []string   `bson:"del_list,omitempty"`
	DelMore   bool       `bson:"del_more,omitempty"`
	Gone      bool       `bson:"gone,omitempty"`
}

// bodyVersion is the first byte of msg.
const bodyVersion = 1

var errBody = errors.New("not a message of this version")

// appendStored appends a message that is encoded by protocol.AppendBody in its stored form.
func appendStored(dst, wire []byte) []byte { return append(append(dst, bodyVersion), wire...) }

// parseStored reads a message's stored form, which the message then aliases.
func parseStored(stored []byte, m *protocol.Message) error {
	if len(stored) == 0 || stored[0] != bodyVersion {
		return errBody
	}
	return protocol.UnmarshalAlias(stored[1:], m)
}
