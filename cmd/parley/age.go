package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// age is a flag's duration that may be in days: 365d, 36h.
type age time.Duration

// String implements pflag.Value: the shortest exact form.
func (a *age) String() string {
	d := time.Duration(*a)
	switch {
	case d == 0:
		return "0"
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	default:
		return d.String()
	}
}

// Set implements pflag.Value.
func (a *age) Set(text string) error {
	bad := errors.New("give a duration as in 365d, 36h or 90m")
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/int64(day) {
			return bad
		}
		*a = age(n * int64(day))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return bad
	}
	*a = age(d)
	return nil
}

// Type implements pflag.Value.
func (a *age) Type() string { return "age" }

// limit is a flag's age or date.
type limit struct {
	age  age
	date time.Time // when it is not an age
}

func (l *limit) set() bool { return l.age > 0 || !l.date.IsZero() }

// before is the moment that it means.
func (l *limit) before(now time.Time) time.Time {
	if l.date.IsZero() {
		return now.Add(-time.Duration(l.age))
	}
	return l.date
}

// String implements pflag.Value.
func (l *limit) String() string {
	switch {
	case !l.date.IsZero():
		return l.date.Format(time.DateOnly)
	case l.age > 0:
		return l.age.String()
	}
	return ""
}

// Set implements pflag.Value.
func (l *limit) Set(text string) error {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		*l = limit{date: at}
		return nil
	}
	var a age
	if err := a.Set(text); err != nil || a == 0 {
		return errors.New("give an age as in 365d or 36h, or a date as in 2025-12-31")
	}
	*l = limit{age: a}
	return nil
}

// Type implements pflag.Value.
func (l *limit) Type() string { return "age or date" }
