package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/parley-im/parley/conn"
	"github.com/parley-im/parley/logic"
	"github.com/parley-im/parley/storage/embedded"
	"github.com/parley-im/parley/storage/mongo"
)

// server is the parts of a running process. This file is where they are put together.
type server struct {
	settings *serveSettings
	log      *slog.Logger
	metrics  *prometheus.Registry
	store    store
	lease    *mongo.Lease // of the database; nil on a folder
	gateway  *conn.Gateway
	logic    *logic.Logic
	probes   *probes
	serving  atomic.Bool // connections are taken
	draining atomic.Bool

	// closers stop what was started, the last first.
	closers []closer
}

type closer struct {
	what  string
	close func() error
}

// startServer starts everything, or nothing. GOMAXPROCS stays what the runtime finds, the CPUs: the event loops
// take half of them, so that the goroutines that number and store do not wait behind the loops.
func startServer(s *serveSettings, log *slog.Logger) (*server, error) {
	srv := &server{settings: s, log: log, metrics: newMetrics()}
	if err := srv.start(); err != nil {
		return nil, errors.Join(err, srv.close())
	}
	srv.serving.Store(true)
	return srv, nil
}

func (srv *server) start() error {
	s := srv.settings
	verifier, err := newVerifier(s)
	if err != nil {
		return err
	}
	queue, err := srv.openStore()
	if err != nil {
		return err
	}
	if srv.gateway, err = conn.New(conn.Options{
		Listen: s.listen, Verifier: verifier, Loops: s.loops, MaxConns: s.maxConns,
		Heartbeat: s.heartbeat, HandshakeTimeout: s.handshake, StallTimeout: s.stall, DrainWindow: s.drainWindow,
		MaxBody: int(s.maxBody), MaxDown: int(s.maxDown), MaxInflight: s.maxInflight,
		SoftBound: int(s.softOut), HardBound: int(s.hardOut), Logger: srv.log, Registerer: srv.metrics,
	}); err != nil {
		return err
	}
	if srv.logic, err = logic.New(logic.Options{
		Log: queue, Buckets: srv.store, Directory: srv.store, Changes: srv.store, Routes: embedded.NewRoutes(s.maxDevices), Gateway: srv.gateway,
		MaxBody: int(s.maxBody), MaxDown: int(s.maxDown), StateBytes: int64(s.state), RevokeWithin: s.revokeWithin, EditWithin: s.editWithin,
		Logger: srv.log, Registerer: srv.metrics,
	}); err != nil {
		return err
	}
	if err := srv.logic.Start(); err != nil {
		return err
	}
	srv.onClose("the logic tier", srv.logic.Close)
	if err := srv.startRetention(); err != nil {
		return err
	}
	if err := srv.startProbes(); err != nil {
		return err
	}
	if err := srv.gateway.Start(srv.logic); err != nil {
		return err
	}
	srv.onClose("the connection tier", srv.gateway.Close)
	return nil
}

func (srv *server) startRetention() error {
	if srv.settings.retention == 0 {
		return nil
	}
	r, err := newRetention(srv.store, time.Duration(srv.settings.retention), srv.log, srv.metrics)
	if err != nil {
		return err
	}
	r.start()
	srv.onClose("the retention", r.close)
	return nil
}

func (srv *server) startProbes() (err error) {
	s := srv.settings
	if s.http == "" {
		return nil
	}
	srv.probes, err = startProbes(s.http, srv.ready, srv.metrics, s.pprof, srv.log)
	return err
}

func (srv *server) onClose(what string, f func() error) {
	srv.closers = append(srv.closers, closer{what, f})
}

// close stops what runs: connections, then the logic tier, which makes durable and answers what is queued, then the store. The
// probes go last, so that they can say until the end why the server is not ready.
func (srv *server) close() error {
	var errs []error
	for i := len(srv.closers) - 1; i >= 0; i-- {
		if err := srv.closers[i].close(); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", srv.closers[i].what, err))
		}
	}
	srv.closers = nil
	srv.probes.close()
	return errors.Join(errs...)
}

// ready is nil while sends are accepted.
func (srv *server) ready() error {
	switch {
	case srv.draining.Load():
		return errors.New("draining")
	case !srv.serving.Load():
		return errors.New("starting")
	}
	return srv.logic.Ready()
}

func newVerifier(s *serveSettings) (*conn.Verifier, error) {
	secret, err := openSecret(s.data)
	if err != nil {
		return nil, err
	}
	var public ed25519.PublicKey
	if s.jwtPublicKey != "" {
		text, err := os.ReadFile(s.jwtPublicKey)
		if err != nil {
			return nil, fmt.Errorf("--jwt-public-key: %w", err)
		}
		if public, err = conn.ParsePublicKey(text); err != nil {
			return nil, fmt.Errorf("--jwt-public-key %s: %w", s.jwtPublicKey, err)
		}
	}
	return conn.NewVerifier(conn.VerifierOptions{Secret: secret, PublicKey: public, Audience: s.audience})
}

func newMetrics() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "parley_build_info", Help: "1; the label has the version.", ConstLabels: prometheus.Labels{"version": buildVersion()},
		}, func() float64 { return 1 }),
	)
	return registry
}

// announce says where the server is and what to do next.
func (srv *server) announce(out io.Writer) {
	s := srv.settings
	probes := "no HTTP"
	if addr := srv.probes.addr(); addr != nil {
		probes = fmt.Sprintf("health and metrics are on http://%s", addr)
	}
	where := s.data
	if s.mongo != "" {
		where = describeMongo(s.mongo)
	}
	fmt.Fprintf(out, "parley %s is ready: apps connect to %s, %s, data is in %s\n", buildVersion(), srv.gateway.Addr(), probes, where)
	if err := srv.ready(); err != nil {
		fmt.Fprintf(out, "but it takes no messages yet: %v\n", err)
	}
	fmt.Fprintf(out, "try it: parley chat%s --as alice --to bob    (and in another terminal --as bob --to alice)\n", srv.chatFlags())
}

// chatFlags are what a chat on this machine needs to find the server.
func (srv *server) chatFlags() string {
	var flags strings.Builder
	if _, port, err := net.SplitHostPort(srv.gateway.Addr().String()); err == nil && port != defaultPort {
		fmt.Fprintf(&flags, " --addr 127.0.0.1:%s", port)
	}
	if srv.settings.data != defaultData {
		fmt.Fprintf(&flags, " --data %s", srv.settings.data)
	}
	if srv.settings.audience != "" {
		fmt.Fprintf(&flags, " --audience %s", srv.settings.audience)
	}
	return flags.String()
}
