package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// A sweep purges what is older in every conversation, the next one what has become so, and neither looks twice at what is gone.
func TestRetention(t *testing.T) {
	dir := t.TempDir()
	onFolder(t, dir, func(s store) {
		seed(t, s, seeded, 10)
		seed(t, s, "p:alice:carol", 2)
		counted := &countPurges{Operator: s}
		r, err := newRetention(counted, time.Hour, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			before         int64
			purged, purges int
			alice, other   string
		}{
			{seededMS + 1000, 0, 0, "0000000000", "00"},
			{seededMS + 4000, 5, 2, "2220000000", "22"},
			{seededMS + 4000, 0, 0, "2220000000", "22"},
			{seededMS + 6001, 3, 1, "2222220000", "22"},
		} {
			before := counted.calls
			purged, err := r.sweep(t.Context(), time.UnixMilli(c.before))
			if err != nil || int(purged) != c.purged || counted.calls-before != c.purges {
				t.Errorf("before %d: %d purged by %d calls, %v; want %d by %d", c.before, purged, counted.calls-before, err, c.purged, c.purges)
			}
			if a, o := statuses(t, s, seeded), statuses(t, s, "p:alice:carol"); a != c.alice || o != c.other {
				t.Errorf("before %d: the messages are %s and %s", c.before, a, o)
			}
		}
		if got := testutil.ToFloat64(r.m.purged); got != 8 {
			t.Errorf("the metric says %v", got)
		}
	})
}

// countPurges counts the calls, and fails the first of them when told so.
type countPurges struct {
	storage.Operator
	calls int
	fail  error
}

func (c *countPurges) Purge(ctx context.Context, conversation string, from, to uint64) (uint64, error) {
	c.calls++
	if err := c.fail; err != nil {
		c.fail = nil
		return 0, err
	}
	return c.Operator.Purge(ctx, conversation, from, to)
}

// A sweep that failed is counted, and the next one does what it left.
func TestRetentionFails(t *testing.T) {
	onFolder(t, t.TempDir(), func(s store) {
		seed(t, s, seeded, 3)
		counted := &countPurges{Operator: s, fail: errors.New("the disk is gone")}
		var log strings.Builder
		r, err := newRetention(counted, time.Hour, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		r.run(t.Context())
		if !strings.Contains(log.String(), "the disk is gone") || testutil.ToFloat64(r.m.sweeps.WithLabelValues("error")) != 1 || testutil.ToFloat64(r.m.ended) != 0 {
			t.Errorf("after a failed sweep: %s", log.String())
		}
		r.run(t.Context())
		if got := statuses(t, s, seeded); got != "222" || testutil.ToFloat64(r.m.sweeps.WithLabelValues("ok")) != 1 || testutil.ToFloat64(r.m.ended) == 0 {
			t.Errorf("after the next: %s, and\n%s", got, log.String())
		}
	})
}

// serve --retention purges what is too old while people write.
func TestServeRetention(t *testing.T) {
	dir := seedAll(t)
	srv := startServing(t, dir, "127.0.0.1:0", "--retention", "24h")
	w := mustDial(t, srv.addr, tokens(t, dir, "alice")[0], "phone")
	if ack, err := say(w, "bob", "new", "new"); err != nil || ack.Seq != 9 {
		t.Fatalf("%+v, %v", ack, err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, body := get(t, srv.http+"/metrics"); strings.Contains(body, `parley_retention_sweeps_total{result="ok"} 1`) &&
			strings.Contains(body, "parley_retention_messages_total 7\n") { // one was purged before
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no sweep")
		}
	}
	var reply protocol.PullReply
	if err := w.ask(protocol.CmdPull, &protocol.Pull{ConversationID: seeded}, &reply); err != nil {
		t.Fatal(err)
	}
	if len(reply.Messages) != 2 || reply.Messages[0].Status != protocol.StatusGone || reply.Messages[0].Run != 8 || string(reply.Messages[1].Content) != "new" {
		t.Errorf("alice reads %+v", reply.Messages)
	}
	if code := srv.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
