package embedded

import "sync"

// gate counts the calls that use Pebble, so that Close waits for them and refuses others: Pebble panics when it is used after Close.
type gate struct {
	mu     sync.Mutex
	inside int
	shut   bool
	empty  chan struct{} // made by close; closed when the last one leaves
}

// enter is false after close.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut && g.inside == 0 {
		close(g.empty)
	}
}

// close waits until everybody has left. It returns false when it was called before.
func (g *gate) close() bool {
	g.mu.Lock()
	if g.shut {
		g.mu.Unlock()
		return false
	}
	g.shut, g.empty = true, make(chan struct{})
	if g.inside == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	<-g.empty
	return true
}

func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}
