package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(failingChild) != "" {
		failingStore(os.Getenv(failingChild))
		return
	}
	goleak.VerifyTestMain(m)
}

func mustOpen(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustClose(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "too")
	s := mustOpen(t, Options{Dir: dir})
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the data folder: %v, %v", info, err)
	}
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	appendAndWait(t, s, k.Run(r, 5))
	_, upTo, err := s.Changed(t.Context(), "alice", 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		mustClose(t, s)
		was := s.epoch
		s = mustOpen(t, Options{Dir: dir})
		if epoch, err := s.Epoch(t.Context()); err != nil || epoch != was {
			t.Fatalf("epoch %s became %s, %v", was, epoch, err)
		}
		k.Check(t, s, k.Tail())
		if entries, now, err := s.Changed(t.Context(), "alice", upTo); err != nil || len(entries) != 0 || now != upTo {
			t.Fatalf("changed since %d after opening again: %v up to %d, %v", upTo, entries, now, err)
		}
		appendAndWait(t, s, k.Run(r, 5))
		entries, now, err := s.Changed(t.Context(), "alice", upTo)
		if err != nil || len(entries) != 1 || now <= upTo {
			t.Fatalf("changed since %d: %v up to %d, %v", upTo, entries, now, err)
		}
		upTo = now
	}
	other := mustOpen(t, Options{Dir: t.TempDir()})
	if other.epoch == s.epoch {
		t.Fatal("two stores have one epoch")
	}
}

func appendAndWait(t *testing.T, s *Store, runs ...*storage.Run) {
	t.Helper()
	c, err := s.Append(context.Background(), runs)
	if err == nil {
		err = c.Wait()
	}
	for _, r := range runs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpenInUse: two servers on one folder would be the end of it.
func TestOpenInUse(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	_, err := Open(Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), dir) {
		t.Fatalf("opened twice: %v", err)
	}
	mustClose(t, s)
	mustOpen(t, Options{Dir: dir})
}

// TestOpenRefuses: it refuses what it does not know, and leaves it as it is.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name, key, value, want string
	}{
		{"a later format", "#format", "3", `has format "3"`},
		{"another program's", "hello", "world", "another program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			if c.key == "#format" {
				mustClose(t, mustOpen(t, Options{Dir: "data", FS: fs}))
			} else if err := fs.MkdirAll("data/db", 0o700); err != nil {
				t.Fatal(err)
			}
			db, err := pebble.Open("data/db", &pebble.Options{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Set([]byte(c.key), []byte(c.value), pebble.Sync), db.Close()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := Open(Options{Dir: "data", FS: fs}); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("opened: %v", err)
				}
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: file}); err == nil || !strings.Contains(err.Error(), "cannot make the data folder") {
		t.Fatalf("opened in a file: %v", err)
	}
}

// TestClosed: every call after Close is ErrClosed; Close waits for the writes that are on their way.
func TestClosed(t *testing.T) {
	s := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem()})
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	appendAndWait(t, s, k.Run(r, 1))
	c, err := s.Append(t.Context(), []*storage.Run{k.Run(r, 1)})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for s.Writable() == nil { // until Close has begun
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		t.Fatalf("Close did not wait: %v", err)
	default:
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, errState := s.State(ctx, k.ID)
	errRecent := s.Recent(ctx, k.ID, func(storage.RecentID) bool { return true })
	_, errAppend := s.Append(ctx, []*storage.Run{k.Run(r, 1)})
	errRead := s.Read(ctx, storage.Range{Conversation: k.ID, From: 1, To: 2}, func(*storage.Slot) bool { return true })
	_, _, errChanged := s.Changed(ctx, "alice", 0)
	_, errEntries := s.Entries(ctx, "alice", []string{k.ID})
	_, _, errRaise := s.RaiseRead(ctx, "alice", k.ID, 1, 1)
	_, errOut := s.SignedOut(ctx, "alice", "phone")
	errSet := s.SetSignedOut(ctx, "alice", "phone", true)
	for i, err := range []error{errState, errRecent, errAppend, errRead, errChanged, errEntries, errRaise, errOut, errSet, s.Writable()} {
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("call %d after Close: %v", i, err)
		}
	}
	mustClose(t, s)
}

