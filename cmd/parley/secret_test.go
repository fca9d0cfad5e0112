package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestSecretIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	first, err := openSecret(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != secretBytes || bytes.Equal(first, make([]byte, secretBytes)) {
		t.Errorf("the key is %x", first)
	}
	again, err := openSecret(dir)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("opened again: %x, %v, want %x", again, err, first)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, secretName): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the folder holds %v, %v; want the secret alone", files, err)
	}
}

// Processes that start at the same moment use the same secret.
func TestSecretMadeAtTheSameMoment(t *testing.T) {
	dir := t.TempDir()
	keys := make([][]byte, 16)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			var err error
			if keys[i], err = openSecret(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		if !bytes.Equal(key, keys[0]) {
			t.Fatalf("two secrets: %x and %x", key, keys[0])
		}
	}
}

func TestSecretRefused(t *testing.T) {
	good := strings.Repeat("0f", secretBytes) + "\n"
	tests := []struct {
		name, text string
		mode       os.FileMode
		want       string
	}{
		{"group may read", good, 0o640, "chmod 600"},
		{"all may read", good, 0o604, "chmod 600"},
		{"group may write", good, 0o620, "chmod 600"},
		{"empty", "", 0o600, "restore it"},
		{"short", "0f0f\n", 0o600, "restore it"},
		{"not hex", strings.Repeat("zz", secretBytes), 0o600, "restore it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, secretName)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			_, err := openSecret(dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v does not say %q and the file", err, tt.want)
			}
			if err != nil && len(tt.text) > 8 && strings.Contains(err.Error(), tt.text[:8]) {
				t.Error("the error shows the secret")
			}
		})
	}
}
