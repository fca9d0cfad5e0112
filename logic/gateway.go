package logic

import "github.com/parley-im/parley/protocol"

// Gateway is what the logic tier asks of the connection tier. All methods are safe from any goroutine, do not block on the network, and
// ignore sessions that are gone.
type Gateway interface {
	// Welcome lets a session in. The logic tier gives Epoch and ResendS, the gateway the rest of WELCOME. Deliveries before it
	// are dropped: the device asks for what it missed after it.
	Welcome(id protocol.SessionID, w protocol.Welcome)
	// Deliver queues frames, in order, for each of the connections. The slices are the caller's again when it returns.
	Deliver(ds []protocol.Delivery)
	// Kick sends KICK and closes.
	Kick(id protocol.SessionID, k protocol.Kick)
}
