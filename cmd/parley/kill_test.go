package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
)

const (
	killUsers   = 8
	killRate    = 500 // sends a second of each user
	killWindow  = 16  // open sends of each user
	killPulls   = 20  // of every so many sends one is followed by a PULL
	killRepeats = 10  // of every so many sends one repeats an id that was sent before
)

// TestKillNine kills the server with SIGKILL at random moments while users send, pull and receive, starts it again on the same folder
// and port, and in the end holds what is there against everything that was ever acknowledged, pushed or pulled. The seed is
// logged; the moment within the server's work is not its to choose.
func TestKillNine(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	killNine(t, rounds)
}

// killNine is so many rounds on servers with these flags.
func killNine(t *testing.T, rounds int, flags ...string) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir, addr := t.TempDir(), freePort(t)
	h := newHistory()
	users := make([]string, killUsers)
	for i := range users {
		users[i] = fmt.Sprintf("u%d", i)
	}
	keys := tokens(t, dir, users...)

	for round := range rounds {
		srv := startServing(t, dir, addr, flags...)
		var all sync.WaitGroup
		for i, user := range users {
			w := mustDial(t, addr, keys[i], "phone-of-"+user)
			s := &sender{h: h, w: w, user: user, users: users, round: round, rng: rand.New(rand.NewPCG(seed, uint64(round*killUsers+i+1)))}
			all.Go(s.run)
		}
		h.waitForAcks(t, 100)
		pause := time.Duration(200+rng.IntN(900)) * time.Millisecond
		time.Sleep(pause) // the random moment
		srv.kill(t)
		all.Wait()
		t.Logf("round %d: killed %v after its first 100 acks; %s", round, pause, h.summary())
		if t.Failed() || h.report(t) {
			return
		}
	}
	startServing(t, dir, addr, flags...)
	checkHistory(t, h, addr, users, keys)
}

// sender is a user's device during one round: it sends, pulls and receives until the connection breaks.
type sender struct {
	h     *history
	w     *wire
	user  string
	users []string
	round int
	rng   *rand.Rand

	mu     sync.Mutex
	open   map[uint32]attempt // by request id
	pulls  map[uint32]protocol.Pull
	free   chan struct{}     // a token for each send that may be open
	latest map[string]uint64 // by conversation: the seq of the last PUSH or ack of a first sending on this connection
}

// attempt is one sending of a message on one connection.
type attempt struct {
	m      *sent
	repeat bool
}

func (s *sender) run() {
	s.open, s.pulls, s.latest = map[uint32]attempt{}, map[uint32]protocol.Pull{}, map[string]uint64{}
	s.free = make(chan struct{}, killWindow)
	for range killWindow {
		s.free <- struct{}{}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.receive()
	}()
	s.transmit(over)
	<-over
}

func (s *sender) transmit(over <-chan struct{}) {
	pace := time.NewTicker(time.Second / killRate)
	defer pace.Stop()
	for id := uint32(1); ; id += 2 {
		select {
		case <-pace.C:
		case <-over:
			return
		}
		select {
		case <-s.free:
		case <-over:
			return
		}
		s.sendOne(id)
		if s.rng.IntN(killPulls) == 0 {
			s.pullOne(id + 1)
		}
	}
}

func (s *sender) sendOne(id uint32) {
	m := s.h.repeatOf(s.rng, s.user, killRepeats)
	repeat := m != nil
	if !repeat {
		m = s.h.create(s.rng, s.user, s.users, s.round)
	}
	s.mu.Lock()
	s.open[id] = attempt{m: m, repeat: repeat}
	s.mu.Unlock()
	s.w.send(protocol.CmdSend, id, m.request()) // an error is seen by receive too
}

