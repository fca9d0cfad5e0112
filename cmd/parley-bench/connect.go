//go:build linux

package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/bench"
)

func newConnect() *cobra.Command {
	var t targetFlags
	var o bench.ConnectOptions
	cmd := &cobra.Command{
		Use:   "connect [flags]",
		Short: "Open connections, sign them in and hold them",
		Long: `connect opens connections, signs each in as another user, and holds them. It reports how fast that went, and, when the server's
process is known, what memory a connection takes there.`,
		Example: `  parley-bench connect --conns 8000 --hold 30s
  parley-bench connect --conns 10000 --rate 500 --addr 127.0.0.1:7000 --data ./data --pid $(pidof parley) --http 127.0.0.1:7080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConnect(cmd, &t, o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Conns, "conns", 1000, "connections, each of another user")
	f.Float64Var(&o.Rate, "rate", 0, "connections to open in a second; 0: as fast as the server takes them")
	f.DurationVar(&o.Hold, "hold", 10*time.Second, "how long to hold them once all are open")
	f.StringVar(&t.http, "http", "", "the server's HTTP address, for its heap (with --addr)")
	t.register(cmd)
	return cmd
}

func runConnect(cmd *cobra.Command, t *targetFlags, o bench.ConnectOptions) error {
	report := newReport("connect")
	to, err := t.open(cmd.Context())
	if err != nil {
		return err
	}
	o.Addr, o.HTTP, o.PID, o.Tokens, o.Loops, o.Progress = to.addr, to.http, to.pid, to.tokens, t.loops, t.show()
	report.Connect, err = bench.Connect(cmd.Context(), o)
	stopped := to.stop()
	if err != nil {
		return errors.Join(err, stopped)
	}
	return t.conclude(cmd.OutOrStdout(), report, report.Connect.Passed(), stopped)
}
