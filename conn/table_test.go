package conn

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/parley-im/parley/protocol"
)

func TestTableNeverGivesAnIDTwice(t *testing.T) {
	var tab table
	r := rand.New(rand.NewPCG(3, 4))
	given := make(map[protocol.SessionID]bool)
	var live []*session
	for range 30000 {
		if len(live) > 0 && r.IntN(3) == 0 {
			i := r.IntN(len(live))
			s := live[i]
			tab.remove(s)
			if tab.get(s.ID) != nil {
				t.Fatal("found after it was removed")
			}
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			continue
		}
		s := &session{}
		tab.put(s)
		if s.ID == 0 || given[s.ID] {
			t.Fatalf("id %d is given twice", s.ID)
		}
		given[s.ID] = true
		live = append(live, s)
	}
	for _, s := range live {
		if tab.get(s.ID) != s {
			t.Fatal("not found")
		}
	}
	if n := len(tab.all()); n != len(live) {
		t.Errorf("all are %d, not %d", n, len(live))
	}
	if tab.get(0) != nil || tab.get(^protocol.SessionID(0)) != nil {
		t.Error("found what is not there")
	}
}

func TestTableConcurrently(t *testing.T) {
	var tab table
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				s := &session{}
				tab.put(s)
				if tab.get(s.ID) != s {
					t.Error("not found")
				}
				tab.remove(s)
				if tab.get(s.ID) != nil {
					t.Error("found after it was removed")
				}
			}
		})
	}
	all.Wait()
	if n := len(tab.all()); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func BenchmarkTableGet(b *testing.B) {
	var tab table
	var ids []protocol.SessionID
	for range 10000 {
		s := &session{}
		tab.put(s)
		ids = append(ids, s.ID)
	}
	for i := 0; b.Loop(); i++ {
		if tab.get(ids[i%len(ids)]) == nil {
			b.Fatal("not found")
		}
	}
}
