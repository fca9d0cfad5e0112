//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/parley-im/parley/bench"
)

func newReport(scenario string) *bench.Report {
	return &bench.Report{Schema: bench.Schema, Scenario: scenario, Started: time.Now().UTC(), Machine: bench.ThisMachine()}
}

// show is where progress lines go: stderr when a person looks at it, or wants them.
func (t *targetFlags) show() io.Writer {
	if t.progress || isTerminal(os.Stderr) {
		return os.Stderr
	}
	return nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// write writes the report as the flags say.
func (t *targetFlags) write(out io.Writer, r *bench.Report) error {
	if t.json == "-" {
		return r.WriteJSON(out)
	}
	if err := r.WriteText(out); err != nil {
		return err
	}
	if t.json == "" {
		return nil
	}
	f, err := os.Create(t.json)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteJSON(f), f.Close())
}

// conclude writes the report, whatever it says, and returns what the run ends with. stopped is how the server ended.
func (t *targetFlags) conclude(out io.Writer, r *bench.Report, passed bool, stopped error) error {
	err := errors.Join(t.write(out, r), stopped)
	if err == nil && !passed {
		return errBroken
	}
	return err
}
