package logic

import (
	"slices"
	"unicode/utf8"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// react sets or takes back a reaction: whoever may read the message may.
func (l *Logic) react(s *session, j job, q *protocol.React) error {
	if q.Reaction == "" || !utf8.ValidString(q.Reaction) {
		return invalid("reaction must have 1 to 32 bytes of UTF-8")
	}
	slot, err := l.changeable(s, q.ConversationID, q.Seq)
	if err != nil {
		return err
	}
	if slot.Labels.Revoke != nil {
		return storage.ErrNotFound
	}
	return l.intend(s, j, q.ConversationID, &storage.Intent{Op: storage.OpReact, Seq: q.Seq, Reaction: q.Reaction, On: q.On})
}

// reactLabels counts the user in or out. Labels are as the user sees them, so that Mine is theirs. Users are named as far as the slot has
// room; of the others only the count is in it, and the Reactor says who they are.
func reactLabels(l *storage.Labels, in *storage.Intent) (*storage.Labels, *storage.Reactor, error) {
	list := slices.Clone(l.Reactions)
	i := slices.IndexFunc(list, func(r storage.Reaction) bool { return r.Kind == in.Reaction })
	if mine := i >= 0 && list[i].Mine; mine == in.On {
		return nil, nil, nil
	}
	if i < 0 {
		if len(list) >= protocol.MaxReactions {
			return nil, nil, invalid("the message has as many kinds of reactions as it can have")
		}
		i = len(list)
		list = append(list, storage.Reaction{Kind: in.Reaction})
	}
	r := &list[i]
	var reactor *storage.Reactor
	place := slices.Index(r.Users, in.User)
	switch {
	case in.On && named(list) < protocol.MaxReactors:
		r.Users = append(slices.Clone(r.Users), in.User)
		r.Count++
	case !in.On && place >= 0:
		r.Users = slices.Delete(slices.Clone(r.Users), place, place+1)
		r.Count--
	default:
		reactor = &storage.Reactor{User: in.User, Reaction: in.Reaction, On: in.On}
		if in.On {
			r.Count++
		} else {
			r.Count--
		}
	}
	if r.Count == 0 {
		list = slices.Delete(list, i, i+1)
	}
	for i := range list {
		list[i].Mine = false // is computed when it is read
	}
	return &storage.Labels{Edit: l.Edit, Reactions: list}, reactor, nil
}

// named is how many users the slot names.
func named(list []storage.Reaction) (n int) {
	for i := range list {
		n += len(list[i].Users)
	}
	return n
}

// ownReactor is the Reactor that went with a label that is there already.
func ownReactor(l *storage.Labels, in *storage.Intent) *storage.Reactor {
	if in.Op != storage.OpReact {
		return nil
	}
	for i := range l.Reactions {
		if r := &l.Reactions[i]; r.Kind == in.Reaction && slices.Contains(r.Users, in.User) {
			return nil
		}
	}
	return &storage.Reactor{User: in.User, Reaction: in.Reaction, On: in.On}
}
