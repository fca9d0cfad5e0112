package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// page collects lines of a report; the first error of its writer is the one that counts.
type page struct {
	tab *tabwriter.Writer
}

// row is a name and what stands beside it, in columns.
func (p *page) row(name string, cells ...string) {
	fmt.Fprintln(p.tab, name+"\t"+strings.Join(cells, "\t"))
}

// gap ends the columns and leaves a line empty.
func (p *page) gap() { fmt.Fprintln(p.tab) }

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	p := &page{tab: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	p.row("machine", fmt.Sprintf("%s, %d CPUs, %s %s, %s", cmp.Or(r.Machine.CPU, r.Machine.Arch), r.Machine.CPUs, r.Machine.OS, r.Machine.Kernel,
		r.Machine.Go))
	if r.Chat != nil {
		r.Chat.write(p)
	}
	if r.Connect != nil {
		r.Connect.write(p)
	}
	if r.Echo != nil {
		r.Echo.write(p, r.Chat != nil)
	}
	return p.tab.Flush()
}

func (r *ChatResult) write(p *page) {
	c := &r.Config
	mode := fmt.Sprintf("window %d", c.Window)
	if c.Rate > 0 {
		mode = fmt.Sprintf("%s msg/s (open loop), window %d", count(c.Rate), c.Window)
	}
	p.row("chat", fmt.Sprintf("%d connections, %s, %d bytes, %s after %s of warm-up", c.Conns, mode, c.Size, seconds(c.Duration), seconds(c.Warmup)))
	p.gap()
	p.row("acked", count(r.AckedRate)+"/s", fmt.Sprintf("%d in %s", r.Acked, seconds(r.Seconds)))
	p.row("delivered", count(r.DeliveredRate)+"/s", fmt.Sprint(r.Delivered))
	p.gap()
	writeLatencies(p, latencyRow{"send to ack", r.Ack}, latencyRow{"send to deliver", r.Deliver}, latencyRow{"sign-in", r.SignIn})
	p.gap()
	writeCosts(p, r.Server, &r.Client, "message")
	if r.ServerRSS > 0 {
		p.row("server memory", bytesText(float64(r.ServerRSS)))
	}
	p.gap()
	r.writeChecks(p)
}

func (r *ChatResult) writeChecks(p *page) {
	c := &r.Checks
	p.row("checks", verdictText(r.Passed()), fmt.Sprintf("%d sent, %d acked, %d delivered in all", r.SentTotal, r.AckedTotal, r.DeliveredTotal))
	for _, line := range []struct {
		name string
		n    uint64
	}{
		{"lost", c.Lost}, {"duplicates", c.Duplicates}, {"order violations", c.Order}, {"seq gaps", c.Gaps}, {"seqs used twice", c.Reused},
		{"views that differ", c.Views}, {"misdelivered", c.Misdelivered}, {"corrupt", c.Corrupt}, {"stray replies", c.Stray},
		{"unanswered", c.Unanswered}, {"connections lost", r.ConnsLost},
	} {
		if line.n > 0 {
			p.row("  "+line.name, fmt.Sprint(line.n))
		}
	}
	if r.Behind > 0 {
		p.row("behind", fmt.Sprintf("%d messages were due and never sent: the rate is over what window and server allow", r.Behind))
	}
	if r.Resyncs > 0 {
		p.row("resyncs", fmt.Sprint(r.Resyncs), fmt.Sprintf("the server skipped pushes for slow readers; %d messages had to be pulled", r.Fetched))
	}
	writeErrors(p, r.Errors)
}

func verdictText(passed bool) string {
	if passed {
		return "passed"
	}
	return "FAILED"
}

func writeErrors(p *page, errs map[string]uint64) {
	for _, what := range slices.Sorted(maps.Keys(errs)) {
		p.row("error", fmt.Sprint(errs[what]), what)
	}
}

type latencyRow struct {
	name string
	l    Latency
}

func writeLatencies(p *page, rows ...latencyRow) {
	p.row("latency, ms", "p50", "p90", "p99", "p99.9", "max")
	for _, r := range rows {
		p.row("  "+r.name, millis(r.l.P50), millis(r.l.P90), millis(r.l.P99), millis(r.l.P999), millis(r.l.Max))
	}
}

func writeCosts(p *page, server, client *Cost, unit string) {
	p.row("CPU", "µs a "+unit, "cores", "user", "system")
	for _, c := range []struct {
		name string
		cost *Cost
	}{{"  server", server}, {"  harness", client}} {
		if c.cost != nil {
			p.row(c.name, fmt.Sprintf("%.2f", c.cost.PerMessage), fmt.Sprintf("%.2f", c.cost.Cores), fmt.Sprintf("%.2f s", c.cost.User),
				fmt.Sprintf("%.2f s", c.cost.System))
		}
	}
}

func (r *ConnectResult) write(p *page) {
	p.row("connect", fmt.Sprintf("%d connections, held for %s", r.Config.Conns, seconds(r.Config.Hold)))
	p.gap()
	p.row("opened", count(r.Rate)+"/s", fmt.Sprintf("in %s", seconds(r.Seconds)))
	p.row("open", fmt.Sprint(r.Open), fmt.Sprintf("%d failed, %d lost", r.Failed, r.Lost))
	p.row("pongs", fmt.Sprint(r.Pongs))
	p.gap()
	writeLatencies(p, latencyRow{"sign-in", r.SignIn})
	if r.CPU != nil {
		p.gap()
		p.row("server CPU", fmt.Sprintf("%.1f µs a connection", r.CPU.PerMessage))
	}
	if m := r.Memory; m != nil {
		p.gap()
		p.row("server memory", "before", "open", "a connection")
		p.row("  resident", bytesText(float64(m.RSSBefore)), bytesText(float64(m.RSSOpen)), bytesText(m.RSSPerConn))
		if h := m.Heap; h != nil {
			p.row("  Go heap", bytesText(h.LiveBefore), bytesText(h.LiveOpen), bytesText(h.LivePerConn))
			p.row("  Go stacks", bytesText(h.StackBefore), bytesText(h.StackOpen), fmt.Sprintf("(%.0f goroutines)", h.GoroutinesNow))
		}
	}
	writeErrors(p, r.Errors)
}

func (b *EchoBaseline) write(p *page, withRatio bool) {
	p.gap()
	p.row("echo", "round trips", "p50 ms", "p99 ms", "µs echo CPU", "µs harness CPU")
	for i, r := range b.Runs {
		name := "  run " + fmt.Sprint(i+1)
		server := "-"
		if r.Server != nil {
			server = fmt.Sprintf("%.2f", r.Server.PerMessage)
		}
		p.row(name, count(r.AckedRate)+"/s", millis(r.Latency.P50), millis(r.Latency.P99), server, fmt.Sprintf("%.2f", r.Client.PerMessage))
	}
	if withRatio && b.Ratio > 0 {
		p.row("  ratio", fmt.Sprintf("%.3f", b.Ratio), "acked/s divided by the echo's round trips/s")
	}
}

func millis(us int64) string { return fmt.Sprintf("%.2f", float64(us)/1e3) }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}

// count is a number of things with three digits that matter.
func count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.2fM", n/1e6)
	case n >= 1e5:
		return fmt.Sprintf("%.0fk", n/1e3)
	case n >= 1e4:
		return fmt.Sprintf("%.1fk", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

func bytesText(n float64) string {
	switch {
	case n >= 1<<20 || n <= -1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	case n >= 10<<10 || n <= -10<<10:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	}
	return fmt.Sprintf("%.0f B", n)
}
