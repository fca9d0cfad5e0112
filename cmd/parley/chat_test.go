package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

// chatting starts a chat through pipes and waits until it is connected.
func chatting(t *testing.T, srv *serving, dir, as, to string, flags ...string) *process {
	t.Helper()
	p := startProcess(t, append([]string{"chat", "--as", as, "--to", to, "--addr", srv.addr, "--data", dir}, flags...)...)
	p.waitFor(t, regexp.MustCompile("^-- connected to "))
	return p
}

// shows waits for a line of a message.
func (p *process) shows(t *testing.T, sender, text string) {
	t.Helper()
	p.waitFor(t, regexp.MustCompile(`^\d\d:\d\d:\d\d `+regexp.QuoteMeta(sender+": "+text)+`$`))
}

// leave ends its input and expects a good end.
func (p *process) leave(t *testing.T) {
	t.Helper()
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Two people chat, and a third device, of the first, sees it all.
func TestChat(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0")
	alice, bob := chatting(t, srv, dir, "alice", "bob"), chatting(t, srv, dir, "bob", "alice")
	alice.typeLine(t, "hello bob")
	alice.shows(t, "alice", "hello bob")
	bob.shows(t, "alice", "hello bob")
	bob.typeLine(t, "hello alice, 你好")
	alice.shows(t, "bob", "hello alice, 你好")

	third := chatting(t, srv, dir, "alice", "bob")
	third.shows(t, "alice", "hello bob")
	third.shows(t, "bob", "hello alice, 你好")
	third.typeLine(t, "from my other device")
	for _, p := range []*process{alice, bob, third} {
		p.shows(t, "alice", "from my other device")
	}
	alice.typeLine(t, "from the first again")
	for _, p := range []*process{alice, bob, third} {
		p.shows(t, "alice", "from the first again")
	}
	for _, p := range []*process{alice, bob, third} {
		p.leave(t)
		if n := strings.Count(p.output.text(), "hello bob"); n != 1 {
			t.Errorf("the first message was shown %d times", n)
		}
	}
	w := mustDial(t, srv.addr, tokens(t, dir, "bob")[0], "phone")
	var list protocol.GetConversationsReply
	if err := w.ask(protocol.CmdGetConversation, &protocol.GetConversations{ConversationIDs: []string{"p:alice:bob"}}, &list); err != nil {
		t.Fatal(err)
	}
	if c := list.Conversations[0]; c.MaxSeq != 4 || c.ReadSeq != 4 || c.Unread != 0 {
		t.Errorf("bob has %+v; want 4 messages, all read", c)
	}
}

// A chat with no terminal and no more input ends when all is acked and shown.
func TestChatThroughPipes(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0")
	const lines = 700 // more than may wait for their acks
	var input, want strings.Builder
	for i := range lines {
		fmt.Fprintf(&input, "line %d\n", i)
		if i >= lines-5 {
			fmt.Fprintf(&want, "alice: line %d\n", i)
		}
	}
	times := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d `)
	run := func(input string, flags ...string) string {
		cmd := command(append([]string{"chat", "--addr", srv.addr, "--data", dir}, flags...)...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("chat %v: %v", flags, err)
		}
		return times.ReplaceAllString(string(out), "")
	}
	if out := run(input.String(), "--as", "alice", "--to", "bob", "--history", "0"); strings.Count(out, "\n") != lines || !strings.HasSuffix(out, want.String()) {
		t.Errorf("the sender was shown %d lines, at the end %.200q", strings.Count(out, "\n"), out[max(0, len(out)-200):])
	}
	if out := run("", "--as", "bob", "--to", "alice", "--history", "5"); out != want.String() {
		t.Errorf("the newest 5 are %q, want %q", out, want.String())
	}
	if out := run("", "--as", "bob", "--to", "alice", "--history", "0"); out != "" {
		t.Errorf("with no history it shows %q", out)
	}
	if out := run("a note\n", "--as", "carol", "--to", "carol"); out != "carol: a note\n" {
		t.Errorf("a note to oneself: %q", out)
	}
}

// The server is killed and comes back: chat connects again by itself, what was typed meanwhile arrives, once, and all of it is there.
func TestChatOverRestart(t *testing.T) {
	dir, addr := t.TempDir(), freePort(t)
	srv := startServing(t, dir, addr)
	alice := chatting(t, srv, dir, "alice", "bob")
	alice.typeLine(t, "before")
	alice.shows(t, "alice", "before")
	srv.kill(t)
	alice.waitFor(t, regexp.MustCompile("^-- no connection to "))
	alice.typeLine(t, "meanwhile")
	srv = startServing(t, dir, addr)
	alice.shows(t, "alice", "meanwhile")
	alice.leave(t)
	bob := chatting(t, srv, dir, "bob", "alice")
	bob.leave(t)
	text := bob.output.text()
	if strings.Count(text, "before\n") != 1 || strings.Count(text, "meanwhile\n") != 1 {
		t.Errorf("bob was shown\n%s", text)
	}
}

// Ended by a signal while something is not acknowledged, it says so.
func TestChatEndsUnacknowledged(t *testing.T) {
	dir, addr := t.TempDir(), freePort(t)
	srv := startServing(t, dir, addr)
	alice := chatting(t, srv, dir, "alice", "bob")
	srv.kill(t)
	alice.waitFor(t, regexp.MustCompile("^-- no connection to "))
	alice.typeLine(t, "to nobody")
	alice.stdin.Close()
	alice.waitFor(t, regexp.MustCompile("^-- waiting for the server"))
	if code := alice.stop(t); code != 1 || !strings.Contains(alice.output.text(), "parley: not acknowledged, and perhaps not sent: 1 of the lines") {
		t.Errorf("exit code %d, and\n%s", code, alice.output.text())
	}
}

func TestChatTokens(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0")
	keys := tokens(t, dir, "alice", "bob")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(keys[0]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		env   string
		flags []string
		code  int
		want  string
	}{
		{"from the environment", envToken + "=" + keys[0], nil, 0, "connected"},
		{"from a file", "", []string{"--token-file", file}, 0, "connected"},
		{"the file wins", envToken + "=" + keys[1], []string{"--token-file", file}, 0, "connected"},
		{"signed here", "", []string{"--data", dir}, 0, "connected"},
		{"of another user", envToken + "=" + keys[1], nil, 1, "parley: the token is another user's, not alice's\n"},
		{"rubbish", envToken + "=rubbish", nil, 1, "does not let alice in"},
		{"none", "", nil, 1, "parley serve"},
		{"no such file", "", []string{"--token-file", file + "x"}, 1, "--token-file"},
		{"no such platform", "", []string{"--data", dir, "--platform", "phone"}, 1, "android"},
		{"no user id", "", []string{"--data", dir, "--as", "a:b"}, 1, "no user id"},
		{"no host and port", "", []string{"--data", dir, "--addr", "localhost"}, 1, "host:port"},
		{"TLS and not", "", []string{"--data", dir, "--tls", "--plaintext"}, 1, "plaintext"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := command(append([]string{"chat", "--as", "alice", "--to", "bob", "--addr", srv.addr, "--data", t.TempDir()}, tt.flags...)...)
			if tt.env != "" {
				cmd.Env = append(cmd.Env, tt.env)
			}
			p := startCommand(t, cmd)
			p.stdin.Close()
			if code := p.exit(t); code != tt.code || !strings.Contains(p.output.text(), tt.want) {
				t.Errorf("exit code %d, want %d; want %q in\n%s", code, tt.code, tt.want, p.output.text())
			}
			for _, key := range keys {
				if strings.Contains(p.output.text(), key) {
					t.Error("it prints the token")
				}
			}
		})
	}
}

func TestChatClear(t *testing.T) {
	for _, tt := range []struct {
		s    chatSettings
		want bool
	}{
		{chatSettings{addr: "127.0.0.1:7000"}, true}, {chatSettings{addr: "[::1]:7000"}, true}, {chatSettings{addr: "localhost:7000"}, true},
		{chatSettings{addr: "chat.example.org:7000"}, false}, {chatSettings{addr: "10.0.0.1:7000"}, false},
		{chatSettings{addr: "127.0.0.1:7000", tls: true}, false}, {chatSettings{addr: "10.0.0.1:7000", plaintext: true}, true},
	} {
		if got := tt.s.clear(); got != tt.want {
			t.Errorf("%+v: clear TCP is %t", tt.s, got)
		}
	}
}

func TestLine(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	at := now.Add(-time.Hour).UnixMilli()
	tests := []struct {
		m    protocol.Message
		want string
	}{
		{protocol.Message{Sender: "bob", ContentType: 1, Content: []byte("hello"), SendTimeMS: at}, "11:00:00 bob: hello"},
		{protocol.Message{Sender: "bob", ContentType: 1, Content: []byte("old"), SendTimeMS: now.AddDate(0, 0, -1).UnixMilli()}, "2026-03-03 12:00:00 bob: old"},
		{protocol.Message{Sender: "bob", ContentType: 1, Content: []byte("two\nlines\r\n"), SendTimeMS: at}, "11:00:00 bob: two lines "},
		{protocol.Message{Sender: "bob", ContentType: 1, Content: []byte("\x1b[2J\x07"), SendTimeMS: at}, "11:00:00 bob: \ufffd[2J\ufffd"},
		{protocol.Message{Sender: "bob", ContentType: 1, Content: []byte("a\u202eb\u2066c"), SendTimeMS: at}, "11:00:00 bob: abc"},
		{protocol.Message{Sender: "bob", ContentType: 1, Content: []byte("\xff"), SendTimeMS: at}, "11:00:00 bob: \ufffd"},
		{protocol.Message{Sender: "bob", ContentType: 2, Content: []byte("123"), SendTimeMS: at}, "11:00:00 bob: [content of type 2, 3 bytes]"},
		{protocol.Message{Sender: "bob", ContentType: 1, Status: protocol.StatusRevoked, SendTimeMS: at}, "11:00:00 bob: [taken back]"},
	}
	for _, tt := range tests {
		if got := line(&tt.m, false, now); got != tt.want {
			t.Errorf("%+v is shown as %q, want %q", tt.m, got, tt.want)
		}
	}
	changed := protocol.Message{Seq: 7, Sender: "bob", ContentType: 1, Content: []byte("new"), SendTimeMS: at, EditMS: 1,
		Reactions: []protocol.Reaction{{Reaction: "👍", Count: 2}, {Reaction: "\x1b", Count: 1}}}
	if got, want := line(&changed, true, now), "11:00:00 #7 bob: new [edited] [👍 2] [\ufffd 1]"; got != want {
		t.Errorf("a changed message is shown as %q, want %q", got, want)
	}
}

func TestParseOrder(t *testing.T) {
	for text, want := range map[string]order{
		"/revoke 7":          {verb: "revoke", seq: 7},
		"/revoke #7":         {verb: "revoke", seq: 7},
		"/edit 7  new  text": {verb: "edit", seq: 7, text: "new  text"},
		"/react 1 👍":         {verb: "react", seq: 1, text: "👍"},
		"/unreact 1 👍":       {verb: "unreact", seq: 1, text: "👍"},
		"/delete 12":         {verb: "delete", seq: 12},
		"/clear":             {verb: "clear"},
		"/help":              {verb: "help"},
	} {
		if got, err := parseOrder(text); got != want || err != nil {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"/": "no such command", "/revok 7": "no such command", "/revoke": "wants the number", "/revoke 0": "wants the number",
		"/revoke x": "wants the number", "/revoke -1": "wants the number", "/revoke 7 please": "nothing more", "/edit 7": "something after",
		"/react 7 ": "something after", "/clear 7": "stands alone", "/clear all": "stands alone",
	} {
		if got, err := parseOrder(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %+v, %v; want %q", text, got, err, want)
		}
	}
}
