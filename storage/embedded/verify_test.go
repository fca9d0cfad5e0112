package embedded

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

// damagedStore is a sound store with one conversation, p:alice:bob: runs of 3, 5 and 2 messages, labels on 2, 4 and 5 of which 5 has more reactions than
// it names, a deletion of 4 by bob, who has read all, and 10 gone.
func damagedStore(t *testing.T) *Store {
	s := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem()})
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{3, 5, 2} {
		appendAndWait(t, s, k.Run(r, n))
	}
	changes := []*storage.Change{k.React(2, "alice", "+1", true), k.React(4, "bob", "+1", true)}
	for i := range protocol.MaxReactors + 1 {
		changes = append(changes, k.React(5, fmt.Sprint("fan", i), "+1", true))
	}
	for _, c := range changes {
		if err := s.Apply(t.Context(), []*storage.Change{c}); err != nil || c.Err != nil {
			t.Fatal(err, c.Err)
		}
	}
	if err := s.ApplyOwn(t.Context(), []*storage.Own{k.Own("bob", 2, 4)}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.RaiseRead(t.Context(), "bob", k.ID, 10, 0); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(t.Context(), k.ID, 10, 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	return s
}

// TestVerifyFinds: each damage that is done to a store by hand is found, and where.
func TestVerifyFinds(t *testing.T) {
	const id, latest = "p:alice:bob", 2 + protocol.MaxReactors + 1
	set := func(key, value []byte) func(t *testing.T, s *Store) {
		return func(t *testing.T, s *Store) {
			if err := s.db.Set(key, value, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(key []byte) func(t *testing.T, s *Store) {
		return func(t *testing.T, s *Store) {
			if _, err := s.get(key); err != nil {
				t.Fatalf("key %q: %v", key, err)
			}
			if err := s.db.Delete(key, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(seq uint64, change func(key, value []byte) (newKey, newValue []byte)) func(t *testing.T, s *Store) {
		return func(t *testing.T, s *Store) {
			r, err := s.newRuns(id)
			if err != nil || !r.seek(seq, false) {
				t.Fatal(err)
			}
			key := append([]byte(nil), r.it.Key()...)
			value, err := s.get(key)
			if err != nil || r.close() != nil {
				t.Fatal(err)
			}
			newKey, newValue := change(append([]byte(nil), key...), value)
			remove(key)(t, s)
			if newKey != nil {
				set(newKey, newValue)(t, s)
			}
		}
	}
	lost := func(_, _ []byte) ([]byte, []byte) { return nil, nil }
	label := func(first, seq uint64) []byte { return labelKey(nil, id, first, seq) }
	plus := storage.Labels{Reactions: []storage.Reaction{{Kind: "+1", Count: 1, Users: []string{"alice"}}}}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, s *Store)
		seq    uint64
		want   string
	}{
		{"the newest run lost", run(10, lost), 0, "read_seq 10"},
		{"a run in the middle lost", run(5, lost), 4, "ends at 3"},
		{"the oldest run lost", run(1, lost), 4, "begins at 4"},
		{"a run's key", run(5, func(key, value []byte) ([]byte, []byte) { return key[:len(key)-1], value }), 0, "cannot be read"},
		{"a run's last message lost", run(5, func(key, value []byte) ([]byte, []byte) { return key, value[:len(value)-200] }), 0, "cannot be read"},
		{"a run with more than its messages", run(5, func(key, value []byte) ([]byte, []byte) { return key, append(value, 0) }), 4, "1 bytes are left"},
		{"a run's first message is another", run(1, func(key, value []byte) ([]byte, []byte) {
			return key, protocol.AppendBody(nil, &protocol.Message{ConversationID: id, Seq: 2, Sender: "a"})
		}), 1, "cannot be read"},
		{"counts", run(1, func(key, value []byte) ([]byte, []byte) { key[len(key)-2] ^= 1; return key, value }), 0, "count"},
		{"labels", set(label(1, 2), []byte{layout, 1}), 2, "cannot be read"},
		{"labels of no message", set(label(4, 2), appendLabels(nil, 1, 1, &plus)), 2, "labels of no message"},
		{"labels of what is gone", set(label(9, 10), appendLabels(nil, 1, 2, &plus)), 10, "gone"},
		{"labels ahead", set(label(1, 2), appendLabels(nil, 1, 1000, &plus)), 2, "the labels are of change 1000"},
		{"labels lost", remove(label(1, 2)), 2, "its labels are of change 0"},
		{"a note lost", remove(noteKey(nil, id, 1)), 2, "not among the changes"},
		{"a note of nothing", set(noteKey(nil, id, 3), appendNote(nil, storage.Note{Seq: 3})), 3, "its labels are of change 0"},
		{"a note ahead", set(noteKey(nil, id, latest+1), appendNote(nil, storage.Note{Seq: 3})), 3, "above the latest"},
		{"a note", set(noteKey(nil, id, 1), []byte{layout}), 0, "cannot be read"},
		{"the latest change lost", remove(headKey(nil, id)), 2, "the conversation's latest is 0"},
		{"the latest change", set(headKey(nil, id), []byte{7}), 0, "cannot be read"},
		{"a reaction lost", remove(reactionKey(nil, id, 5, "+1", fmt.Sprint("fan", protocol.MaxReactors))), 5, "off by 1"},
		{"a reaction too many", set(reactionKey(nil, id, 5, "-1", "fan0"), []byte{layout, 1}), 5, "off by -1"},
		{"a reaction", set(seekReaction(nil, id, 5), nil), 0, "cannot be read"},
		{"a deletion of nothing", set(hideKey(nil, id, "bob", 0), appendHidden(nil, 1, []byte{0, 8})), 11, "no such message"},
		{"a deletion by nobody", set(hideKey(nil, id, "carol", 0), appendHidden(nil, 1, []byte{2})), 0, "carol deleted"},
		{"a deletion", set(hideKey(nil, id, "bob", 0), nil), 0, "cannot be read"},
		{"a row lost", remove(rowKey(nil, id, "alice")), 0, "the list of alice"},
		{"off a list", remove(listKey(nil, "alice", id)), 0, "not on the list"},
		{"a row ahead", set(rowKey(nil, id, "alice"), appendRow(nil, &storage.View{ReadSeq: 11, MinSeq: 1})), 0, "read_seq 11"},
		{"a row cleared too far", set(rowKey(nil, id, "alice"), appendRow(nil, &storage.View{MinSeq: 12})), 0, "min_seq 12"},
		{"a row", set(rowKey(nil, id, "alice"), []byte{9}), 0, "cannot be read"},
		{"a conversation with nothing in it", set(rowKey(nil, "p:x:y", "x"), appendRow(nil, &storage.View{MinSeq: 1})), 0, "no messages"},
		{"a key of no conversation", set([]byte{talkSpace, 'a'}, nil), 0, "no conversation"},
		{"a key of something else", set([]byte("x"), nil), 0, "not one of this store"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := damagedStore(t)
			if faults := faultsOf(t, s); len(faults) != 0 {
				t.Fatalf("before the damage: %v", faults)
			}
			c.damage(t, s)
			faults := faultsOf(t, s)
			for _, f := range faults {
				if strings.Contains(f.What, c.want) && (c.seq == 0 || f.Seq == c.seq) {
					return
				}
			}
			t.Fatalf("found %+v, want %q of seq %d", faults, c.want, c.seq)
		})
	}
}

func faultsOf(t *testing.T, s *Store) (faults []storage.Fault) {
	t.Helper()
	v, err := s.Verify(t.Context(), func(f storage.Fault) { faults = append(faults, f) }, nil)
	if err != nil || v.Faults != uint64(len(faults)) {
		t.Fatalf("verified %+v, %v", v, err)
	}
	return faults
}

// TestVerifyFindsADamagedFile: what the disk's checksums find is a fault with its place, or the end of the verification; never nothing.
func TestVerifyFindsADamagedFile(t *testing.T) {
	files := vfs.NewMem()
	o := Options{Dir: "data", FS: files}
	s := mustOpen(t, o)
	k, r := storagetest.Direct("alice", "bob"), rand.New(rand.NewPCG(1, 1))
	for range 50 {
		appendAndWait(t, s, k.Run(r, 20))
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	flipBits(t, files)
	s = mustOpen(t, o)
	var faults []storage.Fault
	_, err := s.Verify(t.Context(), func(f storage.Fault) { faults = append(faults, f) }, nil)
	if len(faults) == 0 && err == nil {
		t.Fatal("a damaged file was not found")
	}
}

// flipBits damages the middle of the files with the messages.
func flipBits(t *testing.T, files *vfs.MemFS) {
	t.Helper()
	names, err := files.List("data/db")
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".blob") {
			continue
		}
		f, err := files.OpenReadWrite("data/db/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("damage"), info.Size()/2); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		done++
	}
	if done == 0 {
		t.Fatal("there are no such files")
	}
}

// TestLabelsRoundTrip: and nothing that is cut short is taken for labels.
func TestLabelsRoundTrip(t *testing.T) {
	for i, l := range []storage.Labels{
		{ChangeSeq: 1},
		{ChangeSeq: math.MaxUint64, Revoke: &protocol.Revoke{User: "alice", Role: protocol.RoleOperator, TimeMS: math.MaxInt64}},
		{ChangeSeq: 2, Edit: &storage.Edit{ContentType: math.MaxUint16, Content: []byte("so"), TimeMS: 1}},
		{ChangeSeq: 3, Edit: &storage.Edit{}, Reactions: []storage.Reaction{{Kind: "+1", Count: math.MaxUint32, Users: []string{"a", "b"}}, {Kind: "-1", Count: 1}}},
	} {
		b := appendLabels(nil, 5, l.ChangeSeq, &l)
		if got, ok := parseLabels(b); !ok || !storagetest.SameLabels(&got, &l) {
			t.Errorf("labels %d became %+v (%t)", i, got, ok)
		}
		for n := range b {
			if _, ok := parseLabels(b[:n]); ok {
				t.Errorf("%d of %d bytes are taken for labels", n, len(b))
			}
		}
	}
}
