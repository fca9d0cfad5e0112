package logic

import "github.com/prometheus/client_golang/prometheus"

// metrics counts what the logic tier does. All are safe from any goroutine.
type metrics struct {
	requests      *prometheus.CounterVec // by command and code; a SEND that was stored is in messages
	dropped       *prometheus.CounterVec // frames without a reply that found the mailbox full, or came too fast
	messages      prometheus.Counter
	repeats       prometheus.Counter
	changes       *prometheus.CounterVec // by op
	pushes        prometheus.Counter
	pushAcks      prometheus.Counter
	unrouted      prometheus.Counter
	stateLoads    prometheus.Counter
	holes         prometheus.Counter
	batchMessages prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "parley", Subsystem: "logic", Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "parley", Subsystem: "logic", Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests:   vec("requests_total", "Requests answered, by command and result; a SEND only when it was refused.", "command", "result"),
		dropped:    vec("dropped_total", "Frames without a reply that were dropped: the session's mailbox was full, or they came too fast.", "command"),
		messages:   counter("messages_total", "Messages stored."),
		repeats:    counter("repeats_total", "SENDs that were repeats of a stored message."),
		changes:    vec("changes_total", "Changes of messages that everybody sees.", "op"),
		pushes:     counter("pushes_total", "Messages handed to the gateway for a device."),
		pushAcks:   counter("push_acks_total", "PUSH_ACKs received."),
		unrouted:   counter("unrouted_total", "Users whose routes could not be looked up, so that they were not pushed to."),
		stateLoads: counter("state_loads_total", "Conversations read back to be sent to; many for the messages there are: give --state-memory more."),
		holes:      counter("holes_total", "ALARM: seqs below the tail at which nothing is stored."),
		batchMessages: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "parley", Subsystem: "logic", Name: "batch_messages", Help: "Messages in one write.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 7),
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.dropped, m.messages, m.repeats, m.changes, m.pushes, m.pushAcks, m.unrouted, m.stateLoads, m.holes, m.batchMessages,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
