package logic

import (
	"encoding/binary"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// The horizon of de-duplication. An id is a repeat if it stands among the conversation's last 200 messages, or among those of the 5
// minutes before the record, at most 10,000. It is exact and follows from the stored messages and their log times alone, so that
// every worker, with whatever memory, decides alike.
const (
	repeatLast     = 200
	repeatWindowMS = 5 * 60 * 1000
	repeatMost     = 10_000
)

// recent has the ids of a conversation's newest messages: a ring by seq, and chains through it by hash, like the match finder of a
// compressor. An entry is found by walking the chain of its hash from the newest; nothing is ever deleted, entries are overwritten when
// the ring comes round. It grows while what would be overwritten is still within the horizon, so a quiet conversation takes little. Ids are
// kept whole, not as short hashes: no look into the store is needed to be sure, and it is 8 bytes more.
type recent struct {
	tail    uint64 // seq of the newest entry
	count   int    // entries in the ring, tail-count+1 .. tail
	entries []recentEntry
	heads   []uint32 // by hash: the low half of the newest seq
}

type recentEntry struct {
	id        protocol.MessageID
	logTimeMS int64
	back      uint32 // how far back the chain's next entry is; 0: none
}

const (
	recentEntryBytes = 16 + 8 + 8 + 4
	recentLeast      = 8
	recentMost       = 16384 // the power of two above repeatMost
)

// find returns the seq of the message with the id, if the horizon of a record of logTimeMS has it.
func (r *recent) find(id protocol.MessageID, logTimeMS int64) (seq uint64, ok bool) {
	if r.count == 0 {
		return 0, false
	}
	back := uint32(r.tail) - r.heads[r.hash(id)]
	for depth := uint64(back); depth < uint64(r.count); depth += uint64(back) {
		e := r.at(r.tail - depth)
		if e.id == id {
			return r.tail - depth, within(depth, e.logTimeMS, logTimeMS)
		}
		if back = e.back; back == 0 {
			break
		}
	}
	return 0, false
}

// within tells whether a message that is depth below the tail, of logTimeMS, is in the horizon of a record of nowMS.
func within(depth uint64, logTimeMS, nowMS int64) bool {
	return depth < repeatLast || depth < repeatMost && logTimeMS >= nowMS-repeatWindowMS
}

// add notes the message of seq tail + 1.
func (r *recent) add(id protocol.MessageID, logTimeMS int64) {
	if r.count == len(r.entries) && r.mustGrow(logTimeMS) {
		r.grow()
	}
	r.tail++
	if r.count < len(r.entries) {
		r.count++
	}
	r.link(r.tail, id, logTimeMS)
}

// mustGrow tells whether the entry that add would overwrite is still within the horizon of later records.
func (r *recent) mustGrow(logTimeMS int64) bool {
	if len(r.entries) == 0 {
		return true
	}
	oldest := r.at(r.tail - uint64(r.count) + 1)
	return len(r.entries) < recentMost && within(uint64(r.count), oldest.logTimeMS, logTimeMS)
}

func (r *recent) grow() {
	old := *r
	size := max(recentLeast, 2*len(old.entries))
	r.entries, r.heads = make([]recentEntry, size), make([]uint32, size)
	for seq := old.tail - uint64(old.count) + 1; seq <= old.tail; seq++ {
		e := old.at(seq)
		r.link(seq, e.id, e.logTimeMS)
	}
}

func (r *recent) link(seq uint64, id protocol.MessageID, logTimeMS int64) {
	h := r.hash(id)
	*r.at(seq) = recentEntry{id: id, logTimeMS: logTimeMS, back: uint32(seq) - r.heads[h]}
	r.heads[h] = uint32(seq)
}

func (r *recent) at(seq uint64) *recentEntry { return &r.entries[seq&uint64(len(r.entries)-1)] }

// hash is the head's index. Ids are cut from SHA-256, so any bits of them are as good as others.
func (r *recent) hash(id protocol.MessageID) int {
	return int(binary.LittleEndian.Uint32(id[:]) & uint32(len(r.heads)-1))
}

// bytes is the memory that the ring takes.
func (r *recent) bytes() int64 { return int64(len(r.entries)) * recentEntryBytes }

// loadRecent fills a ring for a conversation at tail from what is stored, newest first, as far as the horizon of a record of logTimeMS goes.
func loadRecent(tail uint64, logTimeMS int64, stored func(yield func(storage.RecentID) bool) error) (recent, error) {
	var newest []storage.RecentID
	err := stored(func(id storage.RecentID) bool {
		if !within(tail-id.Seq, id.LogTimeMS, logTimeMS) {
			return false
		}
		newest = append(newest, id)
		return true
	})
	r := recent{tail: tail - uint64(len(newest))}
	for i := len(newest) - 1; i >= 0 && err == nil; i-- {
		r.add(newest[i].ID, newest[i].LogTimeMS)
	}
	return r, err
}
