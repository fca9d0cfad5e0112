package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// resolve runs "parley args..." up to the point where the command would begin, and returns its flags' values.
func resolve(t *testing.T, args ...string) (map[string]string, error) {
	t.Helper()
	root := newRoot()
	values := map[string]string{}
	for _, c := range root.Commands() {
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			for _, f := range allFlags(root) {
				if own := cmd.Flags().Lookup(f.Name); own != nil {
					values[f.Name] = own.Value.String()
				}
			}
			return nil
		}
	}
	root.SetArgs(args)
	return values, root.Execute()
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parley.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettingsPrecedence(t *testing.T) {
	path := writeFile(t, "heartbeat: 30s\nmax-body: 32KiB\nmax-conns: 1000\nlog-level: warn\npprof: true\n")
	t.Setenv("PARLEY_CONFIG", path)
	t.Setenv("PARLEY_MAX_BODY", "16KiB")
	t.Setenv("PARLEY_LOG_LEVEL", "error")
	t.Setenv("PARLEY_TO", "a flag of another command")
	got, err := resolve(t, "serve", "--log-level", "debug")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"log-level": "debug",  // the command line, over both
		"max-body":  "16KiB",  // the environment, over the file
		"heartbeat": "30s",    // the file
		"max-conns": "1000",   // a number in the file
		"pprof":     "true",   // a bool in the file
		"max-down":  "512KiB", // nobody: the default
		"data":      "./data", // nobody
		"listen":    ":7000",  // nobody
		"config":    "",       // was read from the environment
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}

func TestSettingsRequiredFlagFromEnvironment(t *testing.T) {
	t.Setenv("PARLEY_AS", "alice")
	t.Setenv("PARLEY_TO", "bob")
	got, err := resolve(t, "chat")
	if err != nil {
		t.Fatal(err)
	}
	if got["as"] != "alice" || got["to"] != "bob" {
		t.Errorf("as, to = %q, %q", got["as"], got["to"])
	}
}

// Variables that are not settings: the token, the addresses of test servers, and those of a Kubernetes service called parley.
func TestSettingsForeignVariables(t *testing.T) {
	for _, name := range []string{"PARLEY_TOKEN", "PARLEY_TEST_MONGO", "PARLEY_SERVICE_HOST", "PARLEY_PORT", "PARLEY_PORT_7000_TCP_ADDR"} {
		t.Setenv(name, "x")
	}
	if _, err := resolve(t, "serve"); err != nil {
		t.Error(err)
	}
}

func TestSettingsRefused(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		file string
		args []string
		want []string // all in the error
	}{
		{"unknown variable", map[string]string{"PARLEY_MAX_BODDY": "1"}, "", nil, []string{"PARLEY_MAX_BODDY", "PARLEY_MAX_BODY?"}},
		{"variable in lower case", map[string]string{"PARLEY_max_body": "1"}, "", nil, []string{"PARLEY_max_body", "PARLEY_MAX_BODY?"}},
		{"variable with a hyphen", map[string]string{"PARLEY_MAX-BODY": "1"}, "", nil, []string{"PARLEY_MAX-BODY", "PARLEY_MAX_BODY?"}},
		{"unknown key", nil, "hartbeat: 3s\n", nil, []string{`"hartbeat"`, `"heartbeat"`, "parley.yaml"}},
		{"key of another command", nil, "as: alice\n", nil, []string{`"as"`}},
		{"config in the file", nil, "config: other.yaml\n", nil, []string{`"config"`}},
		{"not YAML", nil, "heartbeat: [\n", nil, []string{"parley.yaml", "line"}},
		{"not a map", nil, "- heartbeat\n", nil, []string{"parley.yaml"}},
		{"key twice", nil, "heartbeat: 3s\nheartbeat: 4s\n", nil, []string{"parley.yaml", "heartbeat"}},
		{"nested", nil, "heartbeat:\n  every: 3s\n", nil, []string{"heartbeat", "takes one value"}},
		{"a list for one value", nil, "listen: [a, b]\n", nil, []string{"listen", "takes one value"}},
		{"no value", nil, "heartbeat:\n", nil, []string{"heartbeat", "no value"}},
		{"bad value in the file", nil, "heartbeat: soon\n", nil, []string{"parley.yaml: heartbeat", `"soon"`}},
		{"bad value in the environment", map[string]string{"PARLEY_MAX_BODY": "64KB"}, "", nil, []string{"PARLEY_MAX_BODY", `"64KB"`, "64KiB"}},
		{"no such file", map[string]string{"PARLEY_CONFIG": "/no/such/file"}, "", nil, []string{"config file", "/no/such/file"}},
		{"unknown flag", nil, "", []string{"--hart-beat", "3s"}, []string{"--hart-beat", "--heartbeat?", "parley serve --help"}},
		{"bad flag", nil, "", []string{"--heartbeat", "soon"}, []string{"heartbeat", "soon", "parley serve --help"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			args := append([]string{"serve"}, tt.args...)
			if tt.file != "" {
				args = append(args, "--config", writeFile(t, tt.file))
			}
			_, err := resolve(t, args...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, s := range tt.want {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %s", err, s)
				}
			}
			if strings.Contains(err.Error(), "\n  ") || strings.Count(err.Error(), "\n") > 1 {
				t.Errorf("not one clear line: %q", err)
			}
		})
	}
}

func TestServeCheck(t *testing.T) {
	tests := [][]string{
		{"--heartbeat", "10ms"}, {"--heartbeat", "48h"}, {"--handshake-timeout", "0s"}, {"--max-body", "0"}, {"--max-body", "1GiB"},
		{"--max-inflight", "0"}, {"--max-inflight", "70000"}, {"--max-devices", "0"}, {"--max-conns", "-1"}, {"--loops", "-1"},
		{"--outbound-soft", "4MiB"}, {"--outbound-hard", "300KiB"}, {"--drain-timeout", "1s"}, {"--drain-window", "0s"}, {"--stall-timeout", "1ms"}, {"--drain-delay", "-1s"},
		{"--log-level", "loud"}, {"--log-format", "xml"}, {"--max-down", "1KiB"},
	}
	for _, args := range tests {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			root := newRoot()
			root.SetArgs(append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", ""}, args...))
			err := root.Execute()
			if err == nil || !strings.Contains(err.Error(), args[0]) {
				t.Errorf("error %v does not name %s", err, args[0])
			}
			if _, statErr := os.Stat(dir); statErr == nil {
				t.Error("the data folder was made all the same")
			}
		})
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "65536": 64 * kib, "64KiB": 64 * kib, "3MiB": 3 * mib, "4 GiB": 4 * gib, "1025": 1025} {
		var s, again size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("Set(%q) = %d, %v, want %d", text, s, err, want)
		}
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%q, written as %q, is read as %d, %v", text, s.String(), again, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "64KB", "1.5MiB", "9999999999GiB", "64kib"} {
		if err := new(size).Set(text); err == nil {
			t.Errorf("Set(%q) is accepted", text)
		}
	}
}
