package mongo

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/storagetest"
)

// wholeStore has everything that Verify looks at: 250 messages of a direct conversation with 130 changes, a group with bitmaps, an own stream.
func wholeStore(tb testing.TB) (s *Store, direct, group string) {
	s = openStore(tb)
	r := seeded(30)
	k, g, own := storagetest.Direct("alice", "bob"), storagetest.NewTalk("g:friends", users(70)...), storagetest.NewTalk("u:alice", "alice")
	appendRuns(tb, s, k.Run(r, 250), g.Run(r, 120), own.Run(r, 3))
	for n := uint64(1); n <= 102; n++ {
		apply(tb, s, revokeOf(k.ID, 1+n%100, n))
	}
	var owns []*storage.Own
	for _, user := range g.Members {
		owns = append(owns, &storage.Own{User: user, Conversation: g.ID, Hide: []uint64{7, 107}})
	}
	if err := s.ApplyOwn(context.Background(), owns); err != nil {
		tb.Fatal(err)
	}
	c := &storage.Change{Conversation: g.ID, Seq: 8, ChangeSeq: 1, TimeMS: 1, Labels: storage.Labels{Reactions: []storage.Reaction{{Kind: "+1", Count: 1}}}}
	c.Reactor = &storage.Reactor{User: g.Members[0], Reaction: "+1", On: true}
	apply(tb, s, c)
	purge(tb, s, g.ID, 20, 29, 10)
	if _, _, err := s.RaiseRead(context.Background(), "alice", k.ID, 250, 1); err != nil {
		tb.Fatal(err)
	}
	return s, k.ID, g.ID
}

// damage is something that must be found: what is done to the documents, and a part of what Verify must say then.
type damage struct {
	name string
	do   func(*damaging)
	want string
}

// damaging changes documents by hand.
type damaging struct {
	tb            testing.TB
	s             *Store
	direct, group string
	undo          []func() error
}

// change applies an update to a document, and remembers how to put it back.
func (d *damaging) change(in *mongo.Collection, id string, update bson.D) {
	d.tb.Helper()
	ctx := context.Background()
	one := bson.D{{Key: "_id", Value: id}}
	was, err := in.FindOne(ctx, one).Raw()
	if err != nil {
		d.tb.Fatalf("%s: %v", id, err)
	}
	d.undo = append(d.undo, func() error { _, err := in.ReplaceOne(ctx, one, was); return err })
	if _, err := in.UpdateOne(ctx, one, update); err != nil {
		d.tb.Fatal(err)
	}
}

func (d *damaging) set(in *mongo.Collection, id, field string, value any) {
	d.tb.Helper()
	d.change(in, id, bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}})
}

func (d *damaging) unset(in *mongo.Collection, id, field string) {
	d.tb.Helper()
	d.change(in, id, bson.D{{Key: "$unset", Value: bson.D{{Key: field, Value: ""}}}})
}

func (d *damaging) remove(in *mongo.Collection, id string) {
	d.tb.Helper()
	ctx := context.Background()
	one := bson.D{{Key: "_id", Value: id}}
	was, err := in.FindOneAndDelete(ctx, one).Raw()
	if err != nil {
		d.tb.Fatalf("%s: %v", id, err)
	}
	d.undo = append(d.undo, func() error { _, err := in.InsertOne(ctx, was); return err })
}

func (d *damaging) insert(in *mongo.Collection, doc bson.D) {
	d.tb.Helper()
	bulkInsert(d.tb, in, doc)
	one := bson.D{{Key: "_id", Value: doc[0].Value}}
	d.undo = append(d.undo, func() error { _, err := in.DeleteOne(context.Background(), one); return err })
}

// copyOf inserts a document under another name, with fields changed.
func (d *damaging) copyOf(in *mongo.Collection, id string, fields bson.D) {
	d.tb.Helper()
	var doc bson.D
	if err := in.FindOne(context.Background(), bson.D{{Key: "_id", Value: id}}).Decode(&doc); err != nil {
		d.tb.Fatal(err)
	}
	for i, e := range doc {
		for _, f := range fields {
			if e.Key == f.Key {
				doc[i].Value = f.Value
			}
		}
	}
	for i, e := range doc { // its name comes first
		if e.Key == "_id" {
			doc[0], doc[i] = doc[i], doc[0]
		}
	}
	d.insert(in, doc)
}

