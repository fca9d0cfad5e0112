package parley_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/parley-im/parley"

// mayImport says which of our packages a package may import. An arrow that is not here is a decision, made by changing this table:
//
//	                ┌────────── cmd ──────────┐
//	                ▼          ▼              ▼
//	bench ─▶ client  conn      link          logic ─▶ storage ◀─ embedded, kafka, mongo, redis
//	            └─────┴─────────┴──────▶ protocol ◀─────┘
//
// "cmd/*" and "storage/*" stand for every package below. cmd decides the wiring and may import anything.
var mayImport = map[string][]string{
	"protocol":            {},
	"storage":             {"protocol"},
	"storage/storagetest": {"storage", "protocol"},
	"storage/*":           {"storage", "protocol"},
	"storage/mongo/*":     {}, // mongotest, wiretest: of MongoDB they know the protocol, of us nothing
	"conn":                {"protocol"},
	"logic":               {"protocol", "storage"},
	"link":                {"protocol"},
	"client":              {"protocol"},
	"bench":               {"client", "protocol"},
	"cmd/*":               {"*"},
}

// onlyForTests are packages that no program contains: only tests, and each other, may import them.
var onlyForTests = []string{"storage/storagetest", "storage/mongo/mongotest", "storage/mongo/wiretest"}

// testsMayAlsoImport is what the tests of a package (its _test.go files) need beyond that. The rule is that a test may stand on what is
// real below the thing that it tests, never on what is above it:
//   - a backend, and logic, run the suite that defines a correct one, and the one that needs nothing installed; the backend on MongoDB
//     has a server, and what makes it fail;
//   - conn is knocked at by a real client, with a logic tier of the test's own behind it: the two tiers do not know each other;
//   - client and bench are end-to-end, against a whole server in the test's process;
//   - the tests at the root of the module see everything, those of protocol nothing.
var testsMayAlsoImport = map[string][]string{
	"storage":             {"storage/embedded", "storage/storagetest"},
	"storage/storagetest": {"storage/embedded"},
	"storage/*":           {"storage/storagetest", "storage/embedded"},
	"storage/mongo":       {"storage/storagetest", "storage/embedded", "storage/mongo/mongotest", "storage/mongo/wiretest"},
	"storage/mongo/*":     {"storage/mongo/mongotest"},
	"logic":               {"storage/storagetest", "storage/embedded", "storage/mongo", "storage/mongo/mongotest"},
	"conn":                {"client"},
	"client":              {"conn", "logic", "storage", "storage/embedded"},
	"bench":               {"conn", "logic", "storage", "storage/embedded"},
	"":                    {"*"},
}

// goPackage is what `go list -json` says of a package, as far as it matters here.
type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// TestImportDirections fails on every import among our packages that the tables do not allow.
func TestImportDirections(t *testing.T) {
	readFolders(t)
	packages := list(t)
	seen := map[string]bool{}
	for _, p := range packages {
		name := ours(p.ImportPath)
		seen[name] = true
		for _, complaint := range check(name, p) {
			t.Error(complaint)
		}
	}
	for _, must := range []string{"protocol", "storage", "logic"} {
		if !seen[must] {
			t.Errorf("go list did not find %s: nothing was checked", must)
		}
	}
}

