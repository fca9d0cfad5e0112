//go:build linux

package bench

import "github.com/parley-im/parley/protocol"

// pullRequest is the request id of a lane's PULL. No slot has it: their generations stop before this one's.
const pullRequest = pingRequest - 1

// maxPulls bounds what one lane asks for at the end.
const maxPulls = 1000

// repair does what an app does after EVENT resync, which says that the server skipped pushes for a connection that read too slowly: it pulls
// what it has not seen. It waits for the end of the load, so that a run measures pushes only. A connection that was not told to resync
// pulls nothing: what it misses is lost.
func (s *talk) repair(ln *lane) {
	if ln.resyncs == 0 || ln.pulling || ln.pulls == maxPulls || ln.dead || ln.peer.lost() == 0 {
		return
	}
	from := ln.seqs.next
	for seq := range ln.seqs.missing {
		from = min(from, seq)
	}
	ln.pulling = true
	ln.pulls++
	s.l.out = protocol.AppendFrame(s.l.out, protocol.CmdPull, pullRequest, &protocol.Pull{
		ConversationID: protocol.DirectConversation(ln.user, ln.peer.user), FromSeq: max(from, 1), Limit: protocol.MaxSeqs,
	})
	s.l.flush(ln.c)
}

// pulled takes the reply.
func (s *talk) pulled(ln *lane, body []byte) error {
	var r protocol.PullReply
	if err := protocol.UnmarshalAlias(body, &r); err != nil {
		return err
	}
	ln.pulling = false
	for i := range r.Messages {
		m := &r.Messages[i]
		id, ok := parseID([]byte(m.ClientMsgID))
		switch {
		case !ok || ln.seqs.seen(m.Seq):
		case id.sender == ln.c.id:
			ln.numbered(m.Seq, id.sender, id.index, true, &s.checks)
		case id.sender != ln.peer.c.id || id.index >= ln.peer.sent:
			s.checks.Misdelivered++
		default:
			s.fetched(ln, m, id)
		}
	}
	if len(r.Messages) == 0 {
		ln.pulls = maxPulls // the server has no more
	}
	return nil
}

// fetched takes a message of the partner that came by PULL.
func (s *talk) fetched(ln *lane, m *protocol.Message, id msgID) {
	if v := ln.from.see(id.index); v == again || v == wild {
		s.checks.Duplicates++
		return
	}
	s.fetches++
	ln.numbered(m.Seq, id.sender, id.index, true, &s.checks)
	if len(m.Content) != s.size || !filled(m.Content, seedOf(id.sender, id.index)) {
		s.checks.Corrupt++
	}
}
