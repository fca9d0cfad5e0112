package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/parley-im/parley/storage/mongo/mongotest"
)

var update = flag.Bool("update", false, "write the golden files and the table in docs/operations.md")

// golden holds text against a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(lines) || lines[i] != line {
			t.Fatalf("%s, line %d, is not what it was (go test -update writes the file anew); now:\n%s", path, i+1, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has lines that are not there any more (go test -update writes the file anew)", path)
	}
}

func TestHelp(t *testing.T) {
	for _, name := range []string{
		"", "serve", "token", "chat", "version", "completion", "migrate",
		"admin", "admin inspect", "admin verify", "admin purge", "admin revoke", "admin rebucket",
	} {
		root := newRoot()
		root.Version = "parley test"
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append(strings.Fields(name), "--help"))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("testdata", "help_"+strings.ReplaceAll(name, " ", "_")+".txt"), out.String())
	}
}

// Each command that people meet has an example, and each flag says what it does.
func TestHelpIsComplete(t *testing.T) {
	root := newRoot()
	for _, c := range commands(root) {
		if c.Short == "" || c.Name() != "version" && (c.Long == "" || c.Example == "") {
			t.Errorf("parley %s: the help text wants a description and an example", c.Name())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if len(f.Usage) < 10 {
				t.Errorf("parley %s --%s has no help text", c.Name(), f.Name)
			}
		})
	}
}

// The table in the documentation is made from the flags.
func TestSettingsTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| flag | default | |\n|---|---|---|\n")
	for _, f := range serveFlags(newRoot()) {
		fmt.Fprintf(&table, "| `--%s` | %s | %s |\n", f.Name, code(f.DefValue), f.Usage)
	}
	goldenPart(t, "settings", table.String())
}

// The list of metrics in the documentation is made from what a server registers.
func TestMetricsTable(t *testing.T) {
	var s serveSettings
	s.register(&cobra.Command{}) // the defaults
	s.data, s.listen, s.http, s.retention = t.TempDir(), "127.0.0.1:0", "", age(1000*day)
	goldenPart(t, "metrics", metricsTable(t, &s, "parley_"))
}

// Those of a server on MongoDB, as far as one on a folder has others.
func TestMongoMetricsTable(t *testing.T) {
	var s serveSettings
	s.register(&cobra.Command{})
	s.data, s.listen, s.http, s.mongo = t.TempDir(), "127.0.0.1:0", "", mongotest.Database(t)
	goldenPart(t, "mongo metrics", metricsTable(t, &s, "parley_mongo_"))
}

// metricsTable is what a server with these settings registers, as far as the name begins so.
func metricsTable(t *testing.T, s *serveSettings, prefix string) string {
	t.Helper()
	srv, err := startServer(s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 10_000)
	srv.metrics.Describe(descriptions)
	close(descriptions)
	if err := srv.close(); err != nil {
		t.Error(err)
	}
	parts := regexp.MustCompile(`fqName: "(parley_\w+)", help: "(.*?)"(?:, unit: "\w*")?, constLabels: {.*?}, variableLabels: {(.*?)}`)
	var rows []string
	for d := range descriptions {
		if m := parts.FindStringSubmatch(d.String()); m != nil && strings.HasPrefix(m[1], prefix) {
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", m[1], m[3], m[2]))
		}
	}
	slices.Sort(rows)
	if len(rows) < 5 {
		t.Fatalf("a server has %d metrics", len(rows))
	}
	return "| metric | labels | |\n|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
}

// goldenPart is golden for what lies between two marks in docs/operations.md.
func goldenPart(t *testing.T, name, got string) {
	t.Helper()
	const path, begin = "../../docs/operations.md", "-update -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), "<!-- "+name+": ")
	comment, rest, ok2 := strings.Cut(rest, begin)
	_, tail, ok3 := strings.Cut(rest, "<!-- end of "+name+" -->")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s has no place for the %s", path, name)
	}
	golden(t, path, head+"<!-- "+name+": "+comment+begin+got+"<!-- end of "+name+" -->"+tail)
}

// The tests that the README names are there.
func TestReadmeNamesTests(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z/-]+)\\.(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 20 {
		t.Errorf("the README names %d tests", len(names))
	}
	for _, n := range names {
		files, err := filepath.Glob(filepath.Join("../..", n[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(path string) bool {
			source, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(source), "\nfunc "+n[2]+"(t ")
		}) {
			t.Errorf("%s has no %s", n[1], n[2])
		}
	}
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func TestVersion(t *testing.T) {
	got := strings.TrimSpace(output(t, "version"))
	if !strings.HasPrefix(got, "parley test, go1.") {
		t.Errorf("parley version prints %q", got)
	}
	if flag := strings.TrimSpace(output(t, "--version")); flag != got {
		t.Errorf("parley --version prints %q", flag)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"data", "listen", "max-body", "max-down", "heartbeat"}
	for name, want := range map[string]string{"heart-beat": "heartbeat", "maxbody": "max-body", "lisen": "listen", "max-don": "max-down", "": "data"} {
		if got := nearest(name, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", name, got, want)
		}
	}
	for _, d := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"same", "same", 0}} {
		if got := distance(d.a, d.b); got != d.want {
			t.Errorf("distance(%q, %q) = %d, want %d", d.a, d.b, got, d.want)
		}
	}
}
