// Package embedded keeps everything in a folder of one disk, for a server that is one process: messages, the users' lists and marks and
// sign-outs in Pebble, an in-line log in front of it, and routes in memory.
//
// In reading order: layout.go (the keys and their bytes), open.go, append.go (one batch and one fsync for many runs), flight.go (what was
// written but may still be lost is not there for readers), read.go, list.go, rows.go, space.go and space_fs.go (a full disk), log.go, routes.go.
package embedded
