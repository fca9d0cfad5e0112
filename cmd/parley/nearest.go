package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearest is the name that takes the fewest insertions, deletions and replacements of a byte to become name.
func nearest(name string, names []string) string {
	best, least := "", -1
	for _, n := range names {
		if d := distance(name, n); least < 0 || d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is Levenshtein's, one row at a time.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// flagError names the nearest flag when one is unknown, and says where the others are listed.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("there is no flag --%s; did you mean --%s? See %s --help",
			unknown.GetSpecifiedName(), nearest(unknown.GetSpecifiedName(), names), cmd.CommandPath())
	}
	return fmt.Errorf("%w. See %s --help", err, cmd.CommandPath())
}

// rootCause is the innermost error: pflag's own wrapping repeats the flag's name and value.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
