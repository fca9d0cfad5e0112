package mongo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
	"github.com/parley-im/parley/storage/storagetest"
)

// users are n user names.
func users(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("user%06d", i)
	}
	return list
}

// sizeOf is how many bytes a bucket takes.
func sizeOf(tb testing.TB, s *Store, id string) int {
	tb.Helper()
	raw, err := s.buckets.FindOne(context.Background(), bson.D{{Key: "_id", Value: id}}).Raw()
	if err != nil {
		tb.Fatal(err)
	}
	return len(raw)
}

// hiddenFor tells which of [1, to] are hidden from the user.
func hiddenFor(tb testing.TB, s *Store, conversation, user string, to uint64) (hidden []uint64) {
	tb.Helper()
	err := s.Read(context.Background(), storage.Range{Conversation: conversation, Viewer: user, From: 1, To: to}, func(slot *storage.Slot) bool {
		if slot.Labels.Hidden {
			hidden = append(hidden, slot.Message.Seq)
		}
		return true
	})
	if err != nil {
		tb.Fatal(err)
	}
	return hidden
}

// Test200WritersHideOneMessage: 64 are named in the slot, 136 are beside it, and nobody else is touched.
func Test200WritersHideOneMessage(t *testing.T) {
	t.Parallel()
	s, k := openStore(t), storagetest.NewTalk("g:friends", users(201)...)
	appendRuns(t, s, k.Run(seeded(10), 9))
	var all sync.WaitGroup
	for _, user := range k.Members[:200] {
		all.Go(func() {
			for range 2 { // the second changes nothing
				if err := s.ApplyOwn(context.Background(), []*storage.Own{{User: user, Conversation: k.ID, Hide: []uint64{5}}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i, user := range k.Members {
		if got := hiddenFor(t, s, k.ID, user, 9); fmt.Sprint(got) != map[bool]string{true: "[5]", false: "[]"}[i < 200] {
			t.Fatalf("hidden from %s: %v", user, got)
		}
	}
	in, err := s.Inspect(t.Context(), k.ID, []uint64{5, 6})
	if err != nil || len(in.Slots) != 2 || len(in.Slots[0].DelList) != storage.MaxDeleters || !in.Slots[0].DelMore || len(in.Slots[1].DelList) > 0 {
		t.Fatalf("%+v, %v", in, err)
	}
	for i, r := range in.Rows {
		if r.User != k.Members[i] || r.Hidden != 1 && i < 200 || r.Hidden != 0 && i == 200 {
			t.Fatalf("row %+v", r)
		}
	}
	if n, err := s.hidden.CountDocuments(t.Context(), bson.D{}); n != 200-storage.MaxDeleters || err != nil {
		t.Fatalf("%d bitmaps, %v", n, err)
	}
	sound(t, s)
}

// TestManyUsersHideAWholeBucket: 10,000 users delete every message of a bucket, with PARLEY_TEST_LARGE=1 100,000 of them. It stays small, and each viewer
// sees it right.
func TestManyUsersHideAWholeBucket(t *testing.T) {
	onlyLarge(t)
	t.Parallel()
	const batch = 5000
	many := 10_000
	if os.Getenv("PARLEY_TEST_LARGE") == "1" {
		many = 100_000
	}
	s, k := openStore(t), storagetest.NewTalk("g:all", users(many+1)...)
	run := k.Run(seeded(11), 101)
	run.Members = nil // their rows are made here, many in one command
	appendRuns(t, s, run)
	makeRows(t, s, k.ID, k.Members)
	seqs := make([]uint64, 100)
	for i := range seqs {
		seqs[i] = uint64(i + 1)
	}
	all, stranger := k.Members[:many], k.Members[many]
	var owns []*storage.Own
	for _, user := range all {
		if owns = append(owns, &storage.Own{User: user, Conversation: k.ID, Hide: seqs}); len(owns) == batch {
			if err := s.ApplyOwn(t.Context(), owns); err != nil {
				t.Fatal(err)
			}
			owns = nil
		}
	}
	size := sizeOf(t, s, k.ID+":0")
	t.Logf("the bucket takes %d bytes", size)
	if size > 1<<20 {
		t.Fatal("that is too much")
	}
	if got := hiddenFor(t, s, k.ID, stranger, 101); len(got) != 0 {
		t.Fatalf("hidden from a stranger: %v", got)
	}
	// All who are not named in the lists have a bitmap with all of the messages.
	named := make(map[string]bool)
	var lists []deleters
	if _, err := s.pick(t.Context(), k.ID+":0", []int{0, 1, 99}, fieldsOf("del_list", "del_more"), &lists); err != nil || len(lists[2].List) != storage.MaxDeleters {
		t.Fatal(lists, err)
	}
	for _, user := range lists[0].List {
		named[user] = lists[0].More && slices.Contains(lists[2].List, user)
	}
	var ids []string
	for _, user := range all {
		if !named[user] {
			ids = append(ids, hiddenFrom(user, k.ID).id(1))
		}
	}
	docs, err := findBitmaps(t.Context(), s.hidden, ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		b := docs[id]
		if set, err := b.set(); err != nil || set.GetCardinality() != 100 || !set.Contains(1) || !set.Contains(100) {
			t.Fatalf("%s: %v, %v", id, set, err)
		}
	}
	n, err := s.hidden.EstimatedDocumentCount(t.Context())
	if err != nil || len(named) != storage.MaxDeleters || int(n) != len(ids) {
		t.Fatalf("%d users are named, %d of %d have bitmaps, %v", len(named), n, len(ids), err)
	}
	// And as they read it: those who are named, and some of the others.
	for i, user := range all {
		if named[user] || i%999 == 0 {
			if got := hiddenFor(t, s, k.ID, user, 101); len(got) != 100 {
				t.Fatalf("hidden from %s: %v", user, got)
			}
		}
	}
}

// TestLargestBucket: 100 messages of the largest size, each edited to the largest size and deleted by 8,000 users with the longest names.
func TestLargestBucket(t *testing.T) {
	onlyLarge(t)
	t.Parallel()
	const deleters = 8000
	names := make([]string, deleters)
	for i := range names {
		names[i] = fmt.Sprintf("%0*d", protocol.MaxIDLen, i)
	}
	s := openStore(t)
	conversation := "g:" + names[0]
	run := &storage.Run{Conversation: conversation, First: 1, LogTimeMS: 1}
	makeRows(t, s, conversation, names)
	var seqs []uint64
	content := make([]byte, protocol.DefaultMaxBody)
	for seq := uint64(1); seq <= 100; seq++ {
		m := &protocol.Message{ConversationID: conversation, Seq: seq, ClientMsgID: names[0][:protocol.MaxClientMsgID], Sender: names[0], Content: content, Run: 1}
		m.ContentType = protocol.ContentServer
		m.ServerMsgID = protocol.NewMessageID(conversation, m.Sender, fmt.Sprint(seq)).String()
		run.Messages, run.Wire, seqs = append(run.Messages, m), protocol.AppendBody(run.Wire, m), append(seqs, seq)
	}
	appendRuns(t, s, run)
	var owns []*storage.Own
	for _, user := range names {
		owns = append(owns, &storage.Own{User: user, Conversation: conversation, Hide: seqs})
	}
	if err := s.ApplyOwn(t.Context(), owns); err != nil {
		t.Fatal(err)
	}
	kinds := make([]storage.Reaction, protocol.MaxReactions)
	for i := range kinds {
		kinds[i] = storage.Reaction{Kind: names[i][:protocol.MaxReactionLen], Count: deleters, Users: names[4*i : 4*i+4]}
	}
	// All but one of the labels in one update: a hundred of a document of that size take their time.
	labels := storage.Labels{Edit: &storage.Edit{Content: content, TimeMS: 1}, Reactions: kinds}
	var update bson.D
	for slot := 1; slot < 100; slot++ {
		set, _ := setLabels(fmt.Sprint("slots.", slot), &labels)
		update = append(update, set...)
	}
	if _, err := s.buckets.UpdateOne(t.Context(), bson.D{{Key: "conv", Value: conversation}}, bson.D{{Key: "$set", Value: update}}); err != nil {
		t.Fatal(err)
	}
	apply(t, s, &storage.Change{Conversation: conversation, Seq: 1, ChangeSeq: 1, TimeMS: 1, Labels: labels})
	size := sizeOf(t, s, conversation+":0")
	t.Logf("the bucket takes %d bytes, at most %d", size, bucketBytes(100, protocol.DefaultMaxBody))
	if size > bucketBytes(100, protocol.DefaultMaxBody) {
		t.Fatal("that is more than was reckoned with")
	}
	for i := 0; i < deleters; i += 1333 {
		if got := hiddenFor(t, s, conversation, names[i], 100); len(got) != 100 {
			t.Fatalf("hidden from user %d: %v", i, got)
		}
	}
}

// TestClearIsOneWrite: to clear 100,000 messages is one command, of one row.
func TestClearIsOneWrite(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.Direct("alice", "bob")
	r := seeded(12)
	for range 100 {
		appendRuns(t, s, k.Run(r, 1000))
	}
	before, err := s.Entries(t.Context(), "bob", []string{k.ID})
	if err != nil {
		t.Fatal(err)
	}
	proxy.ResetCounts()
	if err := s.ApplyOwn(t.Context(), []*storage.Own{{User: "alice", Conversation: k.ID, MinSeq: 100_001}}); err != nil {
		t.Fatal(err)
	}
	if n := proxy.Count("", ""); n.Commands != 1 || proxy.Count("update", "rows").Commands != 1 {
		t.Fatalf("commands: %v", proxy.Names())
	}
	mine, err := s.Entries(t.Context(), "alice", []string{k.ID})
	if err != nil || mine[0].MinSeq != 100_001 || mine[0].State.Tail != 100_000 {
		t.Fatalf("%+v, %v", mine, err)
	}
	after, err := s.Entries(t.Context(), "bob", []string{k.ID})
	if err != nil || after[0].View != before[0].View {
		t.Fatalf("bob: %+v, before %+v, %v", after, before, err)
	}
	// The operator still sees all of it.
	in, err := s.Inspect(t.Context(), k.ID, []uint64{1, 50_000, 100_000})
	if err != nil || len(in.Slots) != 3 || in.Slots[1].Message.Sender == "" || in.Rows[0].MinSeq != 100_001 || in.Rows[1].MinSeq != 1 {
		t.Fatalf("%+v, %v", in.Rows, err)
	}
}

// TestHideWhatIsNotThere: seqs above the tail, 0, and users without a row store nothing.
func TestHideWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s, k := openStore(t), storagetest.Direct("alice", "bob")
	appendRuns(t, s, k.Run(seeded(13), 100))
	raw := func() bson.Raw {
		b, err := s.buckets.FindOne(t.Context(), bson.D{}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	before := raw()
	for _, own := range []storage.Own{
		{User: "alice", Conversation: k.ID, Hide: []uint64{1e12}},
		{User: "alice", Conversation: k.ID, Hide: []uint64{101, 1 << 63}},
		{User: "carol", Conversation: k.ID, Hide: []uint64{1, 2}, MinSeq: 7},
		{User: "alice", Conversation: "g:none", Hide: []uint64{1}, MinSeq: 1},
		{User: "alice", Conversation: k.ID},
	} {
		if err := s.ApplyOwn(t.Context(), []*storage.Own{&own}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ApplyOwn(t.Context(), []*storage.Own{{User: "alice", Conversation: k.ID, Hide: []uint64{3}}, {User: "bob", Conversation: k.ID, Hide: []uint64{0}}}); !errors.Is(err, storage.ErrInvalidSeq) {
		t.Fatalf("seq 0: %v", err)
	}
	n, err := s.hidden.CountDocuments(t.Context(), bson.D{})
	rows, err2 := s.rows.CountDocuments(t.Context(), bson.D{})
	if n != 0 || rows != 2 || err != nil || err2 != nil || string(raw()) != string(before) {
		t.Fatalf("%d bitmaps, %d rows, %v, %v, the bucket changed: %t", n, rows, err, err2, string(raw()) != string(before))
	}
}

// TestOwnUnderFaults fails every command of an ApplyOwn in every way: it is applied, once, and so it is after another time.
func TestOwnUnderFaults(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.NewTalk("g:friends", users(70)...)
	appendRuns(t, s, k.Run(seeded(14), 250))
	// Nobody is left room for in the slots of every other message.
	var full []uint64
	for seq := uint64(2); seq <= 250; seq += 2 {
		full = append(full, seq)
	}
	var owns []*storage.Own
	for _, user := range k.Members[:storage.MaxDeleters] {
		owns = append(owns, &storage.Own{User: user, Conversation: k.ID, Hide: full})
	}
	if err := s.ApplyOwn(t.Context(), owns); err != nil {
		t.Fatal(err)
	}
	commands := []struct{ command, collection string }{
		{"find", "rows"}, {"update", "buckets"}, {"aggregate", "buckets"}, {"find", "hidden"}, {"update", "hidden"}, {"update", "rows"},
	}
	user, seq, want := k.Members[69], uint64(0), []uint64(nil)
	for _, c := range commands {
		for name, f := range faults() {
			t.Run(fmt.Sprint(c.command, " ", c.collection, " ", name), func(t *testing.T) {
				own := &storage.Own{User: user, Conversation: k.ID, Hide: []uint64{seq + 2, seq + 1}, MinSeq: seq + 1}
				want = append(want, seq+1, seq+2)
				seq += 2
				rule := proxy.On(wiretest.Match{Command: c.command, Collection: c.collection, Times: 1}, f)
				for range 2 {
					if err := s.ApplyOwn(t.Context(), []*storage.Own{own}); err != nil {
						t.Fatal(err)
					}
				}
				rule.Remove()
				if rule.Hits() == 0 && (c.collection != "hidden" || seq > 2) {
					t.Fatal("the command was not sent")
				}
				if got := hiddenFor(t, s, k.ID, user, 250); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("hidden: %v, want %v", got, want)
				}
				if e, err := s.Entries(t.Context(), user, []string{k.ID}); err != nil || e[0].MinSeq != own.MinSeq {
					t.Fatalf("%+v, %v", e, err)
				}
			})
		}
	}
	sound(t, s)
}

// TestFlagComesAfterBit: whoever sees that there are more deleters than the slot names finds them.
func TestFlagComesAfterBit(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.NewTalk("g:friends", users(65)...)
	appendRuns(t, s, k.Run(seeded(15), 3))
	for _, user := range k.Members[:64] {
		if err := s.ApplyOwn(t.Context(), []*storage.Own{{User: user, Conversation: k.ID, Hide: []uint64{2}}}); err != nil {
			t.Fatal(err)
		}
	}
	rule := proxy.On(wiretest.Match{Command: "insert", Collection: "hidden"}, wiretest.Fail(13))
	own := []*storage.Own{{User: k.Members[64], Conversation: k.ID, Hide: []uint64{2}}}
	if err := s.ApplyOwn(t.Context(), own); err == nil {
		t.Fatal("not authorized, and yet no error")
	}
	in, err := s.Inspect(t.Context(), k.ID, []uint64{2})
	if err != nil || in.Slots[0].DelMore {
		t.Fatalf("%+v, %v", in, err)
	}
	rule.Remove()
	if err := s.ApplyOwn(t.Context(), own); err != nil || len(hiddenFor(t, s, k.ID, k.Members[64], 3)) != 1 {
		t.Fatal(err)
	}
}

// TestReadingWithoutFlagAsksNoBitmaps: what nobody deleted beyond the slot costs no query more.
func TestReadingWithoutFlagAsksNoBitmaps(t *testing.T) {
	t.Parallel()
	proxy := wiretest.Start(t, mongotest.Database(t))
	s, k := openAt(t, proxy.URI()), storagetest.NewTalk("g:friends", users(66)...)
	appendRuns(t, s, k.Run(seeded(16), 3))
	for i, user := range k.Members[:65] {
		proxy.ResetCounts()
		hiddenFor(t, s, k.ID, user, 3)
		if n := proxy.Count("", "").Commands; n != 1 {
			t.Fatalf("after %d deletions a read is %d commands: %v", i, n, proxy.Names())
		}
		if err := s.ApplyOwn(t.Context(), []*storage.Own{{User: user, Conversation: k.ID, Hide: []uint64{2}}}); err != nil {
			t.Fatal(err)
		}
	}
	proxy.ResetCounts()
	hiddenFor(t, s, k.ID, k.Members[65], 3)
	if n := proxy.Count("", ""); n.Commands != 2 || proxy.Count("find", "hidden").Commands != 1 {
		t.Fatalf("commands: %v", proxy.Names())
	}
}

// TestBitmapWriters: many change one bitmap at once, across the border of two chunks; nothing is lost.
func TestBitmapWriters(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	set := hiddenFrom("alice", "g:big")
	const border = 1 << chunkBits
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 10 {
				edits := make(map[string]bitEdit)
				for _, seq := range []uint64{border - 1 - uint64(10*w+i), border + uint64(10*w+i)} {
					edits[set.id(seq)] = bitEdit{add: []uint32{uint32(seq & chunkMask)}}
				}
				if err := s.changeBits(context.Background(), s.hidden, edits); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var asked []uint64
	for seq := uint64(border - 100); seq < border+100; seq++ {
		asked = append(asked, seq)
	}
	hidden, err := s.hiddenSeqs(t.Context(), "g:big", "alice", asked)
	if err != nil || len(hidden) != 160 || !hidden[border-80] || hidden[border-81] || !hidden[border+79] || hidden[border+80] {
		t.Fatalf("%d are hidden, %v", len(hidden), err)
	}
	if other, err := s.hiddenSeqs(t.Context(), "g:big", "bob", asked); err != nil || len(other) != 0 {
		t.Fatalf("from bob: %v, %v", other, err)
	}
}

func TestParseBits(t *testing.T) {
	for id, want := range map[string]string{
		hiddenFrom("alice", "p:alice:bob").id(5):                "p:alice:bob alice  0 true",
		hiddenFrom("alice", "g:x").id(1 << chunkBits):           "g:x alice  1 true",
		reactedBy("alice", "g:x", "+1").id(5):                   "g:x alice +1 0 true",
		reactedBy("alice", "g:x", "a\nb\n7").id(3 << chunkBits): "g:x alice a\nb\n7 3 true",
		"g:x\nalice\nx": "g:x alice  0 false",
		"g:x\nalice":    "g:x alice  0 false",
		"g:x":           "g:x   0 false",
		"\nalice\n1":    " alice  1 false",
	} {
		conversation, user, kind, chunk, ok := parseBits(id)
		if got := fmt.Sprint(conversation, " ", user, " ", kind, " ", chunk, " ", ok); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}

// makeRows gives users rows.
func makeRows(tb testing.TB, s *Store, conversation string, users []string) {
	tb.Helper()
	var docs []any
	for i, user := range users {
		docs = append(docs, row{ID: rowID(user, conversation), User: user, Conv: conversation, MinSeq: 1, Stamp: 1})
		if len(docs) == 2000 || i == len(users)-1 {
			bulkInsert(tb, s.rows, docs...)
			docs = nil
		}
	}
}

// bulkInsert puts documents into a collection as they are.
func bulkInsert(tb testing.TB, in *mongo.Collection, docs ...any) {
	tb.Helper()
	if _, err := in.InsertMany(context.Background(), docs, options.InsertMany().SetOrdered(false)); err != nil {
		tb.Fatal(err)
	}
}
