//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-im/parley/bench"
)

// mainVar makes this test binary the program itself.
const mainVar = "TEST_PARLEY_BENCH_MAIN" // not PARLEY_…: the server refuses what it does not know

func TestMain(m *testing.M) {
	if os.Getenv(mainVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// run runs the program and returns what it printed and its exit code.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainVar+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// buildServer builds the server that the tests start.
func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "parley")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../parley").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// The whole of it: a server of its own, an echo before and after, chat and connect, and both reports.
func TestAgainstTheServer(t *testing.T) {
	parley, dir := buildServer(t), t.TempDir()
	file := filepath.Join(dir, "report.json")
	out, errs, code := run(t, "chat", "--parley", parley, "--temp-dir", dir, "--conns", "8", "--window", "4", "--duration", "1100ms", "--warmup", "100ms",
		"--echo", "200ms", "--json", file, "--progress", "--serve-arg=--log-level=error")
	if code != 0 {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	for _, want := range []string{"checks", "passed", "send to deliver", "ratio"} {
		if !strings.Contains(out, want) {
			t.Errorf("the report has no %q:\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "acked/s") {
		t.Errorf("no progress: %q", errs)
	}
	r := readReport(t, file)
	if r.Chat == nil || r.Chat.Acked == 0 || r.Chat.AckedTotal != r.Chat.DeliveredTotal || r.Chat.Server == nil || r.Chat.ServerRSS == 0 {
		t.Errorf("chat: %+v", r.Chat)
	}
	if r.Echo == nil || len(r.Echo.Runs) != 2 || r.Echo.Ratio <= 0 {
		t.Errorf("echo: %+v", r.Echo)
	}

	out, errs, code = run(t, "connect", "--parley", parley, "--temp-dir", dir, "--conns", "20", "--hold", "100ms", "--json", "-")
	if code != 0 {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := readReport(t, file).Connect; c == nil || c.Open != 20 || c.Memory == nil || c.Memory.Heap == nil || c.CPU == nil {
		t.Errorf("connect: %+v", c)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}

	_, errs, code = run(t, "chat", "--parley", parley, "--temp-dir", dir, "--echo", "0", "--window", "64", "--duration", "1s")
	if code != 1 || !strings.Contains(errs, "max_inflight") {
		t.Errorf("a window over max_inflight: exit %d, %s", code, errs)
	}
}

func readReport(t *testing.T, file string) *bench.Report {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r bench.Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != bench.Schema {
		t.Errorf("schema %q", r.Schema)
	}
	return &r
}

func TestEcho(t *testing.T) {
	out, errs, code := run(t, "echo", "--conns", "4", "--duration", "100ms")
	if code != 0 || !strings.Contains(out, "round trips") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
}

func TestFlagsThatContradict(t *testing.T) {
	for _, args := range [][]string{
		{"chat", "--data", "x"}, {"chat", "--pid", "1"}, {"connect", "--tokens", "x"}, {"chat", "--addr", "127.0.0.1:1"},
		{"chat", "--addr", "127.0.0.1:1", "--data", "x", "--tokens", "y"}, {"connect", "--addr", "127.0.0.1:1", "--parley", "x", "--data", "y"},
		{"chat", "--parley", "/nowhere", "--echo", "0"}, {"chat", "extra"}, {"chat", "--nonsense"}, {"nonsense"},
		{"chat", "--addr", "127.0.0.1:1", "--secret-file", "/nowhere", "--echo", "0"}, {"chat", "--addr", "127.0.0.1:1", "--tokens", "/nowhere", "--echo", "0"},
	} {
		if out, errs, code := run(t, args...); code != 1 || errs == "" {
			t.Errorf("%v: exit %d\n%s\n%s", args, code, out, errs)
		}
	}
}
