package bench

import (
	"testing"
	"time"
)

func TestPacerKeepsItsTimetable(t *testing.T) {
	const start = 1000
	p := newPacer(start, 1000, 3) // one each millisecond
	if p.due(start-1) != 0 || p.due(start) != 1 || p.due(start+999_999) != 1 || p.due(start+1_000_000) != 2 {
		t.Error("messages fall due at 0 ms, 1 ms …")
	}
	sent := map[int]uint64{}
	for now := int64(start); now <= start+100_000_000; now += 7_300_000 { // the loop looks when it likes
		for n := p.due(now); n > 0; n-- {
			lane := p.issue()
			at := p.dueNS(lane, sent[lane])
			sent[lane]++
			if at > now || at < now-7_300_000 {
				t.Errorf("lane %d: due at %d, issued at %d", lane, at, now)
			}
		}
		if p.due(now) != 0 {
			t.Error("a message is due twice")
		}
	}
	if total := sent[0] + sent[1] + sent[2]; total != p.issued || total < 94 || total > 101 {
		t.Errorf("%d messages in 95 ms at 1000/s", total)
	}
	if sent[0]-sent[2] > 1 {
		t.Errorf("the lanes are not served in turn: %v", sent)
	}
}

// After a stall everything that fell due in it is issued, with the times of the timetable.
func TestPacerForgetsNothing(t *testing.T) {
	p := newPacer(0, 100, 1)
	p.issue()
	if n := p.due(int64(5 * time.Second)); n != 500 {
		t.Errorf("%d are due after 5 s at 100/s, want 500", n)
	}
	if at := p.dueNS(0, 250); at != int64(2500*time.Millisecond) {
		t.Errorf("message 250 is due at %d", at)
	}
}

func TestPacerSleep(t *testing.T) {
	p := newPacer(0, 10, 1)
	p.issue()
	if d := p.sleep(int64(40 * time.Millisecond)); d != 60*time.Millisecond {
		t.Errorf("sleeps %s, the next is due in 60ms", d)
	}
	if d := p.sleep(int64(time.Second)); d != quantum {
		t.Errorf("sleeps %s when late", d)
	}
}

// A rate that does not divide a second drifts nowhere.
func TestPacerAtOddRates(t *testing.T) {
	for _, rate := range []float64{0.5, 3, 7777, 123_456.7} {
		p := newPacer(0, rate, 7)
		const hour = int64(time.Hour)
		if got, want := float64(p.due(hour)), rate*3600; got < want-1 || got > want+2 {
			t.Errorf("%g/s: %g in an hour, want %g", rate, got, want)
		}
	}
}
