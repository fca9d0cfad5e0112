//go:build linux

package bench

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"
)

// DefaultLoops is how many event loops the harness has when it is not told: half of the processors, the other half being the
// server's.
func DefaultLoops() int { return max(1, runtime.NumCPU()/2) }

func loopsOr(n int) int {
	if n > 0 {
		return n
	}
	return DefaultLoops()
}

// load is what is measured of a fleet.
type load struct {
	warmup, duration, drain time.Duration
	pid                     int          // of the server; 0: not known
	show                    io.Writer    // where progress goes; nil: nowhere
	ready                   func() error // called when every connection is open
}

// measure takes a fleet through all phases up to phaseDrain. Rates are of the measured time alone.
func measure(f *fleet, w load) (m Measured, err error) {
	lines := newLiner(w.show)
	if err = f.opened(lines.opening); err != nil {
		return m, err
	}
	if err = f.allOpen(); err != nil {
		return m, err
	}
	if w.ready != nil {
		if err = w.ready(); err != nil {
			return m, err
		}
	}
	f.enter(phaseWarm)
	if err = f.linger(w.warmup, lines.load("warm-up")); err != nil {
		return m, err
	}
	before, began := f.progress(), sample(w.pid)
	f.enter(phaseMeasure)
	if err = f.linger(w.duration, lines.load("")); err != nil {
		return m, err
	}
	after, ended := f.progress(), sample(w.pid)
	f.enter(phaseDrain)
	err = f.wait(w.drain, func(p progress) bool { return p.quiet }, nil)
	if err != nil && !errors.Is(err, errLimit) {
		return m, err
	}
	return measured(before, after, began, ended), nil
}

func measured(before, after progress, began, ended usage) Measured {
	d := after.at.Sub(before.at).Seconds()
	m := Measured{
		Seconds: d, Acked: after.acked - before.acked, Delivered: after.delivered - before.delivered,
	}
	m.AckedRate = float64(m.Acked) / d
	m.DeliveredRate = float64(m.Delivered) / d
	m.Client = ended.client.since(began.client, m.Acked, d)
	if began.server != nil && ended.server != nil {
		cost := ended.server.since(*began.server, m.Acked, d)
		m.Server = &cost
		m.ServerRSS = ended.serverRSS
	}
	return m
}

func talksAck(talks []*talk) *recorder {
	all := newRecorder()
	for _, t := range talks {
		all.merge(t.ack)
	}
	return all
}

func talksDeliver(talks []*talk) *recorder {
	all := newRecorder()
	for _, t := range talks {
		all.merge(t.deliver)
	}
	return all
}

// liner writes a line of progress a second.
type liner struct {
	w     io.Writer // nil: nowhere
	began time.Time
	last  progress
}

func newLiner(w io.Writer) *liner {
	now := time.Now()
	return &liner{w: w, began: now, last: progress{at: now}}
}

// due tells whether a second has passed since the last line.
func (ln *liner) due(p progress) bool {
	return ln.w != nil && p.at.Sub(ln.last.at) >= time.Second
}

func (ln *liner) opening(p progress) {
	if ln.due(p) {
		ln.last = p
		_, _ = fmt.Fprintf(ln.w, "%5.0fs  %d connections open, %d failed, %d lost\n", p.at.Sub(ln.began).Seconds(), p.open, p.failed, p.lost)
	}
}

// load returns the line writer of a phase.
func (ln *liner) load(note string) func(progress) {
	return func(p progress) {
		if !ln.due(p) {
			return
		}
		d := p.at.Sub(ln.last.at).Seconds()
		_, _ = fmt.Fprintf(ln.w, "%5.0fs  %8.0f acked/s  %8.0f delivered/s  %6d in flight  %s\n", p.at.Sub(ln.began).Seconds(),
			float64(p.acked-ln.last.acked)/d, float64(p.delivered-ln.last.delivered)/d, p.sent-p.acked, note)
		ln.last = p
	}
}
