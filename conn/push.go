package conn

import (
	"math/bits"

	"github.com/parley-im/parley/protocol"
)

// ephemeralShare is the part of SoftBound that ephemeral deliveries may fill. The rest is for those that a client cannot do without: what
// strangers send in vain must neither push these out nor get the client closed as slow.
const ephemeralShare = 4

// Deliver queues frames, in order, for each of the connections. It copies them: the slices are the caller's again when it returns. Sessions
// that are gone are ignored, and so are those that are not welcomed yet: they ask for what they missed after WELCOME. It does
// not block on the network. All frames that are queued for a connection while the loop is busy leave with one write.
func (g *Gateway) Deliver(ds []protocol.Delivery) {
	var wake uint64 // loops that must run, by index
	for i := range ds {
		d := &ds[i]
		for _, id := range d.To {
			s := g.table.get(id)
			if s == nil || !s.deliver(d) {
				continue
			}
			if s.l.mark(s) {
				wake |= 1 << s.l.index
			}
		}
	}
	if wake == 0 {
		return
	}
	loops := *g.loops.Load()
	for ; wake != 0; wake &= wake - 1 {
		loops[bits.TrailingZeros64(wake)].run()
	}
}

// deliver queues d for one session, if the bounds allow. It tells whether the caller must put the session into the dirty list.
func (s *session) deliver(d *protocol.Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateOpen {
		return false
	}
	g := s.l.g
	s.inflight -= uint16(min(d.Replies, int(s.inflight)))
	switch waiting := s.waiting(); {
	case d.Ephemeral && waiting > g.o.SoftBound/ephemeralShare:
		g.metrics.ephemeral.Inc()
		return false // something waits, so the loop will look at it
	case waiting+len(d.Frames) > g.o.HardBound:
		s.tooSlow()
	case d.Replies == 0 && !d.Close && waiting >= g.o.SoftBound:
		g.metrics.skipped.Inc()
		if !s.skip(len(d.Frames)) {
			return false // something waits, so the loop will look at it
		}
		s.tooSlow()
	case d.Close:
		s.end(reasonFarewell, d.Frames)
	default:
		s.queue(d.Frames)
	}
	return s.touch()
}

// skip notes that a delivery of n bytes is left out. It tells whether the client is to be closed instead: it has taken nothing since what it
// was left out of, with what waits, passed the hard bound. One that reads, however slowly, goes on and is told to resync. mu is held.
func (s *session) skip(n int) (stopped bool) {
	if !s.skipped || s.outbound < s.stuck {
		s.skipped, s.missed = true, 0
	}
	s.stuck = s.outbound
	s.missed += int32(min(n, s.l.g.o.HardBound))
	return s.waiting()+int(s.missed) > s.l.g.o.HardBound
}

// Kick sends KICK and closes, once the client has taken it or CloseTimeout is over. It also works before Welcome. What was delivered
// before goes out before. It does nothing when the session is gone, or ending already.
func (g *Gateway) Kick(id protocol.SessionID, k protocol.Kick) {
	s := g.table.get(id)
	if s == nil {
		return
	}
	why := reasonKick
	if k.Reason == protocol.KickTokenExpired {
		why = reasonExpired
	}
	if s.farewell(why, kickFrame(k)) {
		g.metrics.kick(k.Reason)
	}
}

// farewell ends the session with a last frame, from any goroutine. It returns false when it is ending already.
func (s *session) farewell(why reason, last []byte) bool {
	s.mu.Lock()
	if s.state >= stateClosing {
		s.mu.Unlock()
		return false
	}
	s.end(why, last)
	add := s.touch()
	s.mu.Unlock()
	if add {
		s.l.add(s)
	}
	return true
}
