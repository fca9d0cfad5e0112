package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func newServe() *cobra.Command {
	var s serveSettings
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: one process, everything in one folder",
		Long: `serve runs the whole server in one process. The first start makes the data folder and, in it, the secret that signs tokens.

With --mongo everything but that secret is in a MongoDB database, which one server uses at a time.

SIGTERM and SIGINT drain: /readyz turns red, clients are asked to go, what was accepted is made durable, and the process exits
with 0. A second signal ends it at once with 1.`,
		Example: `  parley serve
  parley serve --data /var/lib/parley --listen :7000 --http 127.0.0.1:7080 --retention 365d
  PARLEY_MONGO=mongodb://db.example.org/parley parley serve
  PARLEY_LOG_FORMAT=json parley serve --config /etc/parley.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(&s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.register(cmd)
	return cmd
}

// serve runs until a signal, or until the connection tier ends by itself, which is an error.
func serve(s *serveSettings, out, errOut io.Writer) error {
	if err := s.check(); err != nil {
		return err
	}
	log, err := s.logger(errOut)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)

	srv, err := startServer(s, log)
	if err != nil {
		return err
	}
	srv.announce(out)
	select {
	case sig := <-signals:
		log.Info("draining", "signal", sig.String())
		go exitOnSecond(signals, log)
		return srv.drain()
	case <-srv.lost():
		return errors.Join(srv.lease.Ready(), srv.close())
	case <-srv.gateway.Done():
		err := fmt.Errorf("the connection tier ended by itself: %w", srv.gateway.Err())
		return errors.Join(err, srv.close())
	}
}

// exitOnSecond is for an operator who does not want to wait. Nothing that was acknowledged is lost by it.
func exitOnSecond(signals <-chan os.Signal, log *slog.Logger) {
	sig := <-signals
	log.Warn("ending at once", "signal", sig.String())
	os.Exit(1)
}

// drain lets go of everybody in an order in which nobody waits for what has stopped: first the probes say so, then
// the clients are asked to go, then what was accepted is made durable, then the store closes. An error of the gateway's deadline only means
// that some clients did not go by themselves.
func (srv *server) drain() error {
	srv.draining.Store(true)
	time.Sleep(srv.settings.drainDelay)
	ctx, cancel := context.WithTimeout(context.Background(), srv.settings.drainTimeout)
	defer cancel()
	if err := srv.gateway.Drain(ctx); err != nil {
		srv.log.Warn("clients were cut off", "error", err)
	}
	err := srv.close()
	if err == nil {
		srv.log.Info("stopped")
	}
	return err
}
