package parley_test

import (
	"go/version"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
)

// The compose file is YAML, gives the server no setting that it does not have, and its images are pinned.
func TestCompose(t *testing.T) {
	text := read(t, "deploy/compose.yaml")
	parsed, err := yaml.Parser().Unmarshal([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if services, ok := parsed["services"].(map[string]any); !ok || services["mongo"] == nil || services["parley"] == nil {
		t.Errorf("services: %v", parsed["services"])
	}
	flags := read(t, "cmd/parley/serve_flags.go")
	settings := regexp.MustCompile(`(PARLEY_\w+)[:=]`).FindAllStringSubmatch(text+read(t, "deploy/Dockerfile"), -1)
	if len(settings) < 4 {
		t.Errorf("%d settings were found", len(settings))
	}
	for _, s := range settings {
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s[1], "PARLEY_"), "_", "-"))
		if s[1] != "PARLEY_TEST_MONGO" && !strings.Contains(flags, `"`+flag+`"`) {
			t.Errorf("%s: serve has no flag --%s", s[1], flag)
		}
	}
	for _, image := range regexp.MustCompile(`(?m)^\s*(?:image:|FROM) (\S+)`).FindAllStringSubmatch(text+"\n"+read(t, "deploy/Dockerfile"), -1) {
		if image[1] != "scratch" && !regexp.MustCompile(`:\d+\.\d+\.\d+`).MatchString(image[1]) {
			t.Errorf("%s is not pinned", image[1])
		}
	}
}

// The image is built with a Go that the module accepts.
func TestDockerfileGo(t *testing.T) {
	module := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "go.mod"))
	image := regexp.MustCompile(`FROM golang:([0-9.]+)-`).FindStringSubmatch(read(t, "deploy/Dockerfile"))
	if module == nil || image == nil || version.Compare("go"+image[1], "go"+module[1]) < 0 {
		t.Errorf("go.mod says %v, deploy/Dockerfile %v", module, image)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
