//go:build linux

// Command parley-bench puts load on a Parley server, checks what it promises, and reports how fast it is.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "dev"

// errBroken says that the server broke a promise; the report has said which.
var errBroken = errors.New("the server did not keep its promises")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errBroken):
		fmt.Fprintln(os.Stderr, "parley-bench:", err)
		os.Exit(3)
	default:
		fmt.Fprintln(os.Stderr, "parley-bench:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "parley-bench",
		Short: "Load for a Parley server, and checks of what it promises",
		Long: `parley-bench plays many clients against a Parley server. Without --addr it starts a server of its own on a temporary folder.

It exits with 0 when all went well, with 3 when the server lost, repeated or mixed up messages or lost connections, and with 1 when the
run could not be made.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newChat(), newConnect(), newEcho(), newEchoServer())
	return root
}
