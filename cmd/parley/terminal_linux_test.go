package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal: what a person types goes into master, what they see comes out of it.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// A message that comes while a line is being typed, Chinese too, stands above it; the line is whole on the screen and when it is sent.
func TestChatInTerminal(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0")
	master, slave := openTerminal(t)
	cmd := command("chat", "--as", "alice", "--to", "bob", "--addr", srv.addr, "--data", dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	alice := startCommand(t, cmd)
	screen := newTranscript()
	go func() {
		io.Copy(screen, master)
		screen.end()
	}()
	see := func(pattern string) {
		t.Helper()
		if _, err := screen.find(regexp.MustCompile(pattern)); err != nil {
			t.Fatalf("%v; the screen got %q", err, screen.text())
		}
	}
	see("connected to")
	fmt.Fprint(master, "typed 一半")
	see("typed 一半$")

	bob := chatting(t, srv, dir, "bob", "alice")
	bob.typeLine(t, "a message meanwhile")
	// Back to column 0, the line is cleared, the message, and then the prompt and the line again.
	see(`\d\d:\d\d:\d\d #1 bob: a message meanwhile`)
	see(`^alice> typed 一半$`)
	before, _, _ := strings.Cut(screen.text(), " #1 bob: a message meanwhile")
	if cleared := before[:len(before)-len("12:34:56")]; !strings.HasSuffix(cleared, "\r\x1b[K") {
		t.Errorf("the line was not cleared before the message: %q", cleared)
	}
	fmt.Fprint(master, " and then whole\r")
	bob.shows(t, "alice", "typed 一半 and then whole")
	see("bob has read it")

	fmt.Fprint(master, "\x04") // Ctrl-D
	if code := alice.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	bob.leave(t)
}

// What a person at a terminal can do to messages, and how both sides and the person's other device see it.
func TestChatCommands(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0")
	master, slave := openTerminal(t)
	cmd := command("chat", "--as", "alice", "--to", "bob", "--addr", srv.addr, "--data", dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	alice := startCommand(t, cmd)
	screen := newTranscript()
	go func() {
		io.Copy(screen, master)
		screen.end()
	}()
	see := func(pattern string) {
		t.Helper()
		if _, err := screen.find(regexp.MustCompile(pattern)); err != nil {
			t.Fatalf("%v; the screen got %q", err, screen.text())
		}
	}
	types := func(line string) { fmt.Fprint(master, line+"\r") }
	see("connected to")
	bob := chatting(t, srv, dir, "bob", "alice")
	other := chatting(t, srv, dir, "alice", "bob")
	told := func(pattern string) {
		t.Helper()
		bob.waitFor(t, regexp.MustCompile(pattern))
		other.waitFor(t, regexp.MustCompile(pattern))
	}
	types("first")
	see(`-- #1`)
	types("second")
	see(`-- #2`)
	bob.typeLine(t, "/third is no command through a pipe")
	see(`#3 bob: /third is no command`)

	types("/edit 1 first, but better")
	see(`-- now \d\d:\d\d:\d\d #1 alice: first, but better \[edited\]`)
	told(`^-- now .* alice: first, but better \[edited\]$`)
	types("/react 3 👍")
	see(`-- now .* #3 bob: /third is no command through a pipe \[👍 1\]`)
	told(`\[👍 1\]$`)
	types("/unreact 3 👍")
	see(`-- now .* #3 bob: /third is no command through a pipe\x1b`)
	types("/revoke 2")
	see(`-- #2 was taken back by alice`)
	told(`^-- #2 was taken back by alice$`)
	types("/delete 3")
	see(`-- #3 deleted, for you alone`)
	other.waitFor(t, regexp.MustCompile(`^-- #3 deleted, for you alone$`))

	types("/revoke 3")
	see(`-- not done: `)
	types("/frobnicate")
	see(`-- there is no such command; /help lists them`)
	types("/help")
	see(`-- /revoke N takes your message back`)
	types("//slash")
	bob.shows(t, "alice", "/slash")
	see(`-- #4`)
	types("/clear")
	see(`-- everything up to #4 deleted, for you alone`)
	other.waitFor(t, regexp.MustCompile(`^-- everything up to #4 deleted, for you alone$`))

	fmt.Fprint(master, "\x04") // Ctrl-D
	if code := alice.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	bob.leave(t)
	other.leave(t)
	if strings.Contains(bob.output.text(), "deleted, for you alone") {
		t.Errorf("bob learns what alice deleted:\n%s", bob.output.text())
	}
	// Another device sees it as it is now.
	fresh := chatting(t, srv, dir, "bob", "alice")
	fresh.shows(t, "alice", "first, but better [edited]")
	fresh.shows(t, "alice", "[taken back]")
	fresh.leave(t)
}
