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
// # Changes and deletions
//
// Messages change after they were handed on: Revoke, Edit and React change them for everybody. Whoever did it, and however this device learns of
// it (an event, the list, a message that it pulled), OnChange is given the message as it then is, each change once and in order. So an
// app that keeps messages has one place where it changes them; what it changed itself comes there as well, as what it sent comes by OnMessage.
//
// Delete and Clear hide messages from the user alone, on all of their devices. OnDeleted and OnCleared tell each of these devices, the one that
// asked as well, also after it was away: what was deleted lies in a stream of the user's own, which is followed like a conversation and
// never shown. What was deleted is not handed on later, even where it waited for a slow app.
//
// Of a conversation that changed more often, while the device was away, than the server tells one by one, OnStale is told: the app fetches
// anew, by Pull, what it has stored.
//
// # After a crash of the app
//
// With an Outbox and a State that last, a new process goes on where the old one was: what was queued is sent, once; what the
// app had taken just before the crash may be handed on once more, because the cursor is saved after the handler returned. That holds for
// messages, changes and deletions alike.
package client