func (s *sender) pullOne(id uint32) {
	conversation := protocol.DirectConversation(s.user, s.users[s.rng.IntN(len(s.users))])
	top := s.h.top(conversation)
	if top == 0 {
		return
	}
	from := 1 + s.rng.Uint64N(top)
	pull := protocol.Pull{ConversationID: conversation, FromSeq: from, ToSeq: min(top, from+100), Limit: 200, NewestFirst: s.rng.IntN(2) == 0}
	s.mu.Lock()
	s.pulls[id] = pull
	s.mu.Unlock()
	s.w.send(protocol.CmdPull, id, &pull)
}

func (s *sender) receive() {
	for {
		f, err := s.w.next()
		if err != nil {
			return // killed
		}
		if err := s.take(f); err != nil {
			s.h.fail("%s, %v: %w", s.user, f.Command, err)
		}
	}
}

func (s *sender) take(f protocol.Frame) error {
	switch f.Command {
	case protocol.CmdSendAck:
		return s.takeAck(f)
	case protocol.CmdPush:
		return s.takePush(f)
	case protocol.CmdPull.Reply():
		return s.takePull(f)
	case protocol.CmdError:
		return s.takeError(f)
	case protocol.CmdEvent:
		return s.takeEvent(f)
	default:
		return errors.New("not expected")
	}
}

func (s *sender) takeAck(f protocol.Frame) error {
	var ack protocol.SendAck
	if err := protocol.Unmarshal(f.Body, &ack); err != nil {
		return err
	}
	a, ok := s.closeSend(f.RequestID)
	if !ok {
		return fmt.Errorf("no open send has the id %d", f.RequestID)
	}
	if err := s.h.acked(a.m, &ack); err != nil {
		return err
	}
	if last := s.latest[ack.ConversationID]; a.repeat && (last == 0 || ack.Seq <= last) {
		return nil // its seq is from another time
	}
	return s.inOrder(ack.ConversationID, ack.Seq)
}

func (s *sender) closeSend(id uint32) (attempt, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.open[id]
	delete(s.open, id)
	if ok {
		s.free <- struct{}{}
	}
	return a, ok
}

// inOrder: what one connection is told of one conversation comes by seq, without a gap. (The ack of a repeat may have told the
// seq of its original already.)
func (s *sender) inOrder(conversation string, seq uint64) error {
	last := s.latest[conversation]
	s.latest[conversation] = seq
	if last != 0 && seq != last+1 && seq != last {
		return fmt.Errorf("%s: seq %d comes after %d", conversation, seq, last)
	}
	return nil
}

func (s *sender) takePush(f protocol.Frame) error {
	var push protocol.Push
	if err := protocol.Unmarshal(f.Body, &push); err != nil {
		return err
	}
	for i := range push.Messages {
		m := &push.Messages[i]
		if err := s.h.saw(m); err != nil {
			return err
		}
		if err := s.inOrder(m.ConversationID, m.Seq); err != nil {
			return err
		}
	}
	s.w.send(protocol.CmdPushAck, f.RequestID, nil) // an error is seen by receive too
	return nil
}

func (s *sender) takePull(f protocol.Frame) error {
	var reply protocol.PullReply
	if err := protocol.Unmarshal(f.Body, &reply); err != nil {
		return err
	}
	s.mu.Lock()
	pull := s.pulls[f.RequestID]
	delete(s.pulls, f.RequestID)
	s.mu.Unlock()
	return s.h.pulled(&pull, &reply)
}

// takeEvent: after resync there may be a gap, which the next PUSH does not close.
func (s *sender) takeEvent(f protocol.Frame) error {
	var events protocol.Events
	if err := protocol.Unmarshal(f.Body, &events); err != nil {
		return err
	}
	for _, e := range events.Events {
		if e.Type == protocol.EventResync {
			clear(s.latest)
		}
	}
	return nil
}

func (s *sender) takeError(f protocol.Frame) error {
	var e protocol.Error
	if err := protocol.Unmarshal(f.Body, &e); err != nil {
		return err
	}
	if _, ok := s.closeSend(f.RequestID); ok && e.Code == protocol.CodeUnavailable {
		return nil // it may have been stored; another round repeats it
	}
	return &e
}
