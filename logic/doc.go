// Package logic holds the rules: who may do what, which place a message gets, who is told. It knows nothing of sockets: it speaks with
// the connection tier through two small interfaces in protocol words, its own Gateway and the one that package conn declares and *Logic
// implements; and with what remembers through package storage.
//
// One message, in reading order: logic.go (the switch), send.go (check, identify, append), sequence.go (number, store),
// push.go (who, where, encode once). Everything else is a file a verb: sync.go, pull.go, read.go, unread.go, conversation.go, signal.go,
// sign_out.go.
package logic
