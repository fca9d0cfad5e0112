//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/bench"
)

// targetFlags say which server is meant, and how to sign in.
type targetFlags struct {
	addr       string
	http       string
	pid        int
	data       string
	secretFile string
	tokens     string
	parley     string
	serve      []string
	tempDir    string
	loops      int
	json       string
	progress   bool
}

func (t *targetFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.addr, "addr", "", "the server's address; empty: start one on a temporary folder")
	f.IntVar(&t.pid, "pid", 0, "the server's process, for its CPU and memory (with --addr, on this machine)")
	f.StringVar(&t.data, "data", "", "the server's data folder, for the secret that signs tokens (with --addr)")
	f.StringVar(&t.secretFile, "secret-file", "", "the file of that secret, instead of --data")
	f.StringVar(&t.tokens, "tokens", "", "a file of ready tokens, one a line, each of another user, instead of a secret")
	f.StringVar(&t.parley, "parley", "", "the server's binary, to start one; empty: beside this one, or in PATH")
	f.StringArrayVar(&t.serve, "serve-arg", nil, "one more argument for the server that is started, as in --serve-arg=--loops=2; may be repeated")
	f.StringVar(&t.tempDir, "temp-dir", "", "where its temporary folder is made: the disk that is measured; empty: the system's")
	t.registerOutput(cmd)
	f.BoolVar(&t.progress, "progress", false, "a line of progress each second on stderr, as there is on a terminal")
}

// registerOutput has the flags of commands that need no server.
func (t *targetFlags) registerOutput(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&t.loops, "loops", 0, "event loops of the harness; 0: one for two CPUs")
	f.StringVar(&t.json, "json", "", "also write the report as JSON to this file; '-': to stdout, instead of the text")
}

// check refuses flags that contradict each other.
func (t *targetFlags) check() error {
	keys := 0
	for _, s := range []string{t.data, t.secretFile, t.tokens} {
		if s != "" {
			keys++
		}
	}
	if t.addr == "" {
		if keys > 0 || t.pid != 0 || t.http != "" {
			return errors.New("--data, --secret-file, --tokens, --pid and --http are about a server that runs already: give its --addr")
		}
		return nil
	}
	if t.parley != "" || len(t.serve) > 0 || t.tempDir != "" {
		return errors.New("--parley, --serve-arg and --temp-dir are for a server that is started here: leave --addr away")
	}
	if keys != 1 {
		return errors.New("with --addr give one of --data, --secret-file or --tokens, to sign in with")
	}
	return nil
}

// target is a server to put load on.
type target struct {
	addr, http string
	pid        int
	tokens     *bench.Tokens
	stop       func() error
}

// open finds the server, or starts one. stop must be called.
func (t *targetFlags) open(ctx context.Context) (*target, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if _, err := bench.RaiseFileLimit(); err != nil {
		return nil, err
	}
	if t.addr == "" {
		return t.start(ctx)
	}
	tokens, err := t.openTokens()
	if err != nil {
		return nil, err
	}
	return &target{addr: t.addr, http: t.http, pid: t.pid, tokens: tokens, stop: func() error { return nil }}, nil
}

func (t *targetFlags) openTokens() (*bench.Tokens, error) {
	switch {
	case t.data != "":
		return bench.MintTokens(bench.SecretFile(t.data))
	case t.secretFile != "":
		return bench.MintTokens(t.secretFile)
	}
	f, err := os.Open(t.tokens)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return bench.ReadTokens(f)
}

func (t *targetFlags) start(ctx context.Context) (*target, error) {
	binary, err := t.binary()
	if err != nil {
		return nil, err
	}
	if bench.InMemory(cmp.Or(t.tempDir, os.TempDir())) {
		fmt.Fprintln(os.Stderr, "parley-bench: the temporary folder is in memory, so fsync costs nothing; --temp-dir DIR on a disk measures what users get")
	}
	s, err := bench.StartServer(ctx, bench.ServerOptions{Binary: binary, Args: t.serve, Parent: t.tempDir})
	if err != nil {
		return nil, err
	}
	tokens, err := bench.MintTokens(bench.SecretFile(s.DataDir))
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return &target{addr: s.Addr, http: s.HTTP, pid: s.PID, tokens: tokens, stop: s.Stop}, nil
}

func (t *targetFlags) binary() (string, error) {
	if t.parley != "" {
		return t.parley, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "parley")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	found, err := exec.LookPath("parley")
	if err != nil {
		return "", fmt.Errorf("no server to start: %w; name its binary with --parley, or a server that runs with --addr", err)
	}
	return found, nil
}
