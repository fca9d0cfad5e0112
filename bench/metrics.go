//go:build linux

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// scrape reads the named values off a server's /metrics. A name that is not there is missing from the map.
func scrape(ctx context.Context, addr string, names ...string) (map[string]float64, error) {
	body, err := get(ctx, "http://"+addr+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	found := map[string]float64{}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			continue
		}
		for _, want := range names {
			if name == want {
				if found[name], err = strconv.ParseFloat(value, 64); err != nil {
					return nil, fmt.Errorf("/metrics: %w", err)
				}
			}
		}
	}
	return found, lines.Err()
}

// get asks over a connection of its own, which does not stay open: it would be one of the server's.
func get(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, res.Status)
	}
	return res.Body, nil
}

// memory is a server's memory at a moment.
type memory struct {
	rss        int64
	known      bool // the rest is
	live       float64
	stack      float64
	goroutines float64
}

const (
	metricHeap       = "go_memstats_heap_alloc_bytes"
	metricStack      = "go_memstats_stack_inuse_bytes"
	metricGoroutines = "go_goroutines"
)

// takeMemory looks at a server's memory. Where its profiles are served, asking for one makes it collect its garbage first, so that what is counted
// is in use; otherwise there is garbage in the figures.
func takeMemory(ctx context.Context, pid int, addr string) (m memory, err error) {
	if addr != "" {
		if body, err := get(ctx, "http://"+addr+"/debug/pprof/heap?gc=1"); err == nil {
			_, _ = io.Copy(io.Discard, body) // only the collection matters
			body.Close()
		}
		values, err := scrape(ctx, addr, metricHeap, metricStack, metricGoroutines)
		if err == nil {
			m.live, m.known = values[metricHeap]
			m.stack, m.goroutines = values[metricStack], values[metricGoroutines]
		}
	}
	if pid != 0 {
		m.rss, err = procRSS(pid)
	}
	return m, err
}
