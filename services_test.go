package parley_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// services runs .ci/services with these variables and no other address of a server.
func services(t *testing.T, variables []string, arguments ...string) (output string, exit int) {
	t.Helper()
	if _, err := os.ReadFile(".ci/services"); err != nil { // so that go test runs this again when the script changed
		t.Fatal(err)
	}
	cmd := exec.Command(".ci/services", arguments...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PARLEY_TEST_MONGO=") })
	cmd.Env = append(cmd.Env, variables...)
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// A server of the user's own is used, and nothing is started in its place; what the command says and returns is what run says and returns.
func TestServicesOfTheUser(t *testing.T) {
	own := []string{"PARLEY_TEST_MONGO=mongodb://own", "XDG_CACHE_HOME=" + t.TempDir()}
	if out, exit := services(t, own, "run", "sh", "-c", "echo at $PARLEY_TEST_MONGO; exit 7"); out != "at mongodb://own\n" || exit != 7 {
		t.Errorf("%q, exit %d", out, exit)
	}
	if out, exit := services(t, own, "up"); exit != 0 || !strings.Contains(out, "PARLEY_TEST_MONGO is set") {
		t.Errorf("%q, exit %d", out, exit)
	}
	if out, exit := services(t, nil, "upp"); exit == 0 || !strings.Contains(out, "usage") {
		t.Errorf("%q, exit %d", out, exit)
	}
}

// Without what it takes, one line says what is missing, and the command does not run.
func TestServicesWithoutPython(t *testing.T) {
	tools := t.TempDir()
	for _, name := range []string{"bash", "env", "dirname", "cat", "ps", "grep", "mkdir", "mktemp", "rm", "sed"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	out, exit := services(t, []string{"PATH=" + tools, "XDG_CACHE_HOME=" + t.TempDir()}, "run", "bash", "-c", "echo ran")
	if exit == 0 || strings.Count(out, "\n") != 1 || !strings.Contains(out, "Python 3.10") || strings.Contains(out, "ran\n") {
		t.Errorf("%q, exit %d", out, exit)
	}
}
