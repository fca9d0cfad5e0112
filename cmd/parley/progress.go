package main

import (
	"context"
	"errors"
	"sync"

	"github.com/parley-im/parley/client"
)

// progress is a client's state in memory that knows how far one conversation was shown.
type progress struct {
	*client.MemoryState
	conversation string

	mu    sync.Mutex
	seq   uint64
	moved chan struct{} // closed when seq rises, and then replaced
}

func newProgress(conversation string) *progress {
	return &progress{MemoryState: client.NewMemoryState(), conversation: conversation, moved: make(chan struct{})}
}

// SavePositions implements client.State.
func (p *progress) SavePositions(ctx context.Context, list []client.Position) error {
	p.mu.Lock()
	for _, at := range list {
		if at.ConversationID == p.conversation {
			p.seq = at.Seq
			close(p.moved)
			p.moved = make(chan struct{})
		}
	}
	p.mu.Unlock()
	return p.MemoryState.SavePositions(ctx, list)
}

// wait waits until everything up to seq was shown.
func (p *progress) wait(ctx context.Context, stopped <-chan struct{}, seq uint64) error {
	for {
		p.mu.Lock()
		at, moved := p.seq, p.moved
		p.mu.Unlock()
		if at >= seq {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-stopped:
			return errors.New("the client stopped")
		}
	}
}
