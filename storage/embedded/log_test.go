package embedded_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
	"github.com/parley-im/parley/storage/storagetest"
)

// A log in line with a store of another kind is a log like any other.
func TestLogAlone(t *testing.T) {
	storagetest.TestLog(t, func(tb testing.TB, queueBytes int64) storage.Log {
		l, err := embedded.OpenLog(embedded.LogOptions{Partitions: 2, QueueBytes: queueBytes})
		if err != nil {
			tb.Fatal(err)
		}
		return l
	})
}

// While its store takes no writes it takes no records, and says why.
func TestLogOfStoreThatIsAway(t *testing.T) {
	var why error
	registry := prometheus.NewRegistry()
	l, err := embedded.OpenLog(embedded.LogOptions{Writable: func() error { return why }, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.OpenLog(embedded.LogOptions{Registerer: registry}); err == nil {
		t.Error("two logs have one registerer")
	}
	rec := func() *storage.Record {
		return &storage.Record{Message: protocol.Message{ConversationID: "p:a:b", Sender: "a"}}
	}
	for _, why = range []error{storage.ErrUnavailable, storage.ErrFull} {
		if err := l.Append(rec()); !errors.Is(err, why) {
			t.Errorf("Append returns %v, want %v", err, why)
		}
		if err := l.Ready(); !errors.Is(err, why) {
			t.Errorf("Ready returns %v, want %v", err, why)
		}
	}
	why = nil
	if err := errors.Join(l.Append(rec()), l.Ready()); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "parley_log_refused_total" {
				refused[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if refused["store_away"] != 1 || refused["disk_full"] != 1 {
		t.Errorf("refused by reason: %v", refused)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("after Close %d metrics are left, %v", len(families), err)
	}
}
