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
	see(`\d\d:\d\d:\d\d bob: a message meanwhile`)
	see(`^alice> typed 一半$`)
	before, _, _ := strings.Cut(screen.text(), " bob: a message meanwhile")
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
