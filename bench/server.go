//go:build linux

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 60 * time.Second
)

// Server is a `parley serve` that the harness started on a temporary folder.
type Server struct {
	Addr    string // where clients connect
	HTTP    string // where /readyz, /metrics and /debug/pprof are
	DataDir string
	PID     int

	cmd    *exec.Cmd
	exited chan struct{} // closed when err is set
	err    error
	log    *tail
}

// ServerOptions say how to start a server.
type ServerOptions struct {
	Binary string
	Args   []string // more flags of serve
	Parent string   // the temporary folder is made in it; "": where the system has its own
}

// StartServer starts a server and returns when it is ready. Stop must be called.
func StartServer(ctx context.Context, o ServerOptions) (*Server, error) {
	dir, err := os.MkdirTemp(o.Parent, "parley-bench-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{Addr: ports[0], HTTP: ports[1], DataDir: filepath.Join(dir, "data"), exited: make(chan struct{}), log: &tail{}}
	s.cmd = exec.Command(o.Binary, slices.Concat([]string{ //nolint:gosec // the operator names the binary
		"serve", "--data", s.DataDir, "--listen", s.Addr, "--http", s.HTTP, "--pprof",
	}, o.Args)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is ours to pass on, after the report
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the server: %w", err), os.RemoveAll(dir))
	}
	s.PID = s.cmd.Process.Pid
	go func() {
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the server: %w; it said:\n%s", err, s.log), s.Stop())
	}
	return s, nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	looks := time.NewTicker(glance)
	defer looks.Stop()
	for {
		if ready(ctx, s.HTTP) {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("it ended: %w", s.err)
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w", ctx.Err())
		case <-looks.C:
		}
	}
}

func ready(ctx context.Context, addr string) bool {
	body, err := get(ctx, "http://"+addr+"/readyz")
	if err != nil {
		return false
	}
	body.Close()
	return true
}

// Stop ends the server with SIGTERM, waits for it, and removes its folder. The error says that it did not end well.
func (s *Server) Stop() error {
	err := s.terminate()
	return errors.Join(err, os.RemoveAll(filepath.Dir(s.DataDir)))
}

func (s *Server) terminate() error {
	select {
	case <-s.exited:
		return fmt.Errorf("the server ended by itself: %w; it said:\n%s", s.err, s.log)
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill() // it is about to be reported
		<-s.exited
		return fmt.Errorf("the server did not end within %s of SIGTERM; it said:\n%s", stopTimeout, s.log)
	}
	if s.err != nil {
		return fmt.Errorf("the server: %w; it said:\n%s", s.err, s.log)
	}
	return nil
}

// freePorts finds addresses of 127.0.0.1 on which nobody listens. Somebody else may take one before it is used; then the server
// says so.
func freePorts(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // only when all are found, so that they differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// InMemory tells whether a folder is on a file system that keeps nothing.
func InMemory(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - tailSize; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// String is what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}
