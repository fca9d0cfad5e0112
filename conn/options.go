package conn

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/parley-im/parley/protocol"
)

// Options for New. Listen and Verifier are required; every other zero is a useful default.
type Options struct {
	Listen   string    // host:port; port 0 takes a free one
	Verifier *Verifier // of the tokens in HELLO

	Loops    int // event loops; 0: half the CPUs, so that the logic tier has the other half
	MaxConns int // connections held at a time, below the limit on descriptors; 0: that limit less an eighth

	Heartbeat        time.Duration // what WELCOME tells; three times as long in silence closes; 0: 60 s
	HandshakeTimeout time.Duration // from the connection to WELCOME; 0: 10 s
	FrameTimeout     time.Duration // from a frame's first byte to its last; 0: 30 s
	CloseTimeout     time.Duration // for a client to take its last frames, and again for it to close; 0: 2 s
	StallTimeout     time.Duration // a backlog of which no byte leaves for so long is a slow consumer; 0: 60 s
	ResyncDelay      time.Duration // clients that were skipped SYNC within it, at random; 0: 3 s
	DrainWindow      time.Duration // clients reconnect within it when the gateway drains; 0: 5 s

	MaxBody       int // bytes of a request's body; 0: protocol.DefaultMaxBody
	MaxInflight   int // requests of a connection that wait for their replies; 0: 32
	MaxDown       int // what WELCOME tells of the bodies that the logic tier sends; 0: protocol.DefaultMaxDown
	MaxHandshakes int // sign-ins that wait for a worker; 0: 1,024

	SoftBound int // bytes waiting for a client above which pushes are skipped; 0: 1 MiB
	HardBound int // bytes waiting for a client above which it is closed; 0: 4 MiB

	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: no metrics are exported
}

const (
	maxLoops     = 64 // Deliver remembers the loops that it must wake in a word
	maxConns     = 1 << 20
	retryAfterMS = 1000

	// earlyBound is how much a client may send between HELLO and WELCOME; it waits unparsed.
	earlyBound = 64<<10 + protocol.HandshakeMaxBody + protocol.HeaderSize
)

func (o *Options) setDefaults() {
	setInt(&o.Loops, max(1, runtime.NumCPU()/2))
	setInt(&o.MaxConns, defaultMaxConns(descriptorLimit()))
	setInt(&o.MaxBody, protocol.DefaultMaxBody)
	setInt(&o.MaxInflight, 32)
	setInt(&o.MaxDown, protocol.DefaultMaxDown)
	setInt(&o.MaxHandshakes, 1024)
	setInt(&o.SoftBound, 1<<20)
	setInt(&o.HardBound, 4<<20)
	setDuration(&o.Heartbeat, 60*time.Second)
	setDuration(&o.HandshakeTimeout, 10*time.Second)
	setDuration(&o.FrameTimeout, 30*time.Second)
	setDuration(&o.CloseTimeout, 2*time.Second)
	setDuration(&o.StallTimeout, 60*time.Second)
	setDuration(&o.ResyncDelay, 3*time.Second)
	setDuration(&o.DrainWindow, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func setInt(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

func setDuration(v *time.Duration, def time.Duration) {
	if *v == 0 {
		*v = def
	}
}

// check refuses what cannot work; it names the option and the bound.
func (o *Options) check() error {
	if o.Listen == "" || o.Verifier == nil {
		return errors.New("conn: Listen and Verifier are required")
	}
	limit := descriptorLimit()
	for _, c := range [...]struct {
		name      string
		v, lo, hi int
	}{
		{"Loops", o.Loops, 1, maxLoops},
		{"MaxConns", o.MaxConns, 1, min(maxConns, limit-reserved(limit)/2)},
		{"MaxBody", o.MaxBody, 1024, 16 << 20},
		{"MaxInflight", o.MaxInflight, 1, 1<<16 - 1},
		{"MaxDown", o.MaxDown, 1024, 16 << 20},
		{"MaxHandshakes", o.MaxHandshakes, 1, 1 << 20},
		{"HardBound", o.HardBound, o.MaxDown + protocol.HeaderSize, 1 << 30},
		{"SoftBound", o.SoftBound, 1, o.HardBound},
	} {
		if c.v < c.lo || c.v > c.hi {
			return fmt.Errorf("conn: %s is %d; it must be from %d to %d", c.name, c.v, c.lo, c.hi)
		}
	}
	for _, c := range [...]struct {
		name string
		v    time.Duration
	}{
		{"Heartbeat", o.Heartbeat}, {"HandshakeTimeout", o.HandshakeTimeout}, {"FrameTimeout", o.FrameTimeout},
		{"CloseTimeout", o.CloseTimeout}, {"StallTimeout", o.StallTimeout}, {"ResyncDelay", o.ResyncDelay}, {"DrainWindow", o.DrainWindow},
	} {
		if c.v < time.Millisecond || c.v > 12*time.Hour {
			return fmt.Errorf("conn: %s is %v; it must be from 1ms to 12h", c.name, c.v)
		}
	}
	return nil
}

// descriptorLimit is how many files and sockets the process may have open.
func descriptorLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024 // what POSIX systems give by default
	}
	return int(min(r.Cur, 1<<30))
}

// reserved is how many descriptors are kept for what is not a client: the store's files, HTTP, and connections that are being refused. An
// accept that finds no descriptor ends the whole engine, so the cap stays well below the limit.
func reserved(limit int) int { return min(limit/2, max(512, limit/8)) }

func defaultMaxConns(limit int) int { return min(limit-reserved(limit), maxConns) }
