package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The secret signs and checks tokens (HS256). It is the key's bytes in hex, and a newline.
const (
	secretName  = "secret"
	secretBytes = 32
)

// openSecret reads the folder's secret, and makes it, and the folder, when they are not there.
func openSecret(dir string) ([]byte, error) {
	path := filepath.Join(dir, secretName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	key, err := readSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := makeSecret(dir, path); err != nil {
		return nil, fmt.Errorf("making the secret: %w", err)
	}
	return readSecret(path)
}

func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, so others on this machine can make tokens for anybody; run: chmod 600 %s", path, mode, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) < secretBytes {
		return nil, fmt.Errorf("%s is not a secret: it wants at least %d hex digits; restore it, or remove it to have a new one made (every token becomes invalid)",
			path, 2*secretBytes)
	}
	return key, nil
}

// makeSecret writes a new secret under another name and links it into place, so that nobody ever reads half of one and of two
// processes that start at the same moment both use the first. It is on the disk when this returns.
func makeSecret(dir, path string) error {
	var key [secretBytes]byte
	rand.Read(key[:]) // never fails
	f, err := os.CreateTemp(dir, secretName+".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // what stays behind is only in the way
	_, err = fmt.Fprintln(f, hex.EncodeToString(key[:]))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
