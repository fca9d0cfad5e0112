//go:build linux

package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/parley-im/parley/protocol"
)

// What a connection hears: acks, pushes, and what is rare.

func (s *talk) acknowledged(ln *lane, request uint32, body []byte) error {
	a, ok := scanAck(body)
	if !ok {
		return errors.New("a SEND_ACK that cannot be read")
	}
	sl, k := ln.answered(request)
	if sl == nil || sl.index != a.id.index || ln.c.id != a.id.sender {
		s.checks.Stray++
		return nil
	}
	ln.free = append(ln.free, k)
	ln.acked++
	s.acked++
	switch {
	case a.seq == 0:
		ln.unnumbered++
	case ln.own == 0:
		ln.numbered(a.seq, a.id.sender, a.id.index, false, &s.checks)
	case !ln.seqs.seen(a.seq): // otherwise the push came first
		ln.numbered(a.seq, a.id.sender, a.id.index, false, &s.checks)
	}
	if s.measured {
		s.ack.record(int64(s.nowUS - a.id.timeUS))
	}
	return nil
}

func (s *talk) push(id uint32, body []byte) error {
	if !scanPush(body, &s.scratch, s.sees) {
		return errors.New("a PUSH that cannot be read, or of somebody else's messages")
	}
	if s.pushAck {
		s.l.out = protocol.AppendFrame(s.l.out, protocol.CmdPushAck, id, nil)
	}
	return nil
}

// arrived is called for each message that was pushed to s.at.
func (s *talk) arrived(m *pushed) {
	ln := s.at
	if m.id.sender != ln.peer.c.id {
		s.strange(ln, m)
		return
	}
	if m.id.index >= ln.peer.sent {
		s.checks.Corrupt++ // it was never sent
		return
	}
	moved := false
	switch ln.from.see(m.id.index) {
	case again:
		if ln.pulls > 0 {
			return // the PULL was quicker
		}
		s.checks.Duplicates++
		if m.seq >= ln.seqs.next { // stored twice, so it uses up a number
			ln.seqs.see(m.seq)
		}
		return
	case late:
		s.checks.Order++
		moved = true
	case wild:
		s.checks.Corrupt++
		return
	}
	ln.delivered++
	s.delivered++
	ln.numbered(m.seq, m.id.sender, m.id.index, moved, &s.checks)
	if len(m.content) != s.size || !filled(m.content, seedOf(m.id.sender, m.id.index)) {
		s.checks.Corrupt++
	}
	if s.measured {
		s.deliver.record(int64(s.nowUS - m.id.timeUS))
	}
}

// strange is called for a message that is not the partner's: the connection's own, which is right when its ack had no seq, or
// somebody else's, which never is.
func (s *talk) strange(ln *lane, m *pushed) {
	if m.id.sender != ln.c.id {
		s.checks.Misdelivered++
		return
	}
	s.ownPushes++
	ln.own++
	ln.unnumbered--
	if !ln.seqs.seen(m.seq) {
		ln.numbered(m.seq, m.id.sender, m.id.index, false, &s.checks)
	}
}

// other handles what is rare.
func (s *talk) other(ln *lane, f protocol.Frame) error {
	switch f.Command {
	case protocol.CmdError:
		return s.refused(ln, f)
	case protocol.CmdKick:
		var k protocol.Kick
		if err := protocol.Unmarshal(f.Body, &k); err != nil {
			return err
		}
		return fmt.Errorf("KICK %d %s", k.Reason, k.Message)
	case protocol.CmdGoAway:
		s.l.faults.add("GOAWAY")
	case protocol.CmdPull.Reply():
		return s.pulled(ln, f.Body)
	case protocol.CmdEvent:
		var list protocol.Events
		if err := protocol.Unmarshal(f.Body, &list); err != nil {
			return err
		}
		for i := range list.Events {
			if list.Events[i].Type == protocol.EventResync {
				s.resyncs++
				ln.resyncs++
			}
		}
	}
	return nil // PONG, and whatever a client must ignore
}

// refused handles an ERROR: the message is given up, and its slot rests for as long as the server says.
func (s *talk) refused(ln *lane, f protocol.Frame) error {
	e := &protocol.Error{}
	if err := protocol.Unmarshal(f.Body, e); err != nil {
		return err
	}
	s.l.faults.add(e.Code.String())
	sl, k := ln.answered(f.RequestID)
	if sl == nil {
		if e.Code.Closes() {
			return e
		}
		return nil
	}
	if ln.failed == nil {
		ln.failed = map[uint64]struct{}{}
	}
	ln.failed[sl.index] = struct{}{}
	rest := max(time.Duration(e.RetryAfterMS)*time.Millisecond, 10*time.Millisecond)
	s.resting = append(s.resting, resting{ln, k, s.l.nowNS + int64(rest)})
	return nil
}
