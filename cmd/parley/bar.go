package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// barLines is how often a bar prints a line where there is no terminal.
const barLines = 30 * time.Second

// bar shows how far long work is: a bar on a terminal; elsewhere, as in a log, a line now and then.
type bar struct {
	out    io.Writer
	what   string
	total  int64
	drawn  *progressbar.ProgressBar // nil: there is no terminal
	latest time.Time                // of the last line
}

// newBar shows work of so many parts.
func newBar(out io.Writer, what string, total uint64) *bar {
	b := &bar{out: out, what: what, total: int64(total), latest: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.drawn = progressbar.NewOptions64(b.total,
			progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(true))
	}
	return b
}

// set shows that n parts are done.
func (b *bar) set(n uint64) {
	switch {
	case b.drawn != nil:
		_ = b.drawn.Set64(min(int64(n), b.total)) // of a terminal that is gone
	case time.Since(b.latest) >= barLines:
		b.latest = time.Now()
		fmt.Fprintf(b.out, "%s: %d of %d\n", b.what, n, b.total)
	}
}

// resize makes it a bar of other work.
func (b *bar) resize(what string, total uint64) {
	if b.what == what && b.total == int64(total) {
		return
	}
	b.what, b.total = what, int64(total)
	if b.drawn != nil {
		b.drawn.Describe(what)
		b.drawn.ChangeMax64(b.total)
	}
}

// clear takes the bar off the screen, so that something else can be printed.
func (b *bar) clear() {
	if b.drawn != nil {
		_ = b.drawn.Clear()
	}
}
