package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
)

const (
	seeded   = "p:alice:bob"
	seededMS = int64(1_767_225_600_000) // 2026-01-01
)

// run runs a command in this process and returns what it printed.
func run(args ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetIn(strings.NewReader(""))
	root.SetArgs(args)
	err = root.Execute()
	return out.String(), errOut.String(), err
}

// runs is run of a command that must succeed.
func runs(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, err := run(args...)
	if err != nil {
		t.Fatalf("parley %s: %v\n%s", strings.Join(args, " "), err, errOut)
	}
	return out
}

// onFolder opens the store in a folder for f.
func onFolder(t *testing.T, dir string, f func(store)) {
	t.Helper()
	s, err := embedded.Open(embedded.Options{Dir: dir, ReserveBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	f(s)
}

// message is what alice, or with an even seq bob, wrote.
func message(conversation string, seq uint64) *protocol.Message {
	_, a, b := protocol.ParseConversation(conversation)
	sender := a
	if seq%2 == 0 {
		sender = b
	}
	client := fmt.Sprintf("m%d", seq)
	return &protocol.Message{
		ConversationID: conversation, Seq: seq, ServerMsgID: protocol.NewMessageID(conversation, sender, client).String(), ClientMsgID: client,
		Sender: sender, ContentType: protocol.ContentText, Content: []byte(fmt.Sprintf("text %d", seq)), SendTimeMS: seededMS + int64(seq)*1000,
	}
}

// seed stores messages 1 to n of a direct conversation, each a second after the one before.
func seed(t *testing.T, s store, conversation string, n int) {
	t.Helper()
	_, a, b := protocol.ParseConversation(conversation)
	var counts storage.Counts
	for seq := uint64(1); seq <= uint64(n); seq++ {
		m := message(conversation, seq)
		run := &storage.Run{
			Conversation: conversation, First: seq, Messages: []*protocol.Message{m}, Wire: protocol.AppendBody(nil, m),
			LogTimeMS: m.SendTimeMS, Before: counts, ActiveMS: m.SendTimeMS, Members: []string{a, b},
		}
		counts[storage.Side(m.Sender, a)]++
		run.After = counts
		commit, err := s.Append(t.Context(), []*storage.Run{run})
		if err == nil {
			err = commit.Wait()
		}
		if err = errors.Join(err, run.Err); err != nil {
			t.Fatal(err)
		}
	}
}

// change stores a change of a message.
func change(t *testing.T, s store, conversation string, seq uint64, l storage.Labels) {
	t.Helper()
	last, err := s.ChangeSeq(t.Context(), conversation)
	if err != nil {
		t.Fatal(err)
	}
	c := &storage.Change{Conversation: conversation, Seq: seq, ChangeSeq: last + 1, TimeMS: seededMS + 100_000, Labels: l}
	if err := errors.Join(s.Apply(t.Context(), []*storage.Change{c}), c.Err); err != nil {
		t.Fatal(err)
	}
}

// seedAll makes a folder with a conversation that has everything: 8 messages, of which one is purged, one revoked, one edited, one reacted to
// and one deleted by bob.
func seedAll(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	onFolder(t, dir, func(s store) { seedInto(t, s, seeded) })
	return dir
}

func seedInto(t *testing.T, s store, conversation string) {
	t.Helper()
	_, a, b := protocol.ParseConversation(conversation)
	seed(t, s, conversation, 8)
	change(t, s, conversation, 2, storage.Labels{Revoke: &protocol.Revoke{User: b, Role: protocol.RoleSender, TimeMS: seededMS + 90_000}})
	change(t, s, conversation, 3, storage.Labels{Edit: &storage.Edit{ContentType: protocol.ContentText, Content: []byte("better text"), TimeMS: seededMS + 91_000}})
	change(t, s, conversation, 4, storage.Labels{Reactions: []storage.Reaction{{Kind: "👍", Count: 2, Users: []string{a, b}}}})
	if _, err := s.Purge(t.Context(), conversation, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.ApplyOwn(t.Context(), []*storage.Own{{User: b, Conversation: conversation, Hide: []uint64{5}}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.RaiseRead(t.Context(), b, conversation, 7, 4); err != nil {
		t.Fatal(err)
	}
}

func TestInspect(t *testing.T) {
	dir := seedAll(t)
	args := []string{"admin", "inspect", seeded, "1", "2", "3", "4", "5", "99", "--data", dir}
	golden(t, filepath.Join("testdata", "inspect.txt"), runs(t, args...))
	golden(t, filepath.Join("testdata", "inspect.json"), runs(t, append(args, "--json")...))
}

// The content of a message that was taken back is in no output.
func TestInspectHidesRevoked(t *testing.T) {
	dir := seedAll(t)
	for _, args := range [][]string{{}, {"--json"}} {
		out := runs(t, append([]string{"admin", "inspect", seeded, "2", "3", "--data", dir}, args...)...)
		if strings.Contains(out, "text 2") || !strings.Contains(out, "better text") {
			t.Errorf("%v prints\n%s", args, out)
		}
	}
	// Whatever a store hands over.
	careless := &fakeStore{inspection: &storage.Inspection{Slots: []storage.InspectedSlot{{Slot: storage.Slot{
		Message: protocol.Message{Seq: 1, ContentType: protocol.ContentText, Content: []byte("a secret"), Mentions: []string{"carol"}},
		Labels:  storage.Labels{Revoke: &protocol.Revoke{}, Edit: &storage.Edit{ContentType: 1, Content: []byte("another secret")}},
	}}}}}
	for _, asJSON := range []bool{false, true} {
		var out strings.Builder
		if err := inspect(t.Context(), careless, seeded, []uint64{1}, asJSON, &out); err != nil || strings.Contains(out.String(), "secret") || strings.Contains(out.String(), "carol") {
			t.Errorf("%v, and\n%s", err, out.String())
		}
	}
}

// fakeStore is a store that says what a test wants.
type fakeStore struct {
	store
	inspection *storage.Inspection
	faults     []storage.Fault
	verifyErr  error
	labels     storage.Labels // of every message
	changes    uint64
	stale      int // how many Applies are refused at first
	applied    []storage.Change
}

func (f *fakeStore) State(context.Context, string) (storage.State, error) {
	return storage.State{Tail: 10}, nil
}

func (f *fakeStore) Conversations(_ context.Context, after string, yield func(string) bool) error {
	if after == "" {
		yield(seeded)
	}
	return nil
}

func (f *fakeStore) Inspect(context.Context, string, []uint64) (*storage.Inspection, error) {
	return f.inspection, nil
}

func (f *fakeStore) Verify(_ context.Context, fault func(storage.Fault), progress func(storage.Verified)) (storage.Verified, error) {
	for _, one := range f.faults {
		fault(one)
	}
	v := storage.Verified{Conversations: 1, Messages: 10, Faults: uint64(len(f.faults))}
	progress(v)
	return v, f.verifyErr
}

func (f *fakeStore) ChangeSeq(context.Context, string) (uint64, error) { return f.changes, nil }

func (f *fakeStore) Slots(_ context.Context, conversation, _ string, seqs []uint64, yield func(*storage.Slot) bool) error {
	yield(&storage.Slot{Message: protocol.Message{ConversationID: conversation, Seq: seqs[0]}, Labels: f.labels})
	return nil
}

func (f *fakeStore) Apply(_ context.Context, changes []*storage.Change) error {
	c := changes[0]
	if f.stale > 0 {
		f.stale--
		f.changes++
		c.Err = storage.ErrStale
		return nil
	}
	f.applied = append(f.applied, *c)
	f.changes, f.labels = c.ChangeSeq, c.Labels
	f.labels.ChangeSeq = c.ChangeSeq
	return nil
}

func TestVerify(t *testing.T) {
	dir := seedAll(t)
	want := "1 conversations, 8 messages (1 of them gone), 8 buckets, 3 changes, 2 rows: 0 faults\n"
	if out := runs(t, "admin", "verify", "--data", dir); out != want {
		t.Errorf("a store without a fault: %q, want %q", out, want)
	}
	faulty := &fakeStore{faults: []storage.Fault{{Conversation: seeded, Seq: 3, What: "missing"}, {Conversation: seeded, What: "\x1b[2Jno row"}}}
	var lines, object strings.Builder
	for _, out := range []faultWriter{&faultLines{w: &lines}, &faultJSON{w: &object}} {
		if err := verify(t.Context(), faulty, out, io.Discard); err == nil || err.Error() != "2 faults in the store" {
			t.Errorf("a store with faults: %v", err)
		}
	}
	golden(t, filepath.Join("testdata", "verify.txt"), lines.String())
	golden(t, filepath.Join("testdata", "verify.json"), object.String())

	faulty.verifyErr = errors.New("the disk is gone")
	if err := verify(t.Context(), faulty, &faultLines{w: io.Discard}, io.Discard); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("a check that was cut off: %v", err)
	}
}

// statuses are what alice sees of each message.
func statuses(t *testing.T, s store, conversation string) string {
	t.Helper()
	text := ""
	err := s.Read(t.Context(), storage.Range{Conversation: conversation, Viewer: "alice", From: 1, To: 1 << 40}, func(slot *storage.Slot) bool {
		view := storage.Project(&slot.Message, &slot.Labels, storage.Viewer{User: "alice"})
		text += fmt.Sprint(view.Status)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPurge(t *testing.T) {
	dir := t.TempDir()
	onFolder(t, dir, func(s store) { seed(t, s, seeded, 10); seed(t, s, "p:alice:carol", 4) })
	see := func(want, wantOther string) {
		t.Helper()
		onFolder(t, dir, func(s store) {
			if got, other := statuses(t, s, seeded), statuses(t, s, "p:alice:carol"); got != want || other != wantOther {
				t.Errorf("the messages are %s and %s, want %s and %s", got, other, want, wantOther)
			}
		})
	}
	for _, c := range []struct {
		args   []string
		out    string
		states string
	}{
		{[]string{seeded, "3", "4"}, "2 messages purged\n", "0022000000"},
		{[]string{seeded, "3", "5"}, "1 messages purged\n", "0022200000"},
		{[]string{seeded, "9", "999999999999"}, "2 messages purged\n", "0022200022"},
		{[]string{seeded, "9", "10", "--compact"}, "0 messages purged\n", "0022200022"},
	} {
		if out := runs(t, append([]string{"admin", "purge", "--yes", "--data", dir}, c.args...)...); out != c.out {
			t.Errorf("%v prints %q", c.args, out)
		}
		see(c.states, "0000")
	}
	onFolder(t, dir, func(s store) { seed(t, s, "p:bob:carol", 1) })
	// Messages 1 and 2 are from before 00:00:03; of the other conversations, too.
	var out strings.Builder
	onFolder(t, dir, func(s store) {
		if err := purgeBefore(t.Context(), s, time.UnixMilli(seededMS+3000), &out, io.Discard); err != nil {
			t.Fatal(err)
		}
	})
	if want := "5 messages purged, in 3 conversations looked at\n"; out.String() != want {
		t.Errorf("by age: %q, want %q", out.String(), want)
	}
	see("2222200022", "2200")
	if out := runs(t, "admin", "purge", "--yes", "--older-than", "2026-01-01", "--data", dir); out != "0 messages purged, in 3 conversations looked at\n" {
		t.Errorf("by a date: %q", out)
	}
	if out := runs(t, "admin", "purge", "--yes", "--older-than", "1h", "--data", dir); out != "5 messages purged, in 3 conversations looked at\n" {
		t.Errorf("by an age that all have: %q", out)
	}
	see("2222222222", "2222")
	if out := runs(t, "admin", "verify", "--data", dir); !strings.Contains(out, "15 messages (15 of them gone)") {
		t.Errorf("afterwards: %q", out)
	}
}

// A purge in steps stops between two of them, and goes on.
func TestPurgeInterrupted(t *testing.T) {
	const n = 2*purgeStep + 500
	s := &stepStore{}
	ctx, cancel := context.WithCancel(t.Context())
	got, err := purge(ctx, s, seeded, 1, n, func(seq uint64) error {
		if seq == 2*purgeStep {
			cancel()
		}
		return nil
	})
	if got != 2*purgeStep || !errors.Is(err, context.Canceled) {
		t.Errorf("%d purged, %v", got, err)
	}
	if got, err := purge(t.Context(), s, seeded, 1, n, func(uint64) error { return nil }); got != 500 || err != nil {
		t.Errorf("the second time %d purged, %v", got, err)
	}
}

// stepStore counts what it purges.
type stepStore struct {
	storage.Operator
	upTo uint64
}

func (s *stepStore) Purge(_ context.Context, _ string, from, to uint64) (uint64, error) {
	if to-from >= purgeStep {
		return 0, fmt.Errorf("a step of %d", to-from+1)
	}
	n := max(to, s.upTo) - max(from-1, s.upTo)
	s.upTo = max(to, s.upTo)
	return n, nil
}

func TestRevoke(t *testing.T) {
	dir := seedAll(t)
	for _, want := range []string{"is taken back; it is change 4 of the conversation", "was taken back before"} {
		if out := runs(t, "admin", "revoke", seeded, "3", "--data", dir); !strings.Contains(out, want) {
			t.Errorf("it prints %q, want %q", out, want)
		}
	}
	onFolder(t, dir, func(s store) {
		if got := statuses(t, s, seeded); got != "21100000" {
			t.Errorf("the messages are %s", got)
		}
		var notes []storage.Note
		err := s.Notes(t.Context(), seeded, 3, func(n storage.Note) bool { notes = append(notes, n); return true })
		if err != nil || len(notes) != 1 || notes[0].Seq != 3 || notes[0].ChangeSeq != 4 {
			t.Errorf("the notes are %+v, %v", notes, err)
		}
	})
}

// Against others who change the conversation, and over a label whose note was lost in a crash.
func TestRevokeTries(t *testing.T) {
	at := time.UnixMilli(seededMS)
	s := &fakeStore{changes: 5, stale: 3}
	if err := revoke(t.Context(), s, seeded, 7, at, io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(s.applied) != 1 || s.applied[0].ChangeSeq != 9 || s.applied[0].Labels.Revoke.Role != protocol.RoleOperator {
		t.Errorf("applied %+v", s.applied)
	}
	edit := &storage.Edit{ContentType: 1, Content: []byte("x")}
	s = &fakeStore{changes: 5, labels: storage.Labels{ChangeSeq: 6, Edit: edit}}
	if err := revoke(t.Context(), s, seeded, 7, at, io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(s.applied) != 2 || s.applied[0].ChangeSeq != 6 || s.applied[0].Labels.Edit != edit || s.applied[1].ChangeSeq != 7 || s.applied[1].Labels.Revoke == nil {
		t.Errorf("over half a change, applied %+v", s.applied)
	}
	s = &fakeStore{stale: 1 << 30}
	if err := revoke(t.Context(), s, seeded, 7, at, io.Discard); err == nil {
		t.Error("it never gives up")
	}
}

// What is wrong is said in one line, and nothing is made or changed.
func TestAdminRefused(t *testing.T) {
	dir := seedAll(t)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	tests := []struct {
		args string
		want string
	}{
		{"inspect", "at least 1 arg"},
		{"inspect alice", "is no conversation"},
		{"inspect p:bob:alice", "in byte order"},
		{"inspect p:alice:zoe", "there is no conversation p:alice:zoe"},
		{"inspect p:alice:bob 0", "begin at 1"},
		{"inspect p:alice:bob -1", "flag"},
		{"inspect p:alice:bob x", "no number"},
		{"inspect p:alice:bob " + strings.Repeat("1 ", 201), "at most 200"},
		{"verify now", "unknown command"},
		{"purge", "purge what?"},
		{"purge p:alice:bob", "first and last number"},
		{"purge p:alice:bob 1 8", "--yes"},
		{"purge p:alice:bob 0 8 --yes", "begin at 1"},
		{"purge p:alice:bob 8 1 --yes", "above the last"},
		{"purge p:alice:bob 9 10 --yes", "its newest is 8"},
		{"purge p:alice:zoe 1 1 --yes", "there is no conversation"},
		{"purge p:alice:bob 1 1 --older-than 1h --yes", "give it alone"},
		{"purge --older-than 0d --yes", "give an age"},
		{"purge --older-than yesterday --yes", "give an age"},
		{"purge --older-than 1h", "--yes"},
		{"revoke p:alice:bob", "accepts 2 arg"},
		{"revoke p:alice:bob 0", "begin at 1"},
		{"revoke p:alice:bob 9", "its newest is 8"},
		{"revoke p:alice:bob 1", "was purged"},
		{"revoke u:alice 1", "own stream"},
		{"rebucket p:alice:bob", "size"},
		{"rebucket --size 0", "give 1 to"},
		{"rebucket --size 50", "a folder has no buckets"},
		{"rebucket --size 50 alice", "is no conversation"},
	}
	for _, tt := range tests {
		t.Run(tt.args[:min(len(tt.args), 60)], func(t *testing.T) {
			out, _, err := run(append(append([]string{"admin"}, strings.Fields(tt.args)...), "--data", dir)...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Count(err.Error(), "\n") > 1 {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if out != "" {
				t.Errorf("it prints %q all the same", out)
			}
		})
	}
	if _, _, err := run("admin", "frobnicate"); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("a command that is not there: %v", err)
	}
	for _, args := range []string{"inspect p:alice:bob", "verify", "purge --older-than 1h --yes", "revoke p:alice:bob 1"} {
		_, _, err := run(append(append([]string{"admin"}, strings.Fields(args)...), "--data", nowhere)...)
		if err == nil || !strings.Contains(err.Error(), "there is no store in "+nowhere) {
			t.Errorf("%s on a folder that is not there: %v", args, err)
		}
	}
	if _, err := os.Stat(nowhere); err == nil {
		t.Error("the folder was made all the same")
	}
	onFolder(t, dir, func(s store) {
		if got := statuses(t, s, seeded); got != "21000000" {
			t.Errorf("the messages are now %s", got)
		}
	})
}

func TestAdminFolderInUse(t *testing.T) {
	dir := t.TempDir()
	startServing(t, dir, "127.0.0.1:0")
	for _, args := range []string{"inspect p:alice:bob", "verify", "purge --older-than 1h --yes", "revoke p:alice:bob 1"} {
		_, _, err := run(append(append([]string{"admin"}, strings.Fields(args)...), "--data", dir)...)
		if err == nil || !strings.Contains(err.Error(), "is in use") || !strings.Contains(err.Error(), "stop the server") {
			t.Errorf("%s while a server uses the folder: %v", args, err)
		}
	}
}

// A person at a terminal is asked; only yes is yes.
func TestPurgeAsks(t *testing.T) {
	dir := seedAll(t)
	for answer, code := range map[string]int{"yes": 0, "y": 1, "": 1, "no": 1} {
		master, slave := openTerminal(t)
		cmd := command("admin", "purge", seeded, "7", "8", "--data", dir)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		p := startCommand(t, cmd)
		screen := newTranscript()
		go func() {
			io.Copy(screen, master)
			screen.end()
		}()
		if _, err := screen.find(regexp.MustCompile("Type yes to go on: ")); err != nil {
			t.Fatalf("%v; the screen got %q", err, screen.text())
		}
		fmt.Fprintf(master, "%s\n", answer)
		if got := p.exit(t); got != code {
			t.Errorf("after %q it exits with %d, want %d:\n%s", answer, got, code, screen.text())
		}
	}
	onFolder(t, dir, func(s store) {
		if got := statuses(t, s, seeded); got != "21000022" {
			t.Errorf("the messages are now %s", got)
		}
	})
}
