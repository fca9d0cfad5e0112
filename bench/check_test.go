package bench

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestTrack(t *testing.T) {
	var tr track
	for i, s := range []struct {
		n    uint64
		want verdict
	}{
		{0, inOrder}, {1, inOrder}, {1, again}, {0, again}, {4, ahead}, {2, late}, {2, again}, {4, again}, {5, inOrder}, {3, late},
		{6 + maxAhead + 1, wild}, {6, inOrder},
	} {
		if got := tr.see(s.n); got != s.want {
			t.Errorf("step %d: %d is %d, want %d", i, s.n, got, s.want)
		}
	}
	if tr.next != 7 || len(tr.missing) != 0 {
		t.Errorf("ends at %d with %v missing", tr.next, tr.missing)
	}
}

// Whatever the order, a track knows what it has seen.
func TestTrackAgainstASet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var tr track
		set := map[uint64]bool{}
		var highest uint64
		for range 300 {
			n := highest + rnd.Uint64N(8)
			n -= min(n, rnd.Uint64N(6))
			got := tr.see(n)
			if (got == again) != set[n] {
				t.Fatalf("%d: verdict %d, but seen before: %v", n, got, set[n])
			}
			if got == late && n > highest {
				t.Fatalf("%d is late, but the highest was %d", n, highest)
			}
			set[n] = true
			highest = max(highest, n)
		}
		for n := range highest + 5 {
			if tr.seen(n) != set[n] {
				t.Fatalf("%d: seen %v, want %v", n, tr.seen(n), set[n])
			}
		}
	}
}

// Every check counts, and every check can fail a run.
func TestChecksAddUp(t *testing.T) {
	fields := reflect.TypeFor[Checks]().NumField()
	for i := range fields {
		var one, sum Checks
		reflect.ValueOf(&one).Elem().Field(i).SetUint(3)
		name := reflect.TypeFor[Checks]().Field(i).Name
		if one.Passed() {
			t.Errorf("%s does not fail a run", name)
		}
		sum.add(&one)
		sum.add(&one)
		if got := reflect.ValueOf(sum).Field(i).Uint(); got != 6 {
			t.Errorf("%s: 3 + 3 = %d", name, got)
		}
	}
	if !(&Checks{}).Passed() {
		t.Error("no faults are not passed")
	}
}
