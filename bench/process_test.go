//go:build linux

package bench

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
)

// roleVar makes this test binary another program, so that processes can be tested without building one.
const roleVar = "TEST_PARLEY_BENCH_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
			goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
	case "echo":
		if err := ServeEcho(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "serve":
		fakeServe(os.Args, true)
	case "deaf":
		fakeServe(os.Args, false)
	case "broken":
		fmt.Fprintln(os.Stderr, "the disk is on fire")
		os.Exit(7)
	}
}

// fakeServe answers /readyz on --http as `parley serve` does, and ends with 0 on SIGTERM; a deaf one with 3.
func fakeServe(args []string, good bool) {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	flag := func(name string) string { return args[slices.Index(args, name)+1] }
	if err := os.MkdirAll(flag("--data"), 0o700); err != nil {
		panic(err)
	}
	if err := os.WriteFile(SecretFile(flag("--data")), []byte(hex.EncodeToString([]byte("a key"))+"\n"), 0o600); err != nil {
		panic(err)
	}
	go http.ListenAndServe(flag("--http"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	<-terms
	if !good {
		fmt.Fprintln(os.Stderr, "no drain today")
		os.Exit(3)
	}
}

func startAs(t *testing.T, role string) (*Server, error) {
	t.Helper()
	t.Setenv(roleVar, role)
	return StartServer(context.Background(), ServerOptions{Binary: os.Args[0], Args: []string{"--extra"}, Parent: t.TempDir()})
}

func TestServerIsStartedAndStopped(t *testing.T) {
	s, err := startAs(t, "serve")
	if err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID))
	if err != nil || !strings.Contains(string(args), "\x00--listen\x00"+s.Addr+"\x00") || !strings.Contains(string(args), "--extra") {
		t.Errorf("%q, %v", args, err)
	}
	if _, err := MintTokens(SecretFile(s.DataDir)); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is still there: %v", err)
	}
	if err := syscall.Kill(s.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it still runs: %v", err)
	}
}

func TestServerThatDoesNotStart(t *testing.T) {
	_, err := startAs(t, "broken")
	if err == nil || !strings.Contains(err.Error(), "the disk is on fire") || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("%v: it does not tell why", err)
	}
}

func TestServerThatStopsBadly(t *testing.T) {
	s, err := startAs(t, "deaf")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "no drain today") {
		t.Errorf("%v", err)
	}
}

