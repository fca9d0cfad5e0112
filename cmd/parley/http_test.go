package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestProbes(t *testing.T) {
	var notReady error
	ready := func() error { return notReady }
	plain := probeRoutes(ready, newMetrics(), false)
	profiled := probeRoutes(ready, newMetrics(), true)
	tests := []struct {
		name, method, path string
		handler            http.Handler
		notReady           error
		code               int
		body               string
	}{
		{"alive", "GET", "/healthz", plain, nil, 200, "ok"},
		{"alive though not ready", "GET", "/healthz", plain, errors.New("draining"), 200, "ok"},
		{"ready", "GET", "/readyz", plain, nil, 200, "ok"},
		{"not ready", "GET", "/readyz", plain, errors.New("the reason"), 503, "the reason"},
		{"metrics", "GET", "/metrics", plain, nil, 200, "parley_build_info{version="},
		{"only GET", "POST", "/healthz", plain, nil, 405, ""},
		{"only GET", "DELETE", "/metrics", plain, nil, 405, ""},
		{"nothing else", "GET", "/", plain, nil, 404, ""},
		{"no profiles", "GET", "/debug/pprof/", plain, nil, 404, ""},
		{"profiles when asked for", "GET", "/debug/pprof/", profiled, nil, 200, "goroutine"},
		{"a profile", "GET", "/debug/pprof/heap?debug=1", profiled, nil, 200, "heap profile"},
	}
	for _, tt := range tests {
		t.Run(tt.name+" "+tt.method+" "+tt.path, func(t *testing.T) {
			notReady = tt.notReady
			w := httptest.NewRecorder()
			tt.handler.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) {
				t.Errorf("%d %q, want %d and %q", w.Code, w.Body.String(), tt.code, tt.body)
			}
		})
	}
}

func TestProbesPortInUse(t *testing.T) {
	log, err := (&serveSettings{logLevel: "info", logFormat: "text"}).logger(t.Output())
	if err != nil {
		t.Fatal(err)
	}
	first, err := startProbes("127.0.0.1:0", func() error { return nil }, prometheus.NewRegistry(), false, log)
	if err != nil {
		t.Fatal(err)
	}
	defer first.close()
	_, err = startProbes(first.addr().String(), nil, nil, false, log)
	if err == nil || !strings.Contains(err.Error(), "--http") {
		t.Errorf("error %v does not say which flag", err)
	}
}
