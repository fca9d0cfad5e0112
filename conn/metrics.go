package conn

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-im/parley/protocol"
)

// reason says why a connection ended, or was not let in. It is a label's value.
type reason uint8

const (
	reasonNone      reason = iota
	reasonClient           // the client closed, or its network did
	reasonError            // reading or writing failed
	reasonHandshake        // no sign-in in time
	reasonRefused          // HELLO was answered with ERROR
	reasonFrame            // a frame did not complete in time
	reasonSilence          // three heartbeats without a byte
	reasonProtocol         // bytes that are not of this protocol
	reasonKick             // logic's KICK
	reasonFarewell         // logic's last delivery
	reasonSlow             // hard bound, or a backlog that does not move
	reasonExpired          // the token's end
	reasonFull             // connection cap
	reasonDraining
	reasonDrained // still there when the drain's time was over
	reasonPanic
	reasonShutdown
	reasons
)

var reasonNames = [reasons]string{
	reasonNone: "none", reasonClient: "client", reasonError: "error", reasonHandshake: "handshake_timeout", reasonRefused: "refused",
	reasonFrame: "frame_timeout", reasonSilence: "silence", reasonProtocol: "protocol", reasonKick: "kick", reasonFarewell: "farewell",
	reasonSlow: "slow", reasonExpired: "token_expired", reasonFull: "full", reasonDraining: "draining", reasonDrained: "drained",
	reasonPanic: "panic", reasonShutdown: "shutdown",
}

// metrics are added to once a read or a pass, never once a frame.
type metrics struct {
	accepted   prometheus.Counter
	sessions   prometheus.Gauge
	refused    *prometheus.CounterVec // reason: full, draining
	closed     [reasons]prometheus.Counter
	handshakes *prometheus.CounterVec // failures; code
	kicks      *prometheus.CounterVec // reason
	framesIn   prometheus.Counter
	bytesIn    prometheus.Counter
	bytesOut   prometheus.Counter
	writes     prometheus.Counter
	skipped    prometheus.Counter
	ephemeral  prometheus.Counter
	limited    prometheus.Counter
	panics     prometheus.Counter
}

func newMetrics(r prometheus.Registerer, connections func() float64) (*metrics, error) {
	var list []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_conn_" + name, Help: help})
		list = append(list, c)
		return c
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_conn_" + name, Help: help}, []string{label})
		list = append(list, c)
		return c
	}
	m := &metrics{
		accepted:   counter("accepted_total", "Connections accepted."),
		refused:    vector("refused_total", "Connections refused as they came.", "reason"),
		handshakes: vector("handshake_failures_total", "Sign-ins that were refused or not finished.", "code"),
		kicks:      vector("kicks_total", "KICK frames sent.", "reason"),
		framesIn:   counter("frames_in_total", "Whole frames read after sign-in."),
		bytesIn:    counter("bytes_in_total", "Bytes of frames read."),
		bytesOut:   counter("bytes_out_total", "Bytes written."),
		writes:     counter("writes_total", "Writes to sockets; several frames each under load."),
		skipped:    counter("skipped_deliveries_total", "Deliveries that a slow connection missed; it is told to resync."),
		ephemeral:  counter("dropped_ephemeral_total", "Signals that were dropped because the connection was slow; nothing is owed for them."),
		limited:    counter("rate_limited_total", "Requests over max_inflight."),
		panics:     counter("panics_total", "Panics recovered; each closed its connection."),
	}
	m.sessions = prometheus.NewGauge(prometheus.GaugeOpts{Name: "parley_conn_sessions", Help: "Connections that are signed in."})
	list = append(list, m.sessions, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "parley_conn_connections", Help: "Connections that are open, signed in or not."}, connections))
	closed := vector("closed_total", "Connections closed.", "reason")
	for i := range m.closed {
		m.closed[i] = closed.WithLabelValues(reasonNames[i])
	}
	if r == nil {
		return m, nil
	}
	for i, c := range list {
		if err := r.Register(c); err != nil {
			for _, done := range list[:i] {
				r.Unregister(done)
			}
			return nil, fmt.Errorf("conn: register metrics: %w", err)
		}
	}
	return m, nil
}

// kick counts a KICK.
func (m *metrics) kick(r protocol.KickReason) { m.kicks.WithLabelValues(kickLabel(r)).Inc() }

// kickLabel keeps the label's values few.
func kickLabel(r protocol.KickReason) string {
	switch r {
	case protocol.KickDisplaced:
		return "displaced"
	case protocol.KickTokenRevoked:
		return "token_revoked"
	case protocol.KickRemoved:
		return "removed"
	case protocol.KickSlow:
		return "slow"
	case protocol.KickServerFull:
		return "server_full"
	case protocol.KickTokenExpired:
		return "token_expired"
	case protocol.KickSignedOut:
		return "signed_out"
	case protocol.KickAbuse:
		return "abuse"
	}
	return "other"
}
