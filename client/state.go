package client

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// State is where a client keeps what it must know after a restart of the app. An app that stores messages implements it beside
// them. The methods are called by one goroutine at a time; an error stops the client. What Save and SavePositions were
// given may be lost in a crash as long as it is lost in order: the client then receives some of it again.
type State interface {
	// Load returns what was saved; the zero value when nothing was.
	Load(ctx context.Context) (Saved, error)
	// Save replaces the session.
	Save(ctx context.Context, s Session) error
	// SavePositions replaces the positions of some conversations and leaves the others.
	SavePositions(ctx context.Context, list []Position) error
	// Reset forgets all positions and replaces the session, in one step.
	Reset(ctx context.Context, s Session) error
}

// Session is whose state it is, and how far the list of conversations is known.
type Session struct {
	User  string
	Epoch string // the server's history; in another one nothing else here means anything
	Token string // of SYNC; "": nothing is known yet
	Stale bool   // OnStale is still to be told that everything must be fetched again
}

// Position is how far a conversation is known.
type Position struct {
	ConversationID string
	Seq            uint64 // everything up to here was taken by the app
	KnownSeq       uint64 // the highest seq that is known to exist
	ChangeSeq      uint64 // every change up to here was taken by the app
	KnownChangeSeq uint64 // the latest change that is known to exist
}

// Saved is all that a State holds.
type Saved struct {
	Session   Session
	Positions []Position
}

// MemoryState is a State that ends with the process. Any goroutine may use it.
type MemoryState struct {
	mu        sync.Mutex
	session   Session
	positions map[string]Position
}

// NewMemoryState returns an empty one.
func NewMemoryState() *MemoryState { return &MemoryState{positions: map[string]Position{}} }

// Load implements State.
func (s *MemoryState) Load(context.Context) (Saved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Saved{Session: s.session, Positions: slices.Collect(maps.Values(s.positions))}, nil
}

// Save implements State.
func (s *MemoryState) Save(_ context.Context, session Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = session
	return nil
}

// SavePositions implements State.
func (s *MemoryState) SavePositions(_ context.Context, list []Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range list {
		s.positions[p.ConversationID] = p
	}
	return nil
}

// Reset implements State.
func (s *MemoryState) Reset(_ context.Context, session Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = session
	clear(s.positions)
	return nil
}
