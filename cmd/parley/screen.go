package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// screen is where chat reads lines and shows others. print may be called from any goroutine while readLine waits; what is being
// typed stays whole.
type screen interface {
	readLine() (string, error) // io.EOF: there are no more
	print(line string)
	note(line string)  // what is no message
	interactive() bool // a person at a terminal, not a pipe
	close()
}

func openScreen(in, out, notes *os.File, prompt string) (screen, error) {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return newPipe(in, out, notes), nil
	}
	return newTerminal(in, out, prompt)
}

// pipe is plain lines in and out.
type pipe struct {
	in    *bufio.Scanner
	mu    sync.Mutex
	out   io.Writer
	notes io.Writer
}

const maxLine = 1 << 20

func newPipe(in io.Reader, out, notes io.Writer) *pipe {
	p := &pipe{in: bufio.NewScanner(in), out: out, notes: notes}
	p.in.Buffer(nil, maxLine)
	return p
}

func (p *pipe) readLine() (string, error) {
	if p.in.Scan() {
		return p.in.Text(), nil
	}
	if err := p.in.Err(); err != nil {
		return "", fmt.Errorf("reading lines: %w", err)
	}
	return "", io.EOF
}

func (p *pipe) print(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, line)
}

func (p *pipe) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.notes, "--", line)
}

func (p *pipe) interactive() bool { return false }
func (p *pipe) close()            {}

// terminal edits the line that is typed, and redraws it below whatever is printed meanwhile.
type terminal struct {
	*term.Terminal
	in, out *os.File
	before  *term.State
	resized chan os.Signal
	closed  sync.Once
}

func newTerminal(in, out *os.File, prompt string) (*terminal, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("the terminal: %w", err)
	}
	t := &terminal{in: in, out: out, before: before, resized: make(chan os.Signal, 1)}
	t.Terminal = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, columnZero{out}}, prompt)
	t.fit()
	signal.Notify(t.resized, syscall.SIGWINCH)
	go func() {
		for range t.resized {
			t.fit()
		}
	}()
	return t, nil
}

func (t *terminal) fit() {
	if width, height, err := term.GetSize(int(t.out.Fd())); err == nil {
		_ = t.SetSize(width, height) // a failed write is seen by the next one
	}
}

func (t *terminal) readLine() (string, error) {
	line, err := t.ReadLine()
	if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
		return "", io.EOF // Ctrl-D, Ctrl-C, or the terminal is gone
	}
	return line, nil
}

func (t *terminal) print(line string) { fmt.Fprintln(t.Terminal, line) }

func (t *terminal) note(line string) {
	fmt.Fprintf(t.Terminal, "%s-- %s%s\n", t.Escape.Cyan, line, t.Escape.Reset)
}

func (t *terminal) interactive() bool { return true }

func (t *terminal) close() {
	t.closed.Do(func() {
		signal.Stop(t.resized)
		close(t.resized)
		_ = term.Restore(int(t.in.Fd()), t.before) // fails only when the terminal is gone
		fmt.Fprintln(t.out)
	})
}

// columnZero corrects how the terminal library steps back over what is typed before it prints: it counts a column for each
// character, and Chinese ones take two, so half of the line would stay on the screen.
type columnZero struct{ io.Writer }

var stepBack = regexp.MustCompile(`^\x1b\[\d*D\x1b\[K`)

func (c columnZero) Write(p []byte) (int, error) {
	if at := stepBack.FindIndex(p); at != nil {
		line := append([]byte("\r\x1b[K"), p[at[1]:]...)
		if _, err := c.Writer.Write(line); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return c.Writer.Write(p)
}
