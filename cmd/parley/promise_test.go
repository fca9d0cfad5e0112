package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-im/parley/client"
	"github.com/parley-im/parley/protocol"
)

var classTime = flag.Duration("class-time", 3*time.Second, "how long two devices of one class are watched")

// TestSlowReaderLosesNothing: a client stops reading while it is written to. It is closed at the bound and others go on; when it comes back
// it pulls all of it.
func TestSlowReaderLosesNothing(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0", "--outbound-soft", "600KiB", "--outbound-hard", "1MiB")
	keys := tokens(t, dir, "alice", "bob", "carol")
	slow := mustDial(t, srv.addr, keys[1], "phone")
	if err := slow.Conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	alice, carol := mustDial(t, srv.addr, keys[0], "phone"), mustDial(t, srv.addr, keys[2], "phone")
	sent, closed := 0, func() bool {
		_, body := get(t, srv.http+"/metrics")
		return strings.Contains(body, `parley_conn_kicks_total{reason="slow"} 1`)
	}
	for deadline := time.Now().Add(patience); ; sent++ {
		m := &protocol.Send{ClientMsgID: fmt.Sprint(sent), Kind: protocol.KindDirect, Target: "bob", ContentType: protocol.ContentApp, Content: make([]byte, 60<<10)}
		if err := alice.ask(protocol.CmdSend, m, &protocol.SendAck{}); err != nil {
			t.Fatalf("message %d: %v", sent, err)
		}
		if err := carol.ask(protocol.CmdUnread, nil, &protocol.UnreadReply{}); err != nil {
			t.Fatalf("another connection: %v", err)
		}
		if sent%20 == 19 && closed() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %d messages the slow reader is not closed", sent)
		}
	}
	stored, err := pullAll(mustDial(t, srv.addr, keys[1], "phone"), "p:alice:bob")
	if err != nil || len(stored) != sent+1 {
		t.Errorf("the slow reader pulls %d messages of %d: %v", len(stored), sent+1, err)
	}
}

// TestTwoDevicesOfAClass: two phones of one user that both reconnect by themselves do not throw each other out for ever. One stays, the
// other gets one KICK.
func TestTwoDevicesOfAClass(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0")
	key := tokens(t, dir, "alice")[0]
	var connections atomic.Int32
	phone := func(device string) *client.Client {
		c, err := client.New(client.Options{
			Addr: srv.addr, Plaintext: true, DeviceID: device, Platform: protocol.PlatformAndroid,
			Token:      func(context.Context) (string, error) { return key, nil },
			MinBackoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				connections.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Start()
		t.Cleanup(func() { _ = c.Close() }) // its error is looked at below
		return c
	}
	first := phone("first")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := first.Online(ctx); err != nil {
		t.Fatal(err)
	}
	second := phone("second")
	select {
	case <-second.Done():
	case <-ctx.Done():
		t.Fatal("the second phone was not sent away")
	}
	var kick *client.KickError
	if err := second.Err(); !errors.As(err, &kick) || kick.Reason != protocol.KickDisplaced || kick.DeviceID != "first" {
		t.Errorf("the second phone ended with %v", err)
	}
	select {
	case <-first.Done():
		t.Errorf("the first phone ended with %v", first.Err())
	case <-time.After(*classTime):
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	if _, body := get(t, srv.http+"/metrics"); !strings.Contains(body, `parley_conn_kicks_total{reason="displaced"} 1`) {
		t.Error("there was not exactly one KICK")
	}
}
