package client

import (
	"github.com/parley-im/parley/protocol"
)

// push takes the messages of a PUSH. Those that have no room only raise the target.
func (b *inbox) push(list []protocol.Message, p *pushed, gen uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gen != b.gen {
		return
	}
	for i := range list {
		if cv := b.conversation(list[i].ConversationID); cv != nil {
			b.offer(cv, &list[i], p)
			b.schedule(cv)
		}
	}
}

// own takes a message of ours whose ack had a seq.
func (b *inbox) own(m *protocol.Message, gen uint64) {
	b.push([]protocol.Message{*m}, nil, gen)
}

// exists notes that a conversation goes up to seq.
func (b *inbox) exists(id string, seq, gen uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gen != b.gen {
		return
	}
	if cv := b.conversation(id); cv != nil {
		cv.noteLowest(seq)
		cv.target = max(cv.target, seq)
		b.schedule(cv)
	}
}

func (cv *conversation) noteLowest(seq uint64) {
	if !cv.known && (cv.lowest == 0 || seq < cv.lowest) {
		cv.lowest = seq
	}
}

// offer holds a pushed message until it is the next one.
func (b *inbox) offer(cv *conversation, m *protocol.Message, p *pushed) {
	end := lastSeq(m)
	switch old := cv.held[m.Seq]; {
	case m.Seq == 0:
	case cv.known && end <= cv.cursor:
		b.count.duplicates.Add(1)
		p.taken()
	case old != nil:
		b.count.duplicates.Add(1)
		b.replace(old, m, p)
	default:
		cv.noteLowest(m.Seq)
		cv.target, cv.changeTarget = max(cv.target, end), max(cv.changeTarget, m.ChangeSeq)
		b.keep(cv, &held{m: *m, end: end, size: sizeOf(m), acks: p.list()})
	}
}

// replace keeps the later copy of a message. What has nothing to show never has again.
func (b *inbox) replace(old *held, m *protocol.Message, p *pushed) {
	if m.ChangeSeq > old.m.ChangeSeq && !placeholder(&old.m) {
		size := sizeOf(m)
		b.account(old, size-old.size)
		old.m, old.size = *m, size
	}
	if p != nil && len(old.acks) < maxAcks {
		old.acks = append(old.acks, p)
	}
}

func (b *inbox) keep(cv *conversation, h *held) {
	if !h.pulled && (h.m.Seq <= cv.pullTo || b.pushedBytes+h.size > b.maxBytes) {
		b.count.pushesDropped.Add(1)
		return
	}
	if cv.known && h.m.Seq <= cv.cursor { // a run that began before
		h.m.Seq = cv.cursor + 1
	}
	if cv.held[h.m.Seq] != nil {
		return
	}
	b.account(h, h.size)
	cv.held[h.m.Seq] = h
}

// account counts the bytes that are held; fetchers wait for those that they brought to become fewer.
func (b *inbox) account(h *held, n int) {
	if !h.pulled {
		b.pushedBytes += n
		return
	}
	b.fetchedBytes += n
	if n < 0 {
		b.fetch.Broadcast()
	}
}

// advance moves the cursor to seq, over what has nothing to show, and drops what is held up to there.
func (b *inbox) advance(cv *conversation, seq uint64) {
	if seq <= cv.cursor {
		return
	}
	cv.cursor = seq
	cv.target = max(cv.target, seq)
	for at, h := range cv.held {
		if at > seq {
			continue
		}
		delete(cv.held, at)
		b.account(h, -h.size)
		if h.end > seq { // a run that goes on
			b.keep(cv, h)
			continue
		}
		for _, p := range h.acks {
			p.taken()
		}
	}
}

func sizeOf(m *protocol.Message) int {
	n := len(m.Content) + messageOverhead
	for i := range m.Reactions {
		n += messageOverhead / 4
		for _, user := range m.Reactions[i].Users {
			n += messageOverhead/16 + len(user)
		}
	}
	return n
}

// lastSeq is the last seq that a message stands for.
func lastSeq(m *protocol.Message) uint64 {
	if placeholder(m) && m.Run > 1 {
		return m.Seq + uint64(m.Run) - 1
	}
	return m.Seq
}

// placeholder tells whether a message stands for seqs that have nothing to show.
func placeholder(m *protocol.Message) bool {
	return m.Status == protocol.StatusGone || m.Status == protocol.StatusHidden
}

func (p *pushed) list() []*pushed {
	if p == nil {
		return nil
	}
	return []*pushed{p}
}

// taken notes that the app took one message of a PUSH; after the last one the server is told.
func (p *pushed) taken() {
	if p == nil {
		return
	}
	if p.left--; p.left == 0 && p.id != 0 {
		p.k.ackPush(p.id)
	}
}
