package main

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "365d": 365 * day, "36h": 36 * time.Hour, "90m": 90 * time.Minute, "1d": day, "24h": day} {
		var a, again age
		if err := a.Set(text); err != nil || time.Duration(a) != want {
			t.Errorf("Set(%q) = %v, %v", text, time.Duration(a), err)
		}
		if err := again.Set(a.String()); err != nil || again != a {
			t.Errorf("%q, written as %q, is read as %v, %v", text, a.String(), time.Duration(again), err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "1.5d", "1y", "-3h", "99999999999d", "365"} {
		if err := new(age).Set(text); err == nil {
			t.Errorf("Set(%q) is accepted", text)
		}
	}
}

func TestLimit(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	for text, want := range map[string]time.Time{"1d": now.Add(-day), "2025-12-31": time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)} {
		var l limit
		if err := l.Set(text); err != nil || !l.set() || !l.before(now).Equal(want) || l.String() != text {
			t.Errorf("Set(%q) is %v, written %q, %v", text, l.before(now), l.String(), err)
		}
	}
	for _, text := range []string{"", "0", "2025-13-01", "31.12.2025", "-1d"} {
		var l limit
		if err := l.Set(text); err == nil || l.set() {
			t.Errorf("Set(%q) is accepted", text)
		}
	}
}
