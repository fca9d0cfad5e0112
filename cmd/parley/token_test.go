package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-im/parley/conn"
)

func runToken(args ...string) ([]string, error) {
	root := newRoot()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs(append([]string{"token"}, args...))
	err := root.Execute()
	return strings.Fields(out.String()), err
}

func verifier(t *testing.T, dir, audience string) *conn.Verifier {
	t.Helper()
	secret, err := openSecret(dir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := conn.NewVerifier(conn.VerifierOptions{Secret: secret, Audience: audience})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestToken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	users := []string{"alice", "bob@example.org", "alice"}
	lines, err := runToken(append([]string{"--data", dir, "--ttl", "1h"}, users...)...)
	if err != nil || len(lines) != len(users) {
		t.Fatalf("%q, %v", lines, err)
	}
	v := verifier(t, dir, "")
	for i, line := range lines {
		user, expires, err := v.Verify(line, "any device")
		if err != nil || user != users[i] {
			t.Errorf("token %d is for %q, %v, want %q", i, user, err, users[i])
		}
		if left := time.Until(expires); left < 59*time.Minute || left > time.Hour {
			t.Errorf("token %d is good for %v", i, left)
		}
	}
}

func TestTokenClaims(t *testing.T) {
	dir := t.TempDir()
	lines, err := runToken("--data", dir, "--device", "phone", "--audience", "chat", "alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := verifier(t, dir, "chat").Verify(lines[0], "phone"); err != nil {
		t.Error(err)
	}
	if _, _, err := verifier(t, dir, "chat").Verify(lines[0], "tablet"); err == nil {
		t.Error("good for another device")
	}
	if _, _, err := verifier(t, dir, "mail").Verify(lines[0], "phone"); err == nil {
		t.Error("good for another audience")
	}
}

// A wrong id anywhere: no token is printed, and no folder made.
func TestTokenRefused(t *testing.T) {
	for _, args := range [][]string{
		{}, {"alice", "bob:carol"}, {""}, {strings.Repeat("a", 65)}, {"a b"}, {"--ttl", "0s", "alice"}, {"--ttl", "-1h", "alice"},
		{"--device", strings.Repeat("d", 129), "alice"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		lines, err := runToken(append([]string{"--data", dir}, args...)...)
		if err == nil || len(lines) > 0 {
			t.Errorf("%q: %q, %v", args, lines, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: the data folder was made all the same", args)
		}
	}
}
