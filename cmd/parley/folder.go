package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// serverName is the file in the data folder that names the server towards its database, and is locked while it runs: a folder has one server.
const serverName = "server"

// lockFolder takes the folder for this process and returns its name, which is made with the first call. close lets go of it, and so does the
// end of the process.
func lockFolder(dir string) (name string, lock io.Closer, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("making the data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, serverName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("the data folder: %w", err)
	}
	if name, err = lockName(dir, f); err != nil {
		return "", nil, errors.Join(err, f.Close())
	}
	return name, f, nil
}

func lockName(dir string, f *os.File) (string, error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return "", fmt.Errorf("the data folder %s is in use: %w: stop the server that uses it, or choose another folder", dir, err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return "", err
	}
	if name := strings.TrimSpace(string(text)); name != "" {
		return name, nil
	}
	name := rand.Text()
	_, err = fmt.Fprintln(f, name)
	return name, errors.Join(err, f.Sync(), syncDir(dir))
}