// TestForgottenInFlight: a conversation whose tail is no longer in memory while its runs are in flight.
func TestForgottenInFlight(t *testing.T) {
	s := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem()})
	s.tails.kept = 64
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	appendAndWait(t, s, k.Run(r, 3))
	var commits []storage.Commit
	wait := func() {
		for _, c := range commits {
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}
		commits = nil
	}
	t.Cleanup(wait) // or Close, which waits for them to be waited for, would not return after a failure
	start := func(runs ...*storage.Run) {
		t.Helper()
		c, err := s.Append(t.Context(), runs)
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, c)
	}
	start(k.Run(r, 2))
	for n := 0; n < 2*s.tails.kept; { // others, until it is forgotten for sure
		var runs []*storage.Run
		for range 40 {
			other := storagetest.Direct("other", fmt.Sprint(n))
			runs = append(runs, other.Run(r, 1))
			n++
		}
		start(runs...)
	}
	if s.tails.young[k.ID] != nil || s.tails.old[k.ID] != nil {
		t.Fatal("it was not forgotten")
	}
	start(k.Run(r, 4))
	k.Check(t, s, 3)
	if err := commits[0].Wait(); err != nil {
		t.Fatal(err)
	}
	commits = commits[1:]
	k.Check(t, s, 5)
	wait()
	k.Check(t, s, 9)
	appendAndWait(t, s, k.Run(r, 1))
	k.Check(t, s, 10)
	if len(s.flight.tails) != 0 || s.flight.oldest != nil {
		t.Fatal("something is in flight for ever")
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for range 2 { // a store that is opened again has its metrics anew
		s := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem(), Registerer: reg})
		k := storagetest.Direct("alice", "bob")
		appendAndWait(t, s, k.Run(rand.New(rand.NewPCG(1, 1)), 7))
		if _, err := Open(Options{Dir: "other", FS: vfs.NewMem(), Registerer: reg}); err == nil {
			t.Fatal("two stores share a registerer")
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		for name, want := range map[string]float64{
			"parley_storage_messages_total": 7, "parley_storage_commit_seconds": 1, "parley_storage_free_bytes": -1, "parley_storage_stale_runs_total": 0,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v (%t), want %v", name, v, ok, want)
			}
		}
		if got["parley_storage_disk_bytes"] <= 0 || got["parley_storage_memtable_bytes"] <= 0 {
			t.Errorf("metrics %v", got)
		}
		mustClose(t, s)
	}
	if families, err := reg.Gather(); err != nil || len(families) != 0 {
		t.Fatalf("metrics of closed stores: %v, %v", families, err)
	}
}

// TestFailedWriteEndsTheProcess: after a write or fsync of the log failed nobody knows what the disk holds. The process must end before it
// tells anybody that something was stored.
func TestFailedWriteEndsTheProcess(t *testing.T) {
	for _, how := range []string{"write", "sync", "sync, by default"} {
		cmd := exec.Command(os.Args[0], "-test.run=none")
		cmd.Env = append(os.Environ(), failingChild+"="+how)
		out, err := cmd.CombinedOutput()
		status := fatalStatus
		if strings.Contains(how, "default") {
			status = 1
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != status || string(out) != "three are stored\n" {
			t.Errorf("%s: %v\n%s", how, err, out)
		}
	}
}

const (
	failingChild = "PARLEY_TEST_FAILING_STORE"
	fatalStatus  = 7
)

// failingStore is the process: its disk fails after three appends.
func failingStore(how string) {
	kind := errorfs.OpFileWrite
	if strings.HasPrefix(how, "sync") {
		kind = errorfs.OpFileSyncData
	}
	var broken atomic.Bool
	o := Options{Dir: "data", Fatal: func(error) { os.Exit(fatalStatus) }}
	if strings.Contains(how, "default") {
		o.Fatal = nil
	}
	o.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == kind && strings.HasSuffix(op.Path, ".log") {
			return syscall.EIO
		}
		return nil
	}))
	s, err := Open(o)
	if err != nil {
		panic(err)
	}
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	for i := range 4 {
		broken.Store(i == 3)
		c, err := s.Append(context.Background(), []*storage.Run{k.Run(r, 1)})
		if err == nil {
			err = c.Wait()
		}
		if err != nil {
			panic("the process goes on after " + err.Error())
		}
		if i == 2 {
			fmt.Println("three are stored")
		}
	}
	fmt.Println("and a fourth")
}