// readFolders lets go test see what the result depends on: it reuses a result until a file or folder that the test itself opened has
// changed, and does not know what go list opened.
func readFolders(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if name := d.Name(); d.IsDir() && path != "." && (name[0] == '.' || name == "bin" || name == "data" || name == "testdata") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// ours is a package's path within the module, "" for its root.
func ours(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func check(name string, p goPackage) (complaints []string) {
	allowed, known := rule(mayImport, name)
	if !known && name != "" {
		return []string{name + ": say in mayImport what it may import"}
	}
	forTests, _ := rule(testsMayAlsoImport, name)
	forTests = append(append([]string{name}, allowed...), forTests...) // a test in package x_test imports x
	complain := func(imports, allowed []string, what string) {
		for _, path := range imports {
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			stray := what == "" && !slices.Contains(onlyForTests, name) && slices.Contains(onlyForTests, ours(path))
			if stray || !covers(allowed, ours(path)) {
				complaints = append(complaints, name+what+" must not import "+ours(path))
			}
		}
	}
	complain(p.Imports, allowed, "")
	complain(p.TestImports, forTests, ": tests")
	complain(p.XTestImports, forTests, ": tests")
	return complaints
}

// rule looks a package up by its name, then by the pattern of its parents.
func rule(table map[string][]string, name string) (allowed []string, known bool) {
	if allowed, known = table[name]; known {
		return allowed, true
	}
	for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if allowed, known = table[dir+"/*"]; known {
			return allowed, true
		}
	}
	return nil, false
}

func covers(allowed []string, name string) bool {
	for _, a := range allowed {
		if a == "*" || a == name {
			return true
		}
	}
	return false
}

// TestImportRules: the check itself finds what is wrong.
func TestImportRules(t *testing.T) {
	imports := func(names ...string) []string {
		list := []string{"fmt", "github.com/parley-im/parleyx"}
		for _, n := range names {
			list = append(list, module+"/"+n)
		}
		return list
	}
	for _, c := range []struct {
		name string
		p    goPackage
		want int
	}{
		{"protocol", goPackage{Imports: imports()}, 0},
		{"protocol", goPackage{Imports: imports("storage")}, 1},
		{"protocol", goPackage{XTestImports: imports("protocol")}, 0},
		{"protocol", goPackage{TestImports: imports("client")}, 1},
		{"conn", goPackage{Imports: imports("protocol")}, 0},
		{"conn", goPackage{Imports: imports("logic")}, 1},
		{"conn", goPackage{TestImports: imports("logic")}, 1},
		{"conn", goPackage{XTestImports: imports("client", "conn")}, 0},
		{"logic", goPackage{Imports: imports("storage/embedded")}, 1},
		{"logic", goPackage{TestImports: imports("storage/embedded")}, 0},
		{"logic", goPackage{Imports: imports("conn", "client")}, 2},
		{"storage/embedded", goPackage{Imports: imports("storage", "protocol")}, 0},
		{"storage/embedded", goPackage{Imports: imports("storage/storagetest")}, 1},
		{"storage/embedded", goPackage{TestImports: imports("storage/storagetest")}, 0},
		{"storage/mongo", goPackage{Imports: imports("storage", "protocol")}, 0},
		{"storage/mongo", goPackage{Imports: imports("storage/mongo/mongotest")}, 1},
		{"storage/mongo", goPackage{Imports: imports("storage/embedded")}, 1},
		{"storage/mongo", goPackage{TestImports: imports("storage/storagetest", "storage/mongo/mongotest", "storage/mongo/wiretest")}, 0},
		{"storage/mongo/wiretest", goPackage{Imports: imports("storage")}, 1},
		{"storage/mongo/wiretest", goPackage{TestImports: imports("storage/mongo/mongotest")}, 0},
		{"storage/kafka", goPackage{Imports: imports("storage/embedded")}, 1},
		{"storage/redis/lease", goPackage{Imports: imports("logic")}, 1},
		{"storage/storagetest", goPackage{Imports: imports("storage/embedded")}, 1},
		{"bench", goPackage{Imports: imports("client", "protocol")}, 0},
		{"bench", goPackage{Imports: imports("conn")}, 1},
		{"cmd/parley", goPackage{Imports: imports("conn", "logic", "storage/embedded", "client")}, 0},
		{"cmd/parley", goPackage{Imports: imports("storage/mongo", "storage/mongo/wiretest", "storage/storagetest")}, 2},
		{"cmd/parley", goPackage{TestImports: imports("storage/mongo/mongotest")}, 0},
		{"", goPackage{XTestImports: imports("conn", "client")}, 0},
		{"", goPackage{Imports: imports("conn")}, 1},
		{"internal/new", goPackage{}, 1},
	} {
		if got := check(c.name, c.p); len(got) != c.want {
			t.Errorf("%s with %+v: %q, want %d complaints", c.name, c.p, got, c.want)
		}
	}
}
