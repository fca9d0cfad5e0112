package bench

import (
	"encoding/json"
	"io"
	"time"
)

// Schema names the layout of the JSON report. Fields are only added to it; a change of meaning gives it another number.
const Schema = "parley-bench/1"

// Report is the result of a run. docs/benchmarks.md says what each figure means.
type Report struct {
	Schema   string         `json:"schema"`
	Scenario string         `json:"scenario"`
	Started  time.Time      `json:"started"`
	Machine  Machine        `json:"machine"`
	Chat     *ChatResult    `json:"chat,omitempty"`
	Connect  *ConnectResult `json:"connect,omitempty"`
	Echo     *EchoBaseline  `json:"echo,omitempty"`
}

// Machine is where the harness ran.
type Machine struct {
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
}

// Cost is the processor time of one process during the measured time.
type Cost struct {
	User       float64 `json:"user_s"`
	System     float64 `json:"system_s"`
	Cores      float64 `json:"cores"`          // processors busy on average
	PerMessage float64 `json:"us_per_message"` // microseconds for each acked message
}

// Measured is what was counted during the measured time.
type Measured struct {
	Seconds       float64 `json:"seconds"`
	Acked         uint64  `json:"acked"`
	AckedRate     float64 `json:"acked_per_s"`
	Delivered     uint64  `json:"delivered"`
	DeliveredRate float64 `json:"delivered_per_s"`
	Client        Cost    `json:"client_cpu"`
	Server        *Cost   `json:"server_cpu,omitempty"` // absent when the process is not known
	ServerRSS     int64   `json:"server_rss_bytes,omitempty"`
}

// ChatConfig is how a chat was run.
type ChatConfig struct {
	Addr     string  `json:"addr"`
	Conns    int     `json:"conns"`
	Window   int     `json:"window"`
	Rate     float64 `json:"rate_per_s"` // 0: closed loop
	Size     int     `json:"size_bytes"`
	Warmup   float64 `json:"warmup_s"`
	Duration float64 `json:"duration_s"`
	Loops    int     `json:"loops"`
	PushAck  bool    `json:"push_ack"`
}

// ChatResult is what came of a chat.
type ChatResult struct {
	Config ChatConfig `json:"config"`
	Measured
	Ack     Latency `json:"ack"`     // from the send, or in an open loop from when it was due, to its SEND_ACK
	Deliver Latency `json:"deliver"` // from the same moment to the PUSH at the partner
	SignIn  Latency `json:"sign_in"` // from dial to WELCOME
	// The rest is of the whole run, warm-up and drain included.
	SentTotal      uint64            `json:"sent_total"`
	AckedTotal     uint64            `json:"acked_total"`
	DeliveredTotal uint64            `json:"delivered_total"`
	Behind         uint64            `json:"behind"` // open loop: due, but not sent for want of a free place in the window
	OwnPushes      uint64            `json:"own_pushes"`
	Resyncs        uint64            `json:"resyncs"` // EVENTs that say that pushes were skipped for a connection that reads too slowly
	Fetched        uint64            `json:"fetched"` // messages that a connection had to PULL after that
	ConnsLost      uint64            `json:"connections_lost"`
	Errors         map[string]uint64 `json:"errors"` // ERROR frames by code, and ends of connections by reason
	Checks         Checks            `json:"checks"`
}

// Passed tells whether the server kept its promises.
func (r *ChatResult) Passed() bool { return r.Checks.Passed() && r.ConnsLost == 0 }

// EchoResult is one run against the echo server.
type EchoResult struct {
	Measured
	Latency Latency `json:"latency"`
	Checks  Checks  `json:"checks"`
}

// EchoBaseline is the echo's rate on the same machine, and what part of it the server reached.
type EchoBaseline struct {
	Runs  []*EchoResult `json:"runs"`            // before and after the chat
	Rate  float64       `json:"acked_per_s"`     // their mean
	Ratio float64       `json:"ratio,omitempty"` // the chat's acked/s, divided by Rate
}

// NewBaseline takes the mean of runs; acked is the chat's rate, or 0.
func NewBaseline(acked float64, runs ...*EchoResult) *EchoBaseline {
	b := &EchoBaseline{Runs: runs}
	for _, r := range runs {
		b.Rate += r.AckedRate / float64(len(runs))
	}
	if b.Rate > 0 {
		b.Ratio = acked / b.Rate
	}
	return b
}

// ConnectConfig is how connect was run.
type ConnectConfig struct {
	Addr  string  `json:"addr"`
	Conns int     `json:"conns"`
	Rate  float64 `json:"rate_per_s"` // 0: as fast as the server takes them
	Hold  float64 `json:"hold_s"`
	Loops int     `json:"loops"`
}

// ConnectResult is what came of connect.
type ConnectResult struct {
	Config  ConnectConfig     `json:"config"`
	Open    uint64            `json:"open"` // at the end of the hold
	Failed  uint64            `json:"failed"`
	Lost    uint64            `json:"lost"` // during the hold
	Seconds float64           `json:"seconds"`
	Rate    float64           `json:"connections_per_s"`
	SignIn  Latency           `json:"sign_in"`
	Pongs   uint64            `json:"pongs"`
	Errors  map[string]uint64 `json:"errors"`
	Memory  *ServerMemory     `json:"server_memory,omitempty"`
	CPU     *Cost             `json:"server_cpu,omitempty"` // us_per_message is for each connection that was opened
}

// Passed tells whether every connection was signed in and stayed.
func (r *ConnectResult) Passed() bool { return r.Failed == 0 && r.Lost == 0 }

// ServerMemory is the server's memory before the first connection and with all of them.
type ServerMemory struct {
	RSSBefore  int64             `json:"rss_before_bytes"`
	RSSOpen    int64             `json:"rss_open_bytes"`
	RSSPerConn float64           `json:"rss_bytes_per_connection"`
	Heap       *ServerHeapMemory `json:"heap,omitempty"` // absent when /metrics is not known
}

// ServerHeapMemory is what the Go runtime of the server says, after its latest collections.
type ServerHeapMemory struct {
	LiveBefore    float64 `json:"live_before_bytes"`
	LiveOpen      float64 `json:"live_open_bytes"`
	LivePerConn   float64 `json:"live_bytes_per_connection"`
	StackBefore   float64 `json:"stack_before_bytes"`
	StackOpen     float64 `json:"stack_open_bytes"`
	GoroutinesNow float64 `json:"goroutines_open"`
}

// WriteJSON writes the report as indented JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
