package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	httpHeaderTimeout = 5 * time.Second
	httpTimeout       = 30 * time.Second
	httpMaxHeader     = 16 << 10
	scrapesAtOnce     = 4
)

// probes is the HTTP listener: for orchestrators, balancers and monitoring, never for apps.
type probes struct {
	server   *http.Server
	listener net.Listener
	done     chan struct{}
}

// startProbes answers on addr. ready is nil while sends are accepted; it is called for each /readyz.
func startProbes(addr string, ready func() error, metrics prometheus.Gatherer, withPprof bool, log *slog.Logger) (*probes, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the HTTP listener: %w; choose another address with --http, or none with --http ''", err)
	}
	p := &probes{
		listener: listener,
		done:     make(chan struct{}),
		server: &http.Server{
			Handler:           probeRoutes(ready, metrics, withPprof),
			ReadHeaderTimeout: httpHeaderTimeout,
			ReadTimeout:       httpTimeout,
			WriteTimeout:      httpTimeout,
			IdleTimeout:       httpTimeout,
			MaxHeaderBytes:    httpMaxHeader,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}
	go func() {
		defer close(p.done)
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the HTTP listener ended", "error", err)
		}
	}()
	return p, nil
}

func probeRoutes(ready func() error, metrics prometheus.Gatherer, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce}))
	if withPprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// addr is where it listens; nil: nowhere.
func (p *probes) addr() net.Addr {
	if p == nil {
		return nil
	}
	return p.listener.Addr()
}

// close ends the listener and its connections. It is the last thing that stops: an operator can look until then.
func (p *probes) close() {
	if p == nil {
		return
	}
	_ = p.server.Close() // of connections that end with the process
	<-p.done
}
