package embedded

import (
	"bytes"
	"cmp"
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// Changed implements storage.Directory. The list is joined here: for each conversation on it the rows and the newest run's key, which lie
// side by side, and no message. upTo is taken before anything is read; what lands after that has a higher stamp.
func (s *Store) Changed(ctx context.Context, user string, since storage.Stamp) (entries []storage.Entry, upTo storage.Stamp, err error) {
	if !s.gate.enter() {
		return nil, 0, storage.ErrClosed
	}
	defer s.gate.leave()
	upTo = s.flight.upTo()
	if badID(user) {
		return nil, upTo, nil
	}
	lower := appendKey(nil, listSpace, user, endOfUser)
	upper := appendKey(nil, listSpace, user, endOfUser+1)
	list, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = cmp.Or(err, list.Close()) }()
	t, err := s.newTalks(user) // after list, so that it has all that is on it
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = cmp.Or(err, t.it.Close()) }()
	for ok := list.First(); ok; ok = list.Next() {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		e, err := t.entry(string(list.Key()[len(lower):]))
		if err != nil {
			return nil, 0, err
		}
		if e != nil && e.Changed > since {
			entries = append(entries, *e)
		}
	}
	return entries, upTo, list.Error()
}

// Entries implements storage.Directory.
func (s *Store) Entries(ctx context.Context, user string, conversations []string) (entries []storage.Entry, err error) {
	if !s.gate.enter() {
		return nil, storage.ErrClosed
	}
	defer s.gate.leave()
	t, err := s.newTalks(user)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, t.it.Close()) }()
	for _, conversation := range conversations {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := t.entry(conversation)
		if err != nil {
			return nil, err
		}
		if e != nil {
			entries = append(entries, *e)
		}
	}
	return entries, nil
}

// talks reads entries of a user's list, all as of one moment.
type talks struct {
	it     *pebble.Iterator
	flight *flight
	user   string
	key    []byte        // of the last seek
	e      storage.Entry // what entry returns
}

func (s *Store) newTalks(user string) (*talks, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{talkSpace}, UpperBound: []byte{talkSpace + 1}})
	return &talks{it: it, flight: &s.flight, user: user}, err
}

// entry is the user's entry of a conversation, or nil when there is none. It is good until the next call.
func (t *talks) entry(conversation string) (*storage.Entry, error) {
	if badID(conversation) || badID(t.user) {
		return nil, nil
	}
	kind, a, b := protocol.ParseConversation(conversation)
	t.e = storage.Entry{}
	var found bool
	var err error
	if kind == protocol.KindDirect {
		found, err = t.direct(conversation, a, b)
	} else {
		found, err = t.member(conversation)
	}
	if err != nil || !found {
		return nil, err
	}
	return &t.e, nil
}

// direct finds all of an entry with one seek: the two rows come first, then the latest change, then the newest run.
func (t *talks) direct(conversation, a, b string) (found bool, err error) {
	peer := a
	if t.user == a {
		peer = b
	}
	t.key = appendKey(t.key[:0], talkSpace, conversation, rowMark)
	ok := t.it.SeekGE(t.key)
	for ; ok && bytes.HasPrefix(t.it.Key(), t.key); ok = t.it.Next() {
		who := t.it.Key()[len(t.key):]
		if len(who) == 1 && who[0] == headEnd {
			if err := t.change(); err != nil {
				return false, err
			}
			continue
		}
		v, durable, err := t.row(conversation)
		if err != nil {
			return false, err
		}
		if durable && string(who) == t.user {
			t.e.View, found = v, true
			t.e.Changed = max(t.e.Changed, v.Stamp)
		}
		if durable && string(who) == peer {
			t.e.PeerReadSeq = v.ReadSeq
			t.e.Changed = max(t.e.Changed, v.Stamp)
		}
	}
	if !found || !ok {
		return false, t.it.Error()
	}
	return true, t.state(conversation)
}

// member finds an entry where there may be very many rows.
func (t *talks) member(conversation string) (found bool, err error) {
	t.key = rowKey(t.key[:0], conversation, t.user)
	if !t.it.SeekGE(t.key) || !bytes.Equal(t.it.Key(), t.key) {
		return false, t.it.Error()
	}
	v, durable, err := t.row(conversation)
	if err != nil || !durable {
		return false, err
	}
	t.e.View, t.e.Changed = v, v.Stamp
	t.key = headKey(t.key[:0], conversation)
	ok := t.it.SeekGE(t.key)
	if ok && bytes.Equal(t.it.Key(), t.key) {
		if err := t.change(); err != nil {
			return false, err
		}
		ok = t.it.Next()
	}
	if !ok {
		return false, t.it.Error()
	}
	return true, t.state(conversation)
}

// change reads the latest change, which the iterator is at, as it is durable.
func (t *talks) change() error {
	value, err := t.it.ValueAndErr()
	if err != nil {
		return err
	}
	stamp, seq, ok := parseChange(value)
	if !ok {
		return damaged("the latest change", t.it.Key())
	}
	if old, flying := t.flight.before(t.it.Key(), stamp); flying {
		stamp, seq, _ = parseChange(old) // zeros when there was none
	}
	t.e.ChangeSeq, t.e.Changed = seq, max(t.e.Changed, stamp)
	return nil
}

// row reads the row that the iterator is at, as it is durable.
func (t *talks) row(conversation string) (v storage.View, durable bool, err error) {
	value, err := t.it.ValueAndErr()
	if err != nil {
		return v, false, err
	}
	v, ok := parseRow(value, conversation)
	if !ok {
		return v, false, damaged("a row", t.it.Key())
	}
	if old, flying := t.flight.before(t.it.Key(), v.Stamp); flying {
		v, ok = parseRow(old, conversation)
	}
	return v, ok, nil
}

// state reads where the conversation stands from the run that the iterator is at, the newest, or from one below it when that is not durable.
func (t *talks) state(conversation string) error {
	limit := t.flight.durable(conversation)
	t.key = appendKey(t.key[:0], talkSpace, conversation, runMark)
	for ok := true; ok && bytes.HasPrefix(t.it.Key(), t.key); ok = t.it.Next() {
		h, ok := parseHead(t.it.Key()[len(t.key):])
		if !ok {
			return damaged("a run", t.it.Key())
		}
		if h.first <= limit {
			t.e.State = h.state()
			t.e.Changed = max(t.e.Changed, h.stamp)
			break
		}
	}
	return t.it.Error()
}
