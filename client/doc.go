// Package client is the Go SDK of Parley: it keeps one device signed in, sends messages so that each is stored once, and hands
// on every message of the user's conversations in order and once.
//
// # What runs
//
// A Client has one goroutine that connects and connects again, one that hands messages to the app, one that asks for the
// list of conversations (SYNC) and hands on that, a few that fetch what is missing (PULL, CHANGES), one for each target that has messages
// to send, and three for each connection (read, write, heartbeat). All of them end before Close returns.
//
// # Receiving
//
// Each conversation has a cursor: up to there every message was taken by the app. A message is handed on only when it is
// the next one. Whatever else makes known that a conversation goes further (a PUSH beyond the next seq, the list, the
// ack of a message of one's own) only raises a target, and what lies between cursor and target is fetched. So a PUSH is never
// more than a shortcut, and may be dropped when the app is slow: memory stays bounded, and the message is fetched later.
//
//	       taken by the app        being fetched      held
//	1 ─────────────────────▶ 90 │ 91 ······ 104 │ 105 ─▶ target
//	                      cursor
//
// A message that this device sent is handed on like any other, at its place, with the user as the sender: from the ack when
// that has the seq, from a PUSH otherwise, whichever comes first. An app that shows what is being sent before the
// ack knows it again by its client_msg_id.
//
// # Sending
//
// A message goes into the outbox first and stays there until the server answers for good. It is repeated under the same
// client_msg_id after a lost connection, a timeout or an error that says so. Messages to one target go out in the order in
// which they were queued, one in flight at a time unless Options.Pipeline says more.
//
// # After a crash of the app
//
// With an Outbox and a State that last, a new process goes on where the old one was: what was queued is sent, once; what the
// app had taken just before the crash may be handed on once more, because the cursor is saved after the handler returned.
package client