func TestEcho(t *testing.T) {
	t.Setenv(roleVar, "echo")
	r, err := Echo(context.Background(), EchoOptions{
		Conns: 6, Window: 4, Size: 100, Duration: 200 * time.Millisecond, Loops: 2, Command: []string{os.Args[0]},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Checks.Passed() || r.Acked == 0 || r.AckedRate == 0 || r.Latency.Count == 0 || r.Server == nil {
		t.Errorf("%+v", r)
	}
}

func TestEchoServerThatDoesNotStart(t *testing.T) {
	t.Setenv(roleVar, "broken")
	if _, err := Echo(context.Background(), EchoOptions{Conns: 2, Window: 1, Duration: time.Second, Command: []string{os.Args[0]}}); err == nil {
		t.Error("no error")
	}
}

func TestMint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	key := []byte("0123456789abcdef0123456789abcdef")
	if err := os.WriteFile(file, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := MintTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := MintTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]bool{}
	for _, from := range []*Tokens{tokens, other} {
		for id := range uint32(3) {
			text, err := from.of(id)
			if err != nil {
				t.Fatal(err)
			}
			var c jwt.RegisteredClaims
			if _, err := jwt.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return key, nil }, jwt.WithExpirationRequired()); err != nil {
				t.Error(err)
			}
			users[c.Subject] = true
		}
	}
	if len(users) != 6 {
		t.Errorf("users of two runs: %v", users)
	}
	if err := os.WriteFile(file, []byte("not hex"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MintTokens(file); err == nil {
		t.Error("a bad secret was taken")
	}
}

func TestReadTokens(t *testing.T) {
	tokens, err := ReadTokens(strings.NewReader("one\n\n two \nthree\n"))
	if err != nil || tokens.count != 3 || tokens.fresh {
		t.Fatalf("%+v, %v", tokens, err)
	}
	if got, _ := tokens.of(1); got != "two" {
		t.Errorf("%q", got)
	}
	if tokens.enough(3) != nil || tokens.enough(4) == nil {
		t.Error("3 tokens are enough for 3 connections, and not for 4")
	}
	if _, err := ReadTokens(strings.NewReader("\n")); err == nil {
		t.Error("no tokens were taken")
	}
}

func TestProc(t *testing.T) {
	cpu, err := parseStat([]byte("42 (a ) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 250 125 0 0 20 0 5 0 1 1 1 1 1"))
	if err != nil || cpu.User != 2500*time.Millisecond || cpu.System != 1250*time.Millisecond {
		t.Errorf("%+v, %v", cpu, err)
	}
	for _, bad := range []string{"", "42 (a", "42 (a) S 1", "42 (a) S 1 1 1 0 -1 4194304 100 0 0 0 x y 0"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	rss, err := parseRSS([]byte("Name:\tx\nVmRSS:\t    1234 kB\nThreads:\t1\n"))
	if err != nil || rss != 1234<<10 {
		t.Errorf("%d, %v", rss, err)
	}
	if _, err := parseRSS([]byte("Name:\tx\n")); err == nil {
		t.Error("a status without VmRSS was taken")
	}
	if rss, err := procRSS(os.Getpid()); err != nil || rss < 1<<20 {
		t.Errorf("own memory: %d, %v", rss, err)
	}
	before := sample(os.Getpid())
	for began := time.Now(); time.Since(began) < 50*time.Millisecond || selfCPU() == before.client; {
		fill(make([]byte, 1<<16), 1)
	}
	after := sample(os.Getpid())
	if c := after.client.since(before.client, 10, 1); c.PerMessage <= 0 || c.Cores <= 0 {
		t.Errorf("no processor time was used: %+v", c)
	}
	if sample(0).server != nil || after.server == nil {
		t.Error("the server's time is known when its process is")
	}
	if m := cpuModel("processor\t: 0\nmodel name\t: Foo: bar\n"); m != "Foo: bar" {
		t.Errorf("%q", m)
	}
}

func TestTakeMemory(t *testing.T) {
	collected := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/metrics" && collected:
			io.WriteString(w, "# HELP x y\ngo_memstats_heap_alloc_bytes 1.5e+06\ngo_memstats_heap_alloc_bytes_total 9\ngo_goroutines 12\ngo_memstats_stack_inuse_bytes 65536\n")
		case r.URL.Path == "/debug/pprof/heap" && r.URL.Query().Get("gc") == "1":
			collected = true
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer s.Close()
	m, err := takeMemory(context.Background(), os.Getpid(), strings.TrimPrefix(s.URL, "http://"))
	if err != nil || m.rss == 0 || !m.known || m.live != 1.5e6 || m.goroutines != 12 || m.stack != 65536 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := takeMemory(context.Background(), 0, ""); err != nil || m.known {
		t.Errorf("of nothing: %+v, %v", m, err)
	}
}

func TestSources(t *testing.T) {
	to, err := resolve("127.0.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	if got := sources(to, perSource); got != nil {
		t.Errorf("%v for as many connections as one address has ports", got)
	}
	got := sources(to, 2*perSource+1)
	if len(got) != 3 || got[0].String() != "127.0.0.1" || got[2].String() != "127.0.0.3" {
		t.Errorf("%v", got)
	}
	if to, _ := resolve(":7000"); to.String() != "127.0.0.1:7000" {
		t.Errorf(":7000 is %s", to)
	}
	if to, _ := resolve("[::1]:7000"); sources(to, 100_000) != nil {
		t.Error("IPv6 loopback has one address")
	}
}

// Connections really come from the addresses that they are given.
func TestDialFromAnAddress(t *testing.T) {
	s := startFake(t, nil)
	to, err := resolve(s.addr())
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLoop(&loopConfig{
		to: to, from: sources(to, 2*perSource), start: time.Now(), hello: names().hello, dialing: 10, timeout: time.Second * 10,
	}, []uint32{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.scene = &hold{l: l}
	for l.tally.open.Load() < 2 && l.tally.failed.Load() == 0 {
		l.housekeep()
		events, err := l.poll.wait(idleWait)
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			l.event(&l.conns[events[i].Fd], events[i].Events)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for user, want := range map[string]string{"user-0": "127.0.0.1:", "user-1": "127.0.0.2:"} {
		if got := s.conns[user].RemoteAddr().String(); !strings.HasPrefix(got, want) {
			t.Errorf("%s comes from %s, want %s", user, got, want)
		}
	}
}
