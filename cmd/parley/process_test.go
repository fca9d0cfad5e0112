package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the parley that TestMain built, without the race detector: these tests are about processes.
var binary string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "parley-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "parley")
	build := exec.Command("go", "build", "-race=false", "-ldflags", "-X main.version=test", "-o", binary, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building parley:", err)
		return 1
	}
	return m.Run()
}

// command is the binary with arguments, in an environment without settings.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, envPrefix) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// output runs the binary to its end.
func output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("parley %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// tokens are for the users, by the same order.
func tokens(t *testing.T, dir string, users ...string) []string {
	t.Helper()
	lines := strings.Fields(output(t, append([]string{"token", "--data", dir}, users...)...))
	if len(lines) != len(users) {
		t.Fatalf("%d tokens for %d users", len(lines), len(users))
	}
	return lines
}

// serving is a parley serve in a process of its own.
type serving struct {
	*process
	addr string // for apps
	http string // http://…
}

// process is a parley whose output is watched.
type process struct {
	*exec.Cmd
	stdin  io.WriteCloser
	output *transcript
	ended  chan struct{} // closed after Wait
	err    error         // Wait's, once ended is closed
}

const patience = 60 * time.Second // far above what is needed, also on a loaded machine

var addresses = regexp.MustCompile(`apps connect to (\S+), .* on (http://\S+),`)

// startServing starts one on the folder and waits until it says that it is ready.
func startServing(t *testing.T, dir, listen string, flags ...string) *serving {
	t.Helper()
	args := append([]string{"serve", "--data", dir, "--listen", listen, "--http", "127.0.0.1:0",
		"--drain-window", "20ms", "--drain-timeout", "500ms"}, flags...)
	s := &serving{process: startProcess(t, args...)}
	line := s.waitFor(t, addresses)
	s.addr, s.http = line[1], line[2]
	return s
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, command(args...))
}

// startCommand starts it with pipes, unless it has files already.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, output: newTranscript(), ended: make(chan struct{})}
	if p.Stdin == nil {
		p.Stdout, p.Stderr = p.output, p.output
		var err error
		if p.stdin, err = p.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Wait()
		p.output.end()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("parley %s printed:\n%s", strings.Join(cmd.Args[1:], " "), p.output.text())
		}
	})
	return p
}

// waitFor waits until a line of the output matches and returns its groups.
func (p *process) waitFor(t *testing.T, re *regexp.Regexp) []string {
	t.Helper()
	match, err := p.output.find(re)
	if err != nil {
		t.Fatalf("%v; it printed:\n%s", err, p.output.text())
	}
	return match
}

// typeLine writes a line to its standard input.
func (p *process) typeLine(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		t.Fatal(err)
	}
}

// exit waits for its end and returns its exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%v did not end", p.Args[1:])
	}
	return p.ProcessState.ExitCode()
}

// stop asks it to end and returns its exit code.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return p.exit(t)
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if !errors.As(p.err, new(*exec.ExitError)) || p.ProcessState.ExitCode() != -1 {
		t.Fatalf("it ended by itself: %v", p.err)
	}
}

// transcript is what a process printed, with waiting for it.
type transcript struct {
	mu    sync.Mutex
	more  chan struct{} // closed at the next write or the end, and then replaced
	bytes []byte
	over  bool
}

func newTranscript() *transcript { return &transcript{more: make(chan struct{})} }

// Write implements io.Writer.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, p...)
	close(t.more)
	t.more = make(chan struct{})
	return len(p), nil
}

func (t *transcript) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	close(t.more)
	t.more = make(chan struct{})
}

func (t *transcript) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.bytes)
}

func (t *transcript) find(re *regexp.Regexp) ([]string, error) {
	late := time.After(patience)
	for {
		t.mu.Lock()
		lines := bufio.NewScanner(bytes.NewReader(t.bytes))
		for lines.Scan() {
			if m := re.FindStringSubmatch(lines.Text()); m != nil {
				t.mu.Unlock()
				return m, nil
			}
		}
		more, over := t.more, t.over
		t.mu.Unlock()
		if over {
			return nil, fmt.Errorf("it ended without printing %s", re)
		}
		select {
		case <-more:
		case <-late:
			return nil, fmt.Errorf("it did not print %s in %s", re, patience)
		}
	}
}

// freePort is a loopback address for a server that is to come back under the same one. It lies below the ports that the system gives
// to outgoing connections, so that none of those takes it meanwhile.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}
