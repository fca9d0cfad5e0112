// Package bench is the load harness: it plays many clients against a Parley server on the same machine or another one, checks everything
// that the server promises them, and reports what it saw.
//
// It competes with the server for the same cores, so it spends little: a few event loops instead of a goroutine a connection, one read and
// one write for all that a connection has to say, frames that are patched instead of encoded, replies of which only the fields that
// matter are looked at. The same loop runs against a plain echo server, which tells what the machine and the harness cost by themselves.
//
// In reading order: chat.go (the scenario), fleet.go and measure.go (its loops and phases), talk.go, hear.go and lane.go (what connections say and
// note), loop.go (the event loop) with traffic.go, signin.go, conn.go and poll.go below it, frame.go and scan.go (bytes out and in), check.go (loss,
// duplicates, order), repair.go, pace.go (open loop), record.go (histograms), report.go and text.go. connect.go and echo.go are the other
// scenarios; server.go, token.go, proc.go and metrics.go deal with the server's process. The scenarios need Linux.
package bench
