package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// size is a flag's number of bytes: 65536, 64KiB, 256MiB or 4GiB.
type size int64

const (
	kib size = 1 << 10
	mib size = 1 << 20
	gib size = 1 << 30
)

// String implements pflag.Value: the shortest exact form.
func (s *size) String() string {
	switch n := *s; {
	case n == 0:
		return "0"
	case n%gib == 0:
		return strconv.FormatInt(int64(n/gib), 10) + "GiB"
	case n%mib == 0:
		return strconv.FormatInt(int64(n/mib), 10) + "MiB"
	case n%kib == 0:
		return strconv.FormatInt(int64(n/kib), 10) + "KiB"
	default:
		return strconv.FormatInt(int64(n), 10)
	}
}

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	unit := size(1)
	digits := text
	for suffix, u := range map[string]size{"KiB": kib, "MiB": mib, "GiB": gib} {
		if strings.HasSuffix(text, suffix) {
			unit, digits = u, strings.TrimSuffix(text, suffix)
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return errors.New("give bytes as in 65536, 64KiB, 256MiB or 4GiB")
	}
	*s = size(n) * unit
	return nil
}

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }
