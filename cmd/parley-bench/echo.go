//go:build linux

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/bench"
)

const echoServerName = "echo-server"

func newEcho() *cobra.Command {
	var t targetFlags
	var o bench.ChatOptions
	var d time.Duration
	cmd := &cobra.Command{
		Use:   "echo [flags]",
		Short: "The same frames against a plain echo server: what the machine can do",
		Long: `echo starts an echo server in a process of its own and runs the frames of chat against it, with the same loop. Rates of a chat on
different machines compare as a part of this one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := bench.RaiseFileLimit(); err != nil {
				return err
			}
			r, err := runEcho(cmd.Context(), d, o, t.loops)
			if err != nil {
				return err
			}
			report := newReport("echo")
			report.Echo = bench.NewBaseline(0, r)
			return t.write(cmd.OutOrStdout(), report)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Conns, "conns", 200, "connections")
	f.IntVar(&o.Window, "window", 1, "frames that each connection keeps open")
	f.IntVar(&o.Size, "size", 128, "bytes of content in a frame, random")
	f.DurationVar(&d, "duration", 5*time.Second, "how long to measure")
	t.registerOutput(cmd)
	return cmd
}

func newEchoServer() *cobra.Command {
	return &cobra.Command{
		Use: echoServerName, Short: "The echo server of echo and chat", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := bench.RaiseFileLimit(); err != nil {
				return err
			}
			return bench.ServeEcho(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
