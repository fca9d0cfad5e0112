package mongo

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// labelFields are the fields of a slot that are labels.
func labelFields() []string {
	return []string{"revoke", "edit", "reactions", "change_seq", "del_list", "del_more", "gone"}
}

type revoke struct {
	User string        `bson:"user"`
	Role protocol.Role `bson:"role"`
	Time int64         `bson:"time"`
}

type edit struct {
	Type    uint16 `bson:"type"`
	Content []byte `bson:"content"`
	Time    int64  `bson:"time"`
}

type reaction struct {
	Kind  string   `bson:"kind"`
	Count uint32   `bson:"count"`
	Users []string `bson:"users"`
}

// forViewer is what the labels say to a viewer; "" is nobody. askHidden and askMine tell what the bitmaps must be asked for as well.
func (l *slot) forViewer(viewer string) (out storage.Labels, askHidden bool, askMine []string) {
	out = storage.Labels{Gone: l.Gone, ChangeSeq: l.ChangeSeq}
	if l.Revoke != nil {
		out.Revoke = &protocol.Revoke{User: l.Revoke.User, Role: l.Revoke.Role, TimeMS: l.Revoke.Time}
	}
	if l.Edit != nil {
		out.Edit = &storage.Edit{ContentType: l.Edit.Type, Content: l.Edit.Content, TimeMS: l.Edit.Time}
	}
	for _, r := range l.Reactions {
		mine := viewer != "" && slices.Contains(r.Users, viewer)
		if viewer != "" && !mine && int(r.Count) > len(r.Users) {
			askMine = append(askMine, r.Kind)
		}
		out.Reactions = append(out.Reactions, storage.Reaction{Kind: r.Kind, Count: r.Count, Users: r.Users, Mine: mine})
	}
	out.Hidden = viewer != "" && slices.Contains(l.DelList, viewer)
	return out, viewer != "" && l.DelMore && !out.Hidden, askMine
}

// setLabels is the $set and $unset that make the labels of a slot that everybody sees what l says. The slot is named like slots.85; change_seq is
// left to the caller.
func setLabels(slot string, l *storage.Labels) (set, unset bson.D) {
	put := func(field string, there bool, value any) {
		if there {
			set = append(set, bson.E{Key: slot + "." + field, Value: value})
		} else {
			unset = append(unset, bson.E{Key: slot + "." + field, Value: ""})
		}
	}
	if l.Revoke != nil {
		put("revoke", true, revoke{User: l.Revoke.User, Role: l.Revoke.Role, Time: l.Revoke.TimeMS})
	} else {
		put("revoke", false, nil)
	}
	if l.Edit != nil {
		put("edit", true, edit{Type: l.Edit.ContentType, Content: l.Edit.Content, Time: l.Edit.TimeMS})
	} else {
		put("edit", false, nil)
	}
	list := make([]reaction, len(l.Reactions))
	for i, r := range l.Reactions {
		list[i] = reaction{Kind: r.Kind, Count: r.Count, Users: append([]string{}, r.Users...)}
	}
	put("reactions", len(list) > 0, list)
	return set, unset
}
