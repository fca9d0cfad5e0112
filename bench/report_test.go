package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s (run with -update if the change is meant):\n%s\nwant:\n%s", path, got, want)
	}
}

func exampleReport(scenario string) *Report {
	return &Report{
		Schema: Schema, Scenario: scenario, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Machine: Machine{OS: "linux", Kernel: "6.1.0", Arch: "amd64", CPU: "Some CPU @ 2.00GHz", CPUs: 2, Go: "go1.26"},
	}
}

func exampleChat() *ChatResult {
	return &ChatResult{
		Config: ChatConfig{Addr: "127.0.0.1:7000", Conns: 200, Window: 32, Size: 128, Warmup: 5, Duration: 60, Loops: 1},
		Measured: Measured{
			Seconds: 60.001, Acked: 12_000_000, AckedRate: 199_996.7, Delivered: 11_999_990, DeliveredRate: 199_996.5,
			Client: Cost{User: 3, System: 6, Cores: 0.15, PerMessage: 0.75}, Server: &Cost{User: 50, System: 20, Cores: 1.167, PerMessage: 5.83},
			ServerRSS: 300 << 20,
		},
		Ack:     Latency{Count: 12_000_000, Mean: 31_000, P50: 30_000, P90: 45_000, P99: 71_234, P999: 90_000, Max: 123_456},
		Deliver: Latency{Count: 11_999_990, Mean: 31_100, P50: 30_100, P90: 45_100, P99: 71_300, P999: 91_000, Max: 124_000},
		SignIn:  Latency{Count: 200, Mean: 900, P50: 850, P90: 1000, P99: 1200, P999: 1250, Max: 1250},

		SentTotal: 13_000_000, AckedTotal: 13_000_000, DeliveredTotal: 13_000_000, Errors: map[string]uint64{},
	}
}

func TestReportGolden(t *testing.T) {
	chat := exampleReport("chat")
	chat.Chat = exampleChat()
	echo := func(rate float64) *EchoResult {
		return &EchoResult{
			Measured: Measured{Seconds: 3, Acked: uint64(3 * rate), AckedRate: rate, Client: Cost{PerMessage: 0.21}, Server: &Cost{PerMessage: 0.2}},
			Latency:  Latency{P50: 1340, P99: 2480},
		}
	}
	chat.Echo = NewBaseline(chat.Chat.AckedRate, echo(2_000_000), echo(3_000_000))

	broken := exampleReport("chat")
	broken.Chat = exampleChat()
	broken.Chat.Server, broken.Chat.ServerRSS = nil, 0
	broken.Chat.Config.Rate, broken.Chat.Behind, broken.Chat.Resyncs, broken.Chat.Fetched, broken.Chat.ConnsLost = 20_000, 17, 18, 20, 19
	broken.Chat.Checks = Checks{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	broken.Chat.Errors = map[string]uint64{"unavailable": 11, "connection lost: closed by the server": 19}

	connect := exampleReport("connect")
	connect.Connect = &ConnectResult{
		Config: ConnectConfig{Addr: "127.0.0.1:7000", Conns: 8000, Hold: 30, Loops: 1}, Open: 7999, Failed: 1, Seconds: 1.5, Rate: 5332.7,
		SignIn: Latency{Count: 7999, Mean: 9000, P50: 8000, P90: 15_000, P99: 22_000, P999: 24_000, Max: 25_000}, Pongs: 8000,
		Errors: map[string]uint64{"sign-in failed: no answer in time": 1}, CPU: &Cost{User: 0.5, System: 0.3, Cores: 0.53, PerMessage: 100},
		Memory: &ServerMemory{
			RSSBefore: 30 << 20, RSSOpen: 38 << 20, RSSPerConn: 1048.6,
			Heap: &ServerHeapMemory{LiveBefore: 5 << 20, LiveOpen: 9 << 20, LivePerConn: 524.3, StackBefore: 400 << 10, StackOpen: 500 << 10, GoroutinesNow: 20},
		},
	}
	alone := exampleReport("echo")
	alone.Echo = NewBaseline(0, echo(2_500_000))

	for name, r := range map[string]*Report{"chat": chat, "broken": broken, "connect": connect, "echo": alone} {
		var text, js bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteJSON(&js); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", text.Bytes())
		golden(t, name+".json", js.Bytes())
		var back Report
		if err := json.Unmarshal(js.Bytes(), &back); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := chat.Echo.Ratio; r < 0.0799 || r > 0.0801 {
		t.Errorf("ratio %g: 200k/s of 2.5M/s is 0.08", r)
	}
	if !chat.Chat.Passed() || broken.Chat.Passed() {
		t.Error("the verdicts are wrong")
	}
}

func TestRecorder(t *testing.T) {
	a, b := newRecorder(), newRecorder()
	for us := int64(1); us <= 1000; us++ {
		a.record(us)
	}
	b.record(5_000_000)
	b.record(int64(2 * longest / time.Microsecond)) // over the range: counted as the longest
	a.merge(b)
	l := a.latency()
	near := func(got, want int64) bool { return got >= want*999/1000 && got <= want*1001/1000+1 }
	if l.Count != 1002 || !near(l.P50, 501) || !near(l.P90, 902) || !near(l.P99, 992) || !near(l.P999, 5_000_000) || !near(l.Max, longest.Microseconds()) {
		t.Errorf("%+v", l)
	}
}