// slot is a field of a slot of the direct conversation's bucket 1.
func slotField(i int, field string) string { return fmt.Sprintf("slots.%d.%s", i, field) }

func damages() []damage {
	return []damage{
		{"a slot too few", func(d *damaging) {
			d.change(d.s.buckets, d.direct+":1", bson.D{{Key: "$pop", Value: bson.D{{Key: "slots", Value: 1}}}})
		}, "99 slots instead of 100"},
		{"a bucket missing", func(d *damaging) { d.remove(d.s.buckets, d.direct+":1") }, "between the numbers 0 and 2 are missing"},
		{"the first bucket missing", func(d *damaging) { d.remove(d.s.buckets, d.direct+":0") }, "the buckets below number 1 are missing"},
		{"the newest bucket missing", func(d *damaging) { d.remove(d.s.buckets, d.direct+":2") }, "above the tail 200"},
		{"no bucket at all", func(d *damaging) {
			d.remove(d.s.buckets, d.direct+":0")
			d.remove(d.s.buckets, d.direct+":1")
			d.remove(d.s.buckets, d.direct+":2")
		},
			`there is a row of "alice", and no message`},
		{"a bucket with another's name", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", "n", 7) }, "has the number 7"},
		{"a bucket of another layout", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", "layout", 50) }, "has layout 50"},
		{"a bucket of a move that was not", func(d *damaging) {
			d.copyOf(d.s.buckets, d.direct+":0", bson.D{{Key: "_id", Value: d.direct + ":0/100"}, {Key: "move", Value: 1}})
		},
			"of move 1, which is not noted"},
		{"an orphan above the newest", func(d *damaging) {
			d.copyOf(d.s.buckets, d.direct+":1", bson.D{{Key: "_id", Value: d.direct + ":3"}, {Key: "n", Value: 3}, {Key: "tail", Value: 301}})
			d.set(d.s.buckets, d.direct+":3", "newest", false)
		}, "not flagged as the newest"},
		{"a hole", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", "slots.17", bson.D{}) }, "it is missing"},
		{"an empty message", func(d *damaging) { d.unset(d.s.buckets, d.direct+":1", slotField(17, "msg")) }, "it is missing"},
		{"a slot that is no document", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", slotField(17, "time"), "noon") }, "cannot be read"},
		{"bytes that are no message", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", slotField(17, "msg"), []byte{1, 2, 3}) }, "its body cannot be read"},
		{"an id of another message", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", slotField(17, "id"), make([]byte, 16)) }, "its body is of message 118"},
		{"something above the tail", func(d *damaging) { d.set(d.s.buckets, d.direct+":2", slotField(77, "time"), 5) }, "above the tail 250"},
		{"a tail too low", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", "tail", 199) }, "ends at 199, and there is one above it"},
		{"a tail beyond the bucket", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", "tail", 301) }, "the tail of bucket p:alice:bob:1 is 301"},
		{"a tail in the air", func(d *damaging) { d.set(d.s.buckets, d.direct+":2", "tail", 251) }, "it is missing, and the tail"},
		{"counts of the bucket", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", "counts", bson.A{0, 1}) }, "and the bucket's"},
		{"counts that fall", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", slotField(17, "counts"), bson.A{0, 0}) }, "those of the message before it"},
		{"a time that falls", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", slotField(17, "time"), 5) }, "its log time is 5"},
		{"a time that falls over a border", func(d *damaging) { d.set(d.s.buckets, d.direct+":0", slotField(99, "time"), int64(1)<<60) }, "its log time is"},
		{"something of a message that is gone", func(d *damaging) { d.set(d.s.buckets, d.group+":0", slotField(20, "del_list"), bson.A{"alice"}) }, "something of it is left"},
		{"a list beyond its bound", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", slotField(17, "del_list"), users(65)) }, "beyond their bounds"},
		{"a label that no change made", func(d *damaging) {
			d.set(d.s.buckets, d.direct+":1", slotField(17, "revoke"), bson.D{{Key: "user", Value: "x"}})
		}, "no change made"},
		{"a change that is not noted", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", slotField(17, "change_seq"), 17) }, "not noted to be its"},
		{"a change that there is not", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", slotField(17, "change_seq"), 104) }, "had change 104, and there are 102"},
		{"a note without its label", func(d *damaging) { d.unset(d.s.buckets, d.direct+":0", slotField(2, "change_seq")) }, "and its label is of 0"},
		{"a note of another message", func(d *damaging) { d.set(d.s.changes, d.direct+":0", "slots.50.seq", 4) }, "not noted to be its"},
		{"a note of no message", func(d *damaging) { d.set(d.s.changes, d.direct+":1", "slots.0.seq", 251) }, "there is no such message"},
		{"an empty note", func(d *damaging) { d.set(d.s.changes, d.direct+":0", "slots.50", bson.D{}) }, "change 51 is of message 0"},
		{"a note above the tail", func(d *damaging) { d.set(d.s.changes, d.direct+":1", "slots.50.seq", 4) }, "change 151 is of message 4"},
		{"a change bucket missing", func(d *damaging) { d.remove(d.s.changes, d.direct+":0") }, "the change buckets below number 1 are missing"},
		{"a change bucket's slots", func(d *damaging) {
			d.change(d.s.changes, d.direct+":0", bson.D{{Key: "$pop", Value: bson.D{{Key: "slots", Value: 1}}}})
		}, "has 99 slots"},
		{"a change bucket's tail", func(d *damaging) { d.set(d.s.changes, d.direct+":0", "tail", 99) }, "the tail of change bucket p:alice:bob:0 is 99"},
		{"a change bucket's number", func(d *damaging) { d.set(d.s.changes, d.direct+":1", "n", 2) }, "has the number 2"},
		{"change buckets of nothing", func(d *damaging) {
			d.copyOf(d.s.changes, d.group+":0", bson.D{{Key: "_id", Value: "g:none:0"}, {Key: "conv", Value: "g:none"}})
		},
			"there is no such message"},
		{"a change bucket without its flag", func(d *damaging) { d.unset(d.s.changes, d.direct+":1", "newest") }, "is not flagged as the newest"},
		{"no newest flag", func(d *damaging) { d.unset(d.s.buckets, d.direct+":2", "newest") }, "not flagged as the newest"},
		{"two newest flags", func(d *damaging) { d.set(d.s.buckets, d.direct+":0", "newest", true) }, "its old bucket 0 is flagged as the newest"},
		{"a sealed bucket", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", "sealed", true) }, "are sealed, and it was not moved on"},
		{"all sealed", func(d *damaging) { d.set(d.s.buckets, "u:alice:0", "sealed", true) }, "all its buckets are sealed"},
		{"a layout of nothing", func(d *damaging) {
			d.insert(d.s.layouts, bson.D{{Key: "_id", Value: "g:none"}, {Key: "to", Value: 50}, {Key: "move", Value: 1}})
		},
			"its layout is noted, and there is no message"},
		{"a layout that is not there", func(d *damaging) {
			d.insert(d.s.layouts, bson.D{{Key: "_id", Value: d.direct}, {Key: "to", Value: 50}, {Key: "move", Value: 1}})
		},
			"it was moved to layout 50, and has no bucket there"},
		{"a row missing", func(d *damaging) { d.remove(d.s.rows, rowID("bob", d.direct)) }, `is not on the list of "bob"`},
		{"a row of a stranger", func(d *damaging) {
			d.copyOf(d.s.rows, rowID("bob", d.direct), bson.D{{Key: "_id", Value: rowID("carol", d.direct)}, {Key: "user", Value: "carol"}})
		}, `is of the user "carol"`},
		{"a row of nothing", func(d *damaging) {
			d.copyOf(d.s.rows, rowID("alice", d.direct), bson.D{{Key: "_id", Value: rowID("alice", "g:none")}, {Key: "conv", Value: "g:none"}})
		}, "and no message"},
		{"a watermark above the tail", func(d *damaging) { d.set(d.s.rows, rowID("alice", d.direct), "read_seq", 251) }, "has read up to 251"},
		{"a count above the counts", func(d *damaging) { d.set(d.s.rows, rowID("alice", d.direct), "read_count", 999) }, "has read 999 messages"},
		{"a min_seq above the tail", func(d *damaging) { d.set(d.s.rows, rowID("alice", d.direct), "min_seq", 252) }, "may read from 252"},
		{"a bitmap of nobody", func(d *damaging) { d.remove(d.s.rows, rowID("user000069", d.group)) }, "and no row"},
		{"a bitmap of nothing", func(d *damaging) {
			d.copyOf(d.s.hidden, hiddenFrom("user000069", d.group).id(7), bson.D{{Key: "_id", Value: hiddenFrom("user000069", "g:none").id(7)}})
		}, "and the tail is 0"},
		{"a bitmap of another chunk", func(d *damaging) {
			d.copyOf(d.s.hidden, hiddenFrom("user000069", d.group).id(7), bson.D{{Key: "_id", Value: string(hiddenFrom("user000069", d.group)) + "1"}})
		}, "and the tail is 120"},
		{"bytes that are no bitmap", func(d *damaging) { d.set(d.s.hidden, hiddenFrom("user000069", d.group).id(7), "bits", []byte{1, 2, 3}) }, "damaged"},
		{"reactors of nothing", func(d *damaging) {
			d.copyOf(d.s.reactors, reactedBy("user000000", d.group, "+1").id(8), bson.D{{Key: "_id", Value: reactedBy("user000000", "g:none", "+1").id(8)}})
		}, "and the tail is 0"},
		{"reactors without a kind", func(d *damaging) {
			d.copyOf(d.s.reactors, reactedBy("user000000", d.group, "+1").id(8), bson.D{{Key: "_id", Value: hiddenFrom("user000000", d.group).id(8)}})
		}, "is not one"},
		{"a document that is none", func(d *damaging) { d.set(d.s.buckets, d.direct+":1", "tail", "high") }, "cannot be read"},
	}
}

// TestVerifyFinds damages a whole store in every way, one at a time: each is found, and nothing is left of it after it was put back.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	s, direct, group := wholeStore(t)
	want := storage.Verified{Conversations: 3, Messages: 373, Gone: 10, Buckets: 6, Changes: 103, Rows: 73}
	if v := sound(t, s); v != want {
		t.Fatalf("verified %+v, want %+v", v, want)
	}
	for _, c := range damages() {
		t.Run(c.name, func(t *testing.T) {
			d := &damaging{tb: t, s: s, direct: direct, group: group}
			c.do(d)
			var found []string
			v, err := s.Verify(t.Context(), func(f storage.Fault) { found = append(found, f.What) }, nil)
			if err != nil || v.Faults != uint64(len(found)) {
				t.Errorf("%d faults, %d reported, %v", v.Faults, len(found), err)
			}
			if !strings.Contains(strings.Join(found, "\n"), c.want) {
				t.Errorf("want %q, found\n%s", c.want, strings.Join(found, "\n"))
			}
			if len(found) > 120 {
				t.Errorf("%d faults", len(found))
			}
			for i := len(d.undo) - 1; i >= 0; i-- {
				if err := d.undo[i](); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if v := sound(t, s); v != want {
		t.Fatalf("verified %+v, want %+v", v, want)
	}
}

// TestVerifyAllows: what a crash, or a write that is under way, may leave is no fault.
func TestVerifyAllows(t *testing.T) {
	t.Parallel()
	s, direct, group := wholeStore(t)
	d := &damaging{tb: t, s: s, direct: direct, group: group}
	d.set(s.buckets, direct+":1", slotField(17, "change_seq"), 103) // a label without its note
	d.set(s.buckets, direct+":1", "newest", true)
	d.set(s.changes, direct+":0", "newest", true)
	d.unset(s.buckets, group+":1", slotField(6, "del_more"))
	if _, err := s.rows.BulkWrite(t.Context(), []mongo.WriteModel{newRow("alice", "p:alice:zoe"), newRow("zoe", "p:alice:zoe")}); err != nil {
		t.Fatal(err)
	}
	sound(t, s)
}

// TestVerifyReportsProgress: after each conversation, and what is counted never falls.
func TestVerifyReportsProgress(t *testing.T) {
	t.Parallel()
	s, _, _ := wholeStore(t)
	var seen []storage.Verified
	last, err := s.Verify(t.Context(), func(storage.Fault) {}, func(v storage.Verified) { seen = append(seen, v) })
	if err != nil || len(seen) < 3 {
		t.Fatalf("%d times, %v", len(seen), err)
	}
	for i := range seen[1:] {
		if a, b := seen[i], seen[i+1]; b.Conversations < a.Conversations || b.Messages < a.Messages || b.Rows < a.Rows || b.Changes < a.Changes {
			t.Fatalf("after %+v comes %+v", a, b)
		}
	}
	if seen[0].Conversations != 1 || seen[len(seen)-1] != last {
		t.Fatalf("from %+v to %+v; the end is %+v", seen[0], seen[len(seen)-1], last)
	}
}
