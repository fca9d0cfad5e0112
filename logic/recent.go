package logic

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

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
// the ring comes round. It grows while what would be overwritten is still within the horizon, so a quiet conversation takes little, and one
// with more than 33 messages a second takes 192 KB.
//
// It keeps 8 bytes of an id. That two ids of one conversation share them is as good as impossible, and it is found out: a repeat is
// acked only after its id was held against the stored message (emitRepeats), and if they differ the sender is told to try again,
// until the other message is out of the horizon.
type recent struct {
	tail    uint64 // seq of the newest entry
	count   int    // entries in the ring, tail-count+1 .. tail
	baseMS  int64  // entries' times count from here
	entries []recentEntry
	heads   []uint32 // by hash: the low half of the newest seq; a power of two of them
}

type recentEntry struct {
	tag     uint64 // the id's first 8 bytes
	afterMS uint32 // log time since baseMS
	back    uint32 // how far back the chain's next entry is; 0: none
}

const (
	recentEntryBytes = 8 + 4 + 4
	recentLeast      = 8
	recentMost       = repeatMost
	recentMostHeads  = 8192
)

// find returns the seq of the message with the id, if the horizon of a record of logTimeMS has it.
func (r *recent) find(id protocol.MessageID, logTimeMS int64) (seq uint64, ok bool) {
	if r.count == 0 {
		return 0, false
	}
	tag := tagOf(id)
	back := uint32(r.tail) - r.heads[r.hash(tag)]
	for depth := uint64(back); depth < uint64(r.count); depth += uint64(back) {
		e := r.at(r.tail - depth)
		if e.tag == tag {
			return r.tail - depth, within(depth, r.baseMS+int64(e.afterMS), logTimeMS)
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
	r.rebase(logTimeMS)
	r.tail++
	if r.count < len(r.entries) {
		r.count++
	}
	r.link(r.tail, recentEntry{tag: tagOf(id), afterMS: uint32(logTimeMS - r.baseMS)})
}

// rebase moves the times' base when a new one is too far from it, after 49 days. Older entries then count as of the new base, which is
// beyond the window as they are.
func (r *recent) rebase(logTimeMS int64) {
	if logTimeMS-r.baseMS <= math.MaxUint32 && r.count > 0 {
		return
	}
	base := logTimeMS - repeatWindowMS - 1
	for seq := r.tail - uint64(r.count) + 1; seq <= r.tail; seq++ {
		e := r.at(seq)
		e.afterMS = uint32(max(0, r.baseMS+int64(e.afterMS)-base))
	}
	r.baseMS = base
}

// mustGrow tells whether the entry that add would overwrite is still within the horizon of later records.
func (r *recent) mustGrow(logTimeMS int64) bool {
	if len(r.entries) == 0 {
		return true
	}
	oldest := r.at(r.tail - uint64(r.count) + 1)
	return len(r.entries) < recentMost && within(uint64(r.count), r.baseMS+int64(oldest.afterMS), logTimeMS)
}

func (r *recent) grow() {
	old := *r
	size := min(max(recentLeast, 2*len(old.entries)), recentMost)
	heads := min(max(recentLeast, 2*len(old.heads)), recentMostHeads)
	r.entries, r.heads = make([]recentEntry, size), make([]uint32, heads)
	for seq := old.tail - uint64(old.count) + 1; seq <= old.tail; seq++ {
		r.link(seq, *old.at(seq))
	}
}

// link puts an entry into the place of seq, and at the head of its chain.
func (r *recent) link(seq uint64, e recentEntry) {
	head := &r.heads[r.hash(e.tag)]
	e.back = uint32(seq) - *head
	*head = uint32(seq)
	*r.at(seq) = e
}

func (r *recent) at(seq uint64) *recentEntry { return &r.entries[seq%uint64(len(r.entries))] }

// hash is the head's index. Whoever picks client_msg_ids picks bits of ids, and could put all of them into one chain; hence the secret.
func (r *recent) hash(tag uint64) int { return int(spread(tag) >> 32 & uint64(len(r.heads)-1)) }

// spreadKey is an odd number that no client knows. It decides where things lie in memory and nothing that anybody sees.
var spreadKey = rand.Uint64() | 1

// spread mixes the bits of a tag: the upper half of the result depends on all below.
func spread(tag uint64) uint64 { return (tag ^ tag>>32) * spreadKey }

func tagOf(id protocol.MessageID) uint64 { return binary.LittleEndian.Uint64(id[:]) }

// bytes is the memory that the ring takes.
func (r *recent) bytes() int64 { return int64(len(r.entries))*recentEntryBytes + 4*int64(len(r.heads)) }

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
