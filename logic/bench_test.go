package logic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// benchStore answers as an empty store does and keeps nothing, so that what is measured is the logic tier alone.
type benchStore struct {
	storage.Buckets
	storage.Directory
}

func (benchStore) State(context.Context, string) (storage.State, error) { return storage.State{}, nil }
func (benchStore) Append(context.Context, []*storage.Run) (storage.Commit, error) {
	return commitFunc(func() error { return nil }), nil
}
func (benchStore) Epoch(context.Context) (string, error)                   { return "bench", nil }
func (benchStore) SignedOut(context.Context, string, string) (bool, error) { return false, nil }

// benchLog gathers records, and hands them on when told.
type benchLog struct {
	storage.Log
	recs []*storage.Record
}

func (l *benchLog) Append(rec *storage.Record) error {
	l.recs = append(l.recs, rec)
	return nil
}

// benchRoutes has one device for each user.
type benchRoutes struct {
	storage.Routes
	byUser map[string][]storage.Route
}

func (r *benchRoutes) Register(_ context.Context, one storage.Route, _ bool) (storage.Registration, error) {
	r.byUser[one.User] = []storage.Route{one}
	return storage.Registration{Admitted: true}, nil
}

func (r *benchRoutes) Online(_ context.Context, users []string, out [][]storage.Route) ([][]storage.Route, error) {
	for _, u := range users {
		out = append(out, r.byUser[u])
	}
	return out, nil
}

type nullGateway struct{}

func (nullGateway) Welcome(protocol.SessionID, protocol.Welcome) {}
func (nullGateway) Deliver([]protocol.Delivery)                  {}
func (nullGateway) Kick(protocol.SessionID, protocol.Kick)       {}

// BenchmarkSend is the logic tier's share of a message: 200 connections in pairs, each read has a window of SENDs of 128 bytes, and a
// batch is what all of them sent once. The store and the sockets cost nothing here.
func BenchmarkSend(b *testing.B) {
	for _, window := range []int{1, 8, 32} {
		b.Run(fmt.Sprint("window=", window), func(b *testing.B) { benchmarkSend(b, 200, window) })
	}
}

func benchmarkSend(b *testing.B, conns, window int) {
	log := &benchLog{}
	l, err := New(Options{
		Log: log, Buckets: benchStore{}, Directory: benchStore{}, Routes: &benchRoutes{byUser: map[string][]storage.Route{}}, Gateway: nullGateway{},
	})
	must(b, err)
	for i := range conns {
		l.Open(&protocol.Session{ID: protocol.SessionID(i + 1), User: fmt.Sprint("user-", i), DeviceID: "d"})
	}
	frames := make([][]protocol.Frame, conns)
	for i := range frames {
		for k := range window {
			frames[i] = append(frames[i], benchFrame(fmt.Sprint("user-", i^1), uint32(k+1)))
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		for i := range frames {
			for k := range frames[i] {
				n++
				for d := range 8 {
					frames[i][k].Body[benchIDAt+d] = "0123456789abcdef"[n>>(4*d)&15]
				}
			}
			l.Handle(protocol.SessionID(i+1), frames[i])
		}
		l.consumer.Process(0, log.recs)
		clear(log.recs)
		log.recs = log.recs[:0]
	}
	l.consumer.close()
}

// benchIDAt is where the client_msg_id's digits begin in benchFrame's body: after the heads of the array and of the string.
const benchIDAt = 2

func benchFrame(target string, requestID uint32) protocol.Frame {
	content := make([]byte, 128)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	return protocol.Frame{
		Header: protocol.Header{Command: protocol.CmdSend, RequestID: requestID},
		Body: protocol.AppendBody(nil, &protocol.Send{
			ClientMsgID: "0123456789abcdef", Kind: protocol.KindDirect, Target: target, ContentType: protocol.ContentApp, Content: content,
		}),
	}
}
