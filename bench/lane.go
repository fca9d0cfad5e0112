//go:build linux

package bench

const (
	slotBits = 10
	slotMask = 1<<slotBits - 1
	// MaxWindow is the largest window: a request id holds the number of its slot.
	MaxWindow = slotMask
)

// slot is a place in a lane's window. The request id of the SEND that occupies it is generation << slotBits | slot, so that a
// reply finds its slot without a table, and a reply that comes twice is noticed.
type slot struct {
	request    uint32 // 0: free
	generation uint32 // 22 bits, never 0
	index      uint64 // the message
}

// lane is one side of a conversation: what a connection sends to its partner, and what it has seen of both.
type lane struct {
	c     *conn // nil until it is ready
	user  string
	frame template
	slots []slot
	free  []uint16 // slots without a message
	sent  uint64   // messages sent; the index of the next one
	due   uint64   // open loop: messages that have fallen due
	peer  *lane

	from   track  // indices of the partner's messages that were pushed here
	seqs   track  // seqs of the conversation that were seen here, on acks and pushes
	digest uint64 // of which message was seen at which seq; the same for both sides in the end
	own    uint64 // own messages that were pushed to their sender
	// unnumbered counts acks without a seq whose own push has not come. It is below 0 while a push has come before its ack.
	unnumbered int64
	failed     map[uint64]struct{} // messages answered with an error: they may be stored, or not
	acked      uint64
	delivered  uint64 // distinct messages of the partner
	dead       bool

	resyncs int // EVENTs that told it to
	pulls   int
	pulling bool // a PULL has no reply yet
}

func (ln *lane) setup(peer *lane, window int) {
	ln.peer = peer
	ln.slots = make([]slot, window)
	ln.free = make([]uint16, window)
	for i := range ln.free {
		ln.free[i] = uint16(window - 1 - i)
	}
}

// open is how many SENDs have no reply yet.
func (ln *lane) open() int {
	n := 0
	for i := range ln.slots {
		if ln.slots[i].request != 0 {
			n++
		}
	}
	return n
}

// take occupies a free slot with the lane's next message.
func (ln *lane) take() *slot {
	k := ln.free[len(ln.free)-1]
	ln.free = ln.free[:len(ln.free)-1]
	s := &ln.slots[k]
	if s.generation++; s.generation >= 1<<(32-slotBits)-1 { // the last one is pingRequest's
		s.generation = 1
	}
	s.request = s.generation<<slotBits | uint32(k)
	s.index = ln.sent
	ln.sent++
	return s
}

// answered empties the slot of a request and returns it with its number; nil when the request is not open.
func (ln *lane) answered(request uint32) (s *slot, k uint16) {
	k = uint16(request & slotMask)
	if int(k) >= len(ln.slots) || request == 0 || ln.slots[k].request != request {
		return nil, 0
	}
	s = &ln.slots[k]
	s.request = 0
	return s, k
}

// numbered notes that the message of sender stands at seq, as an ack or a push said, and counts what is wrong with that.
func (ln *lane) numbered(seq uint64, sender uint32, index uint64, moved bool, ck *Checks) {
	switch ln.seqs.see(seq) {
	case again:
		ck.Reused++
		return
	case wild:
		ck.Gaps++
		return
	case late:
		if !moved { // a message that is out of line is counted once
			ck.Order++
		}
	}
	ln.digest += word(seedOf(sender, index) ^ seq*step)
}

// settled tells whether all that was sent is answered, and all that was acked has arrived.
func (ln *lane) settled() bool {
	return (ln.dead || ln.open() == 0 && ln.unnumbered <= 0) && (ln.peer.dead || ln.lost() == 0)
}

// lost counts the messages that were acked and did not arrive. An open or failed one is not acked.
func (ln *lane) lost() uint64 {
	got := &ln.peer.from
	if got.next == ln.sent && len(got.missing) == 0 {
		return 0
	}
	excused := make(map[uint64]struct{}, len(ln.slots))
	for i := range ln.slots {
		if ln.slots[i].request != 0 {
			excused[ln.slots[i].index] = struct{}{}
		}
	}
	var n uint64
	count := func(index uint64) {
		_, open := excused[index]
		_, failed := ln.failed[index]
		if !open && !failed {
			n++
		}
	}
	for index := range got.missing {
		count(index)
	}
	for index := got.next; index < ln.sent; index++ {
		count(index)
	}
	return n
}

// storedAnyway is how many messages were answered with an error and delivered all the same, as is allowed. Their sender was not
// told their seqs.
func (ln *lane) storedAnyway() (n int) {
	for index := range ln.failed {
		if ln.peer.from.seen(index) {
			n++
		}
	}
	return n
}

// verdictOfPair adds what can only be told at the end, for a lane and its peer. A connection that was lost excuses what it did not see.
func verdictOfPair(a, b *lane, ck *Checks) {
	for _, ln := range [2]*lane{a, b} {
		if !ln.peer.dead {
			ck.Lost += ln.lost()
		}
	}
	if a.dead || b.dead {
		return
	}
	for _, ln := range [2]*lane{a, b} {
		ck.Unanswered += uint64(ln.open())
		ck.Gaps += uint64(max(0, len(ln.seqs.missing)-ln.storedAnyway()))
	}
	whole := len(a.seqs.missing)+len(b.seqs.missing) == 0 && a.seqs.next == b.seqs.next
	if whole && a.digest != b.digest {
		ck.Views++
	}
}
