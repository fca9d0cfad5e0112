package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	envPrefix = "PARLEY_"
	envToken  = "PARLEY_TOKEN" //nolint:gosec // the variable's name, not a token
	envTests  = "PARLEY_TEST_"
)

// applySettings gives the flags that the command line left out their values: from the environment, else from the config file.
// A flag set so counts as given. Names that no flag has are refused, whichever command runs: a setting that
// is misspelt must not be a setting that is ignored.
func applySettings(cmd *cobra.Command, environ []string) error {
	fromEnv, err := readEnvironment(environ, flagNames(allFlags(cmd.Root())))
	if err != nil {
		return err
	}
	fromFile := koanf.New(".")
	path := configPath(cmd, fromEnv)
	if path != "" {
		if fromFile, err = readFile(path, flagNames(serveFlags(cmd.Root()))); err != nil {
			return err
		}
	}
	given := givenFlags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case err != nil || f.Changed || !isSetting(f) || yields(f, given):
		case fromEnv.Exists(f.Name):
			err = setFlag(cmd.Flags(), f, fromEnv, envName(f.Name))
		case fromFile.Exists(f.Name):
			err = setFlag(cmd.Flags(), f, fromFile, path+": "+f.Name)
		}
	})
	return err
}

// setFlag sets a flag to what the source has under its name. origin is how the operator knows the setting.
func setFlag(flags *pflag.FlagSet, f *pflag.Flag, source *koanf.Koanf, origin string) error {
	value := source.String(f.Name)
	switch v := source.Get(f.Name).(type) {
	case nil:
		return fmt.Errorf("%s has no value", origin)
	case map[string]any:
		return fmt.Errorf("%s holds settings of its own; it takes one value", origin)
	case []any:
		if _, ok := f.Value.(pflag.SliceValue); !ok {
			return fmt.Errorf("%s is a list; it takes one value", origin)
		}
		value = strings.Join(source.Strings(f.Name), ",")
	case string:
		value = v
	}
	if err := flags.Set(f.Name, value); err != nil {
		return fmt.Errorf("%s: %q is not valid: %w", origin, value, rootCause(err))
	}
	return nil
}

// readEnvironment reads the PARLEY_* variables, under the names of the flags.
func readEnvironment(environ, known []string) (*koanf.Koanf, error) {
	k := koanf.New(".")
	var unknown []string
	err := k.Load(env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if notOurs(name) {
				return "", nil
			}
			key := flagName(name)
			if envName(key) != name || !slices.Contains(known, key) {
				unknown = append(unknown, name)
				return "", nil
			}
			return key, value
		},
	}), nil)
	if err != nil {
		return nil, fmt.Errorf("reading the environment: %w", err)
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		near := envName(nearest(flagName(unknown[0]), known))
		return nil, fmt.Errorf("there is no setting %s in the environment; did you mean %s? Unset it or rename it", unknown[0], near)
	}
	return k, nil
}

// notOurs tells whether a PARLEY_* variable is no setting: the token and the tests' addresses, and what Kubernetes puts into
// every pod beside a service that is called parley.
func notOurs(name string) bool {
	return name == envToken || strings.HasPrefix(name, envTests) ||
		name == "PARLEY_PORT" || strings.HasPrefix(name, "PARLEY_PORT_") || strings.HasPrefix(name, "PARLEY_SERVICE_")
}

func readFile(path string, known []string) (*koanf.Koanf, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(text), yaml.Parser()); err != nil {
		oneLine := strings.Join(strings.Fields(err.Error()), " ")
		return nil, fmt.Errorf("config file %s: %s", path, oneLine)
	}
	keys := make([]string, 0, len(k.Raw()))
	for key := range k.Raw() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("config file %s: there is no setting %q; did you mean %q? Remove it or rename it",
				path, key, nearest(key, known))
		}
	}
	return k, nil
}

func configPath(cmd *cobra.Command, fromEnv *koanf.Koanf) string {
	f := cmd.Flags().Lookup("config")
	if f == nil {
		return ""
	}
	if !f.Changed && fromEnv.Exists("config") {
		return fromEnv.String("config")
	}
	return f.Value.String()
}

// Annotations of flags.
const (
	onlyNow   = "parley_only_now"   // it says what to do now, and comes from the command line alone
	insteadOf = "parley_instead_of" // the flags which, given on the command line, keep it from being set elsewhere
)

// annotate puts an annotation on flags of the command.
func annotate(cmd *cobra.Command, key string, values []string, flags ...string) {
	for _, name := range flags {
		_ = cmd.Flags().SetAnnotation(name, key, values) // fails only for a flag that is not there
	}
}

// isSetting tells a flag that can be set elsewhere from one that says what to do now.
func isSetting(f *pflag.Flag) bool {
	_, now := f.Annotations[onlyNow]
	return !now && f.Name != "help" && f.Name != "version" && f.Name != "config"
}

// givenFlags are the names of those on the command line.
func givenFlags(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().Visit(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// yields tells whether one of the flags on the command line stands in f's place.
func yields(f *pflag.Flag, given []string) bool {
	return slices.ContainsFunc(f.Annotations[insteadOf], func(name string) bool { return slices.Contains(given, name) })
}

// commands are all commands below root.
func commands(root *cobra.Command) []*cobra.Command {
	list := slices.Clone(root.Commands())
	for _, c := range root.Commands() {
		list = append(list, commands(c)...)
	}
	return list
}

// allFlags are the flags of every command, and config, which the environment may give too.
func allFlags(root *cobra.Command) []*pflag.Flag {
	var all []*pflag.Flag
	for _, c := range commands(root) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if isSetting(f) || f.Name == "config" {
				all = append(all, f)
			}
		})
	}
	return all
}

// serveFlags are what the config file may hold.
func serveFlags(root *cobra.Command) []*pflag.Flag {
	var list []*pflag.Flag
	for _, c := range root.Commands() {
		if c.Name() != "serve" {
			continue
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if isSetting(f) {
				list = append(list, f)
			}
		})
	}
	return list
}

func flagNames(flags []*pflag.Flag) []string {
	names := make([]string, len(flags))
	for i, f := range flags {
		names[i] = f.Name
	}
	return names
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func flagName(variable string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, envPrefix), "_", "-"))
}
