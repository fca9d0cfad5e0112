package logic

import (
	"math"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

const (
	defaultPullLimit = 50
	maxPullScan      = 10_000 // seqs that one PULL looks at: long stretches of gone or hidden ones come in several replies
	replyOverhead    = 64     // bytes of a reply's body besides its list, at most
)

// pull answers every seq of a range: there are never silent holes.
func (l *Logic) pull(s *session, q *protocol.Pull) (*protocol.PullReply, error) {
	e, err := l.entry(s, q.ConversationID)
	if err != nil {
		return nil, err
	}
	if q.FromSeq > q.ToSeq && q.ToSeq != 0 {
		return nil, invalid("from_seq is above to_seq")
	}
	reply := &protocol.PullReply{MinSeq: e.MinSeq, MaxSeq: e.State.Tail}
	from, to := max(q.FromSeq, e.MinSeq, 1), e.State.Tail
	if q.ToSeq != 0 {
		to = min(q.ToSeq, to)
	}
	if from > to {
		return reply, nil
	}
	page := page{want: from, last: to, limit: pageLimit(q.Limit, defaultPullLimit, protocol.MaxSeqs), room: l.o.MaxDown - replyOverhead}
	if q.NewestFirst {
		page.want, page.last, page.down = to, from, true
	}
	viewer := s.viewer(e)
	err = l.o.Buckets.Read(l.ctx, storage.Range{Conversation: q.ConversationID, From: from, To: to, Viewer: s.User, NewestFirst: q.NewestFirst, Expect: page.limit}, func(slot *storage.Slot) bool {
		return page.take(slot, viewer)
	})
	if err != nil {
		return nil, err
	}
	if page.hole || !page.full && !page.done && page.scanned < maxPullScan {
		return nil, l.hole(q.ConversationID, page.want)
	}
	reply.Messages, reply.More = page.messages, !page.done
	return reply, nil
}

func pageLimit(asked uint16, byDefault, most int) int {
	if asked == 0 {
		return byDefault
	}
	return min(int(asked), most)
}

// page gathers the messages of one reply: at most limit, within room bytes, and at least one.
type page struct {
	want, last uint64 // the next seq, and that of the range's end
	down       bool   // from high to low
	limit      int
	room       int
	messages   []protocol.Message

	full bool // no further message goes in
	done bool // last is in
	hole bool // the store left out want

	scanned int
}

// take adds what the viewer sees of a slot, and tells whether there is room for another.
func (p *page) take(slot *storage.Slot, v storage.Viewer) bool {
	if slot.Message.Seq != p.want {
		p.hole = true
		return false
	}
	view := storage.Project(&slot.Message, &slot.Labels, v)
	p.scanned++
	if p.extend(&view) {
		return p.next() && p.scanned < maxPullScan
	}
	if p.full = len(p.messages) >= p.limit; p.full {
		return false
	}
	size := encodedSize(&view)
	if len(p.messages) > 0 && size > p.room {
		p.full = true
		return false
	}
	p.room -= size
	p.messages = append(p.messages, view)
	p.full = len(p.messages) == p.limit && !placeholder(&view) // what stands for several seqs may go on
	return p.next() && !p.full && p.scanned < maxPullScan
}

func placeholder(view *protocol.Message) bool {
	return view.Status == protocol.StatusGone || view.Status == protocol.StatusHidden
}

// next goes on to the next seq, and tells whether there is one.
func (p *page) next() bool {
	p.done = p.want == p.last
	if p.down {
		p.want--
	} else {
		p.want++
	}
	return !p.done
}

// extend lets the last entry stand for one seq more, when both have nothing to show.
func (p *page) extend(view *protocol.Message) bool {
	if len(p.messages) == 0 || !placeholder(view) {
		return false
	}
	last := &p.messages[len(p.messages)-1]
	if last.Status != view.Status || last.Run == math.MaxUint32 {
		return false
	}
	last.Run++
	last.Seq = min(last.Seq, view.Seq)
	return true
}

// encodedSize is the most that a message takes in a reply.
func encodedSize(m *protocol.Message) int {
	n := messageOverhead + len(m.Content)
	for _, u := range m.Mentions {
		n += len(u) + 2
	}
	for i := range m.Reactions {
		n += protocol.MaxReactionLen + 16
		for _, u := range m.Reactions[i].Users {
			n += len(u) + 2
		}
	}
	return n
}
