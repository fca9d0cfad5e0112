// Package mongo stores conversations in MongoDB: storage.Buckets, storage.Directory, storage.Changes and storage.Operator. Several processes
// may use one database at the same time.
//
// Every write is acknowledged by a majority and journaled; every read is of the primary, with read concern majority.
//
// # Documents
//
//	buckets   _id        "<conversation>:<n>", or "<conversation>:<n>/<layout>" when the layout is not 100
//	          conv       the conversation
//	          n          the bucket's number: (seq-1) / layout
//	          layout     how many slots it has, always: 100 unless the conversation was moved (rebucket.go)
//	          move       how often the conversation was moved before this document was made
//	          tail       the highest seq in it
//	          counts     [a, b]: the running counts of unread messages at tail
//	          active_ms  storage.State.ActiveMS of the run that wrote tail
//	          stamp      the store's clock at the last append: see stamp.go
//	          rev        raised by every write of the document
//	          newest     true in the conversation's newest bucket; for a while also in those before it: the highest tail counts
//	          gone_to    in the first bucket: everything up to this seq was purged; not kept when the conversation is moved
//	          sealed     true when its messages were moved: nothing in it may be read or changed
//	          slots      [layout × {…}]
//	  slot    {}  until the message comes; then
//	          id         16 bytes of the message's id; kept for ever
//	          time       ms, the log's
//	          counts     [a, b] after the message
//	          msg        0x01, then the message as protocol.AppendBody encodes it
//	          and as labels, each written by itself:
//	          revoke     {user, role, time}
//	          edit       {type, content, time}
//	          reactions  [{kind, count, users}]
//	          change_seq of the latest change that everybody sees
//	          del_list   users who deleted it for themselves, at most 64; beyond that
//	          del_more   true: there are others, in hidden
//	          gone       true: purged; of the rest only id, time and counts are left
//	changes   change buckets: see notes.go
//	rows      users' rows: see rows.go
//	hidden    what users deleted beyond del_list: see bits.go
//	reactors  who reacted beyond reactions.users: see bits.go
//	devices   devices that were signed out: see rows.go
//	layouts   conversations in another layout than 100, or on the way to one: see place.go
//	meta      {_id: "parley", epoch, format: 1}
//
// A bucket is only ever created whole, with all its slots: a $set of slots.85 in an array that is short, or not there, does not make the array
// that is meant. An empty slot at or below tail cannot be.
//
// # Writing
//
// The state of a conversation is in its newest bucket, and every append is a compare-and-set on the tail in it: see writer.go.
package mongo
