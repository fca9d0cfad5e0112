package client

import "sync/atomic"

// Stats counts what a client did since it was made.
type Stats struct {
	Connections          uint64 // that were signed in
	Delivered            uint64 // messages that OnMessage took
	Duplicates           uint64 // messages that came again and were dropped
	Fetched              uint64 // entries that came by PULL
	PushesDropped        uint64 // pushed messages that had no room, or came after news of a change; they are fetched later
	EventsDropped        uint64 // events that had no room; a SYNC follows
	SignalsDropped       uint64 // signals, either way, that had no room
	AcksDropped          uint64 // PUSH_ACKs that had no room
	ChangesForgotten     uint64 // change_seqs of messages handed on that had no room: OnChange may tell of those again
	FetchesGivenUp       uint64 // conversations that the server would not show, until they move again
	ConversationsIgnored uint64 // conversations ignored for MaxConversations
	Sent                 uint64 // messages acked
	Repeated             uint64 // SENDs of a message that was sent before
	FoundStored          uint64 // messages found by PULL, and so not repeated
	Failed               uint64 // messages that ended with a final error
}

// counters are Stats while they are counted.
type counters struct {
	connections, delivered, duplicates, fetched, pushesDropped, eventsDropped, signalsDropped, acksDropped, forgotten, givenUp, ignored,
	sent, repeated, found, failed atomic.Uint64
}

// Stats returns the counters. Any goroutine may call it.
func (c *Client) Stats() Stats {
	n := &c.count
	return Stats{
		Connections: n.connections.Load(), Delivered: n.delivered.Load(), Duplicates: n.duplicates.Load(),
		Fetched: n.fetched.Load(), PushesDropped: n.pushesDropped.Load(), EventsDropped: n.eventsDropped.Load(),
		SignalsDropped: n.signalsDropped.Load(), AcksDropped: n.acksDropped.Load(), ChangesForgotten: n.forgotten.Load(), FetchesGivenUp: n.givenUp.Load(),
		ConversationsIgnored: n.ignored.Load(), Sent: n.sent.Load(), Repeated: n.repeated.Load(),
		FoundStored: n.found.Load(), Failed: n.failed.Load(),
	}
}
