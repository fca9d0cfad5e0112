//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/bench"
)

func newChat() *cobra.Command {
	var t targetFlags
	var o bench.ChatOptions
	var echo time.Duration
	cmd := &cobra.Command{
		Use:   "chat [flags]",
		Short: "Pairs of users who send each other messages",
		Long: `chat lets pairs of users talk: connection 2i with 2i+1. Each keeps --window messages open (closed loop), or all of them together send
--rate messages a second on a fixed timetable (open loop; latency counts from when a message was due). Every message is checked: delivered
once, in order, unchanged, with the next seq of its conversation. Before and after, the same frames go to a plain echo server.`,
		Example: `  parley-bench chat --conns 200 --window 32 --duration 60s
  parley-bench chat --rate 20000 --conns 1000 --json report.json
  parley-bench chat --addr 127.0.0.1:7000 --data ./data --pid $(pidof parley)`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runChat(cmd, &t, o, echo) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Conns, "conns", 200, "connections, two for each conversation")
	f.IntVar(&o.Window, "window", 1, "messages that each connection keeps open")
	f.Float64Var(&o.Rate, "rate", 0, "messages a second of all connections; 0: as many as the window allows")
	f.IntVar(&o.Size, "size", 128, "bytes of content in a message, random")
	f.DurationVar(&o.Duration, "duration", 60*time.Second, "how long to measure")
	f.DurationVar(&o.Warmup, "warmup", 5*time.Second, "load before that, not measured")
	f.DurationVar(&o.Drain, "drain", 10*time.Second, "the longest wait at the end for acks and deliveries that are on their way")
	f.BoolVar(&o.PushAck, "push-ack", false, "answer each PUSH with a PUSH_ACK, as clients do that want no offline push")
	f.DurationVar(&echo, "echo", 3*time.Second, "how long to run the echo before, and again after; 0: not at all")
	t.register(cmd)
	return cmd
}

func runChat(cmd *cobra.Command, t *targetFlags, o bench.ChatOptions, echo time.Duration) error {
	ctx := cmd.Context()
	report := newReport("chat")
	if err := t.check(); err != nil {
		return err
	}
	before, err := runEcho(ctx, echo, o, t.loops)
	if err != nil {
		return err
	}
	to, err := t.open(ctx)
	if err != nil {
		return err
	}
	o.Addr, o.PID, o.Tokens, o.Loops, o.Progress = to.addr, to.pid, to.tokens, t.loops, t.show()
	report.Chat, err = bench.Chat(ctx, o)
	stopped := to.stop()
	if err != nil {
		return errors.Join(err, stopped)
	}
	after, err := runEcho(ctx, echo, o, t.loops)
	if err != nil {
		return errors.Join(err, stopped)
	}
	if echo > 0 {
		report.Echo = bench.NewBaseline(report.Chat.AckedRate, before, after)
	}
	return t.conclude(cmd.OutOrStdout(), report, report.Chat.Passed(), stopped)
}

// runEcho runs the echo with a chat's connections and frames; nothing when d is 0.
func runEcho(ctx context.Context, d time.Duration, o bench.ChatOptions, loops int) (*bench.EchoResult, error) {
	if d <= 0 {
		return nil, nil
	}
	command, err := echoCommand()
	if err != nil {
		return nil, err
	}
	return bench.Echo(ctx, bench.EchoOptions{
		Conns: o.Conns, Window: o.Window, Size: o.Size, Duration: d, Loops: loops, Command: command,
	})
}

// echoCommand is this program, as an echo server.
func echoCommand() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("echo: %w", err)
	}
	return []string{self, echoServerName}, nil
}
