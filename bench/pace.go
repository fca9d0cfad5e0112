package bench

import "time"

// quantum is the shortest sleep of an open loop. Messages that fall due in between go out together, a little late; their
// latency counts from when they were due all the same.
const quantum = 200 * time.Microsecond

// pacer is the timetable of an open loop: message n of a loop is due at start + n × interval, and belongs to lane n mod lanes. The
// timetable does not move when the server is slow, so what waits is not forgotten (no coordinated omission).
type pacer struct {
	startNS    int64
	intervalNS float64
	lanes      uint64
	issued     uint64 // messages that have fallen due so far
}

// newPacer spreads rate messages a second over lanes.
func newPacer(startNS int64, rate float64, lanes int) pacer {
	return pacer{startNS: startNS, intervalNS: 1e9 / rate, lanes: uint64(lanes)}
}

// due returns how many messages have fallen due up to now that were not yet issued.
func (p *pacer) due(nowNS int64) uint64 {
	if nowNS < p.startNS {
		return 0
	}
	total := uint64(float64(nowNS-p.startNS)/p.intervalNS) + 1
	if total <= p.issued {
		return 0
	}
	return total - p.issued
}

// issue takes the next message off the timetable and returns the lane that it belongs to.
func (p *pacer) issue() (lane int) {
	lane = int(p.issued % p.lanes)
	p.issued++
	return lane
}

// dueNS is when the lane's k-th message is due.
func (p *pacer) dueNS(lane int, k uint64) int64 {
	return p.startNS + int64(float64(k*p.lanes+uint64(lane))*p.intervalNS)
}

// sleep is how long nothing falls due, but never less than the quantum.
func (p *pacer) sleep(nowNS int64) time.Duration {
	next := p.startNS + int64(float64(p.issued)*p.intervalNS)
	return max(time.Duration(next-nowNS), quantum)
}
