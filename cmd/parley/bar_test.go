package main

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Where there is no terminal a line comes now and then.
func TestBarLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		b := newBar(&out, "messages", 100)
		b.set(1)
		time.Sleep(barLines)
		b.set(40)
		b.set(41)
		b.resize("conversations", 7)
		time.Sleep(barLines)
		b.set(3)
		b.clear()
		if want := "messages: 40 of 100\nconversations: 3 of 7\n"; out.String() != want {
			t.Errorf("it prints %q, want %q", out.String(), want)
		}
	})
}

// On a terminal a bar is drawn.
func TestBarOnTerminal(t *testing.T) {
	master, slave := openTerminal(t)
	screen := newTranscript()
	go func() {
		io.Copy(screen, master)
		screen.end()
	}()
	b := newBar(slave, "messages", 100)
	b.set(40)
	if _, err := screen.find(regexp.MustCompile(`messages +40% .*\(40/100`)); err != nil {
		t.Errorf("%v; the screen got %q", err, screen.text())
	}
	b.clear()
}
