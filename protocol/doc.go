// Package protocol holds the words that a Parley client and server exchange, and their bytes: frames, command bodies,
// error codes and ids, as written down in docs/protocol.md. It imports nothing else of this project.
//
// In reading order: frame.go (bytes to frames and back), command.go (the numbers), error.go, id.go, then the bodies by
// chapter: session.go, message.go, event.go, conversation.go, profile.go. codec.go, writer.go and reader.go are the msgpack layer
// below them; route.go has the words that the connection tier and the logic tier use between themselves.
package protocol
