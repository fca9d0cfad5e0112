package bench

// track follows numbers that should come as 0, 1, 2 … (or from a first one on), each once. The usual case is one comparison; what
// is out of line goes to a set.
type track struct {
	next    uint64 // one above the highest that was seen
	missing map[uint64]struct{}
	open    bool // nothing was seen yet, and it begins with whatever comes first
}

// verdict is what a track says of a number.
type verdict uint8

const (
	inOrder verdict = iota
	ahead           // some before it have not come yet
	late            // it is one of those
	again           // it came before
	wild            // so far ahead that it cannot be right
)

// maxAhead bounds the set of what is missing. A number that is further ahead is wild, and changes nothing.
const maxAhead = 1 << 20

func (t *track) see(n uint64) verdict {
	if n == t.next {
		t.next++
		return inOrder
	}
	return t.unusual(n)
}

func (t *track) unusual(n uint64) verdict {
	if t.open {
		t.open, t.next = false, n+1
		return inOrder
	}
	if n > t.next {
		if n-t.next > maxAhead {
			return wild
		}
		if t.missing == nil {
			t.missing = map[uint64]struct{}{}
		}
		for ; t.next < n; t.next++ {
			t.missing[t.next] = struct{}{}
		}
		t.next++
		return ahead
	}
	if _, ok := t.missing[n]; ok {
		delete(t.missing, n)
		return late
	}
	return again
}

// seen tells whether n came.
func (t *track) seen(n uint64) bool {
	if n >= t.next {
		return false
	}
	_, missing := t.missing[n]
	return !missing
}

// Checks counts what a server must never do. All zero is the only good result.
type Checks struct {
	// Lost: acked, but never pushed to the partner, though the partner's connection stood.
	Lost uint64 `json:"lost"`
	// Duplicates: pushed to the partner more than once.
	Duplicates uint64 `json:"duplicates"`
	// Order: messages that came after one with a higher seq, or after a later one of the same sender.
	Order uint64 `json:"order_violations"`
	// Gaps: seqs of a conversation that a connection never saw, below one that it did.
	Gaps uint64 `json:"seq_gaps"`
	// Reused: seqs that a connection saw on two different messages.
	Reused uint64 `json:"seq_reused"`
	// Views: conversations of which the two sides saw the same seqs, but on other messages.
	Views uint64 `json:"views_differ"`
	// Misdelivered: messages of somebody else's conversation.
	Misdelivered uint64 `json:"misdelivered"`
	// Corrupt: messages whose content is not what was sent.
	Corrupt uint64 `json:"corrupt"`
	// Stray: replies to requests that were not open.
	Stray uint64 `json:"stray_replies"`
	// Unanswered: requests without a reply at the end of the run, though the connection stood.
	Unanswered uint64 `json:"unanswered"`
}

// Passed tells whether nothing was found.
func (c *Checks) Passed() bool { return *c == Checks{} }

func (c *Checks) add(o *Checks) {
	c.Lost += o.Lost
	c.Duplicates += o.Duplicates
	c.Order += o.Order
	c.Gaps += o.Gaps
	c.Reused += o.Reused
	c.Views += o.Views
	c.Misdelivered += o.Misdelivered
	c.Corrupt += o.Corrupt
	c.Stray += o.Stray
	c.Unanswered += o.Unanswered
}
