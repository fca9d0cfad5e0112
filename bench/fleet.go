//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// fleet is the loops of one run and the goroutines that they run on.
type fleet struct {
	loops []*loop
	phase atomic.Int32
	group *errgroup.Group
	ended context.Context // done when a loop failed
	start time.Time
	count int
}

// fleetOptions say what a fleet is made of.
type fleetOptions struct {
	addr    string
	conns   int
	loops   int
	hello   func(id uint32) []byte
	rate    float64 // connections a second; 0: no limit
	timeout time.Duration
	scene   func(l *loop, share float64) scene // share is the loop's part of the connections
}

const (
	dialingAtOnce  = 256
	defaultTimeout = 10 * time.Second
)

// newFleet makes the loops. Connections 2i and 2i+1 are in the same one.
func newFleet(o fleetOptions) (*fleet, error) {
	to, err := resolve(o.addr)
	if err != nil {
		return nil, err
	}
	f := &fleet{start: time.Now(), count: o.conns}
	n := max(1, min(o.loops, o.conns/2))
	for i := range n {
		var ids []uint32
		for id := 2 * i; id < o.conns; id += 2 * n {
			ids = append(ids, uint32(id))
			if id+1 < o.conns {
				ids = append(ids, uint32(id+1))
			}
		}
		l, err := newLoop(f.config(o, to, n), ids)
		if err != nil {
			f.abandon()
			return nil, err
		}
		l.scene = o.scene(l, float64(len(ids))/float64(o.conns))
		f.loops = append(f.loops, l)
	}
	return f, nil
}

func (f *fleet) config(o fleetOptions, to netip.AddrPort, loops int) *loopConfig {
	timeout := o.timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	return &loopConfig{
		to: to, from: sources(to, o.conns), start: f.start, hello: o.hello, dialing: max(1, dialingAtOnce/loops),
		rate: o.rate / float64(loops), timeout: timeout, phase: &f.phase,
	}
}

// abandon closes loops that never ran.
func (f *fleet) abandon() {
	for _, l := range f.loops {
		l.close()
	}
}

// launch starts the loops; they open their connections at once.
func (f *fleet) launch(ctx context.Context) {
	f.group, f.ended = errgroup.WithContext(ctx)
	for _, l := range f.loops {
		f.group.Go(l.run)
	}
}

func (f *fleet) enter(p phase) { f.phase.Store(int32(p)) }

// stop ends the loops and waits for them.
func (f *fleet) stop() error {
	f.enter(phaseDone)
	return f.group.Wait()
}

// progress is the sum of the loops' tallies.
type progress struct {
	at                     time.Time
	open, failed, lost     uint64
	sent, acked, delivered uint64
	quiet                  bool
}

func (f *fleet) progress() progress {
	p := progress{at: time.Now(), quiet: true}
	for _, l := range f.loops {
		t := &l.tally
		p.open += t.open.Load()
		p.failed += t.failed.Load()
		p.lost += t.lost.Load()
		p.sent += t.sent.Load()
		p.acked += t.acked.Load()
		p.delivered += t.delivered.Load()
		p.quiet = p.quiet && t.quiet.Load()
	}
	return p
}

const glance = 20 * time.Millisecond // how often a wait looks again

// wait returns when done does, at the latest after limit (0: none), or with an error when a loop failed or the run was interrupted.
// It calls line, if any, at each look.
func (f *fleet) wait(limit time.Duration, done func(progress) bool, line func(progress)) error {
	began := time.Now()
	glances := time.NewTicker(glance)
	defer glances.Stop()
	for {
		p := f.progress()
		if done(p) {
			return nil
		}
		if limit > 0 && p.at.Sub(began) >= limit {
			return errLimit
		}
		if line != nil {
			line(p)
		}
		select {
		case <-f.ended.Done():
			return context.Cause(f.ended)
		case <-glances.C:
		}
	}
}

var errLimit = errors.New("not done in time")

// linger waits for d.
func (f *fleet) linger(d time.Duration, line func(progress)) error {
	if d <= 0 {
		return nil
	}
	err := f.wait(d, func(progress) bool { return false }, line)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// opened waits until every connection is signed in or has failed.
func (f *fleet) opened(line func(progress)) error {
	return f.wait(0, func(p progress) bool { return p.open+p.failed+p.lost >= uint64(f.count) }, line)
}

// faults are those of all loops, signIn the time from dial to WELCOME. Only after stop.
func (f *fleet) faults() faults {
	all := faults{}
	for _, l := range f.loops {
		all.merge(l.faults)
	}
	return all
}

func (f *fleet) signIn() *recorder {
	all := newRecorder()
	for _, l := range f.loops {
		all.merge(l.signIn)
	}
	return all
}

// allOpen is an error unless every connection is signed in. It stops the fleet to learn why not.
func (f *fleet) allOpen() error {
	p := f.progress()
	if p.open == uint64(f.count) {
		return nil
	}
	if err := f.stop(); err != nil {
		return err
	}
	return fmt.Errorf("only %d of %d connections could sign in: %v", p.open, f.count, map[string]uint64(f.faults()))
}
