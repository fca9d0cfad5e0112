package mongo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
)

// source is a folder's store with everything in it that there can be.
type source struct {
	*embedded.Store
	t    *testing.T
	rng  *rand.Rand
	team []string // members of the group
}

const sourceMS = int64(1_760_000_000_000)

func newSource(t *testing.T, seed uint64) *source {
	t.Helper()
	s, err := embedded.Open(embedded.Options{Dir: "data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	src := &source{Store: s, t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range 80 {
		src.team = append(src.team, fmt.Sprintf("u%02d", i))
	}
	return src
}

func (s *source) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// fill makes conversations of the sizes that matter.
func (s *source) fill() {
	s.t.Helper()
	for i, n := range []int{1, 99, 100, 101, 350} {
		s.talk(protocol.DirectConversation("alice", fmt.Sprintf("friend%d", i)), n, nil)
	}
	s.talk("u:alice", 3, []string{"alice"})
	s.talk("g:team", 130, s.team)
	s.notify("g:team")
	for range 20 {
		s.check(s.SetSignedOut(s.t.Context(), s.team[s.rng.IntN(len(s.team))], fmt.Sprintf("device\n%d", s.rng.IntN(9)), true))
	}
}

// talk stores n messages and then does all kinds of things to them.
func (s *source) talk(conversation string, n int, members []string) {
	s.t.Helper()
	kind, a, b := protocol.ParseConversation(conversation)
	if kind == protocol.KindDirect {
		members = []string{a, b}
	}
	var counts storage.Counts
	for seq := uint64(1); seq <= uint64(n); {
		run := &storage.Run{Conversation: conversation, First: seq, Members: members, Before: counts, LogTimeMS: sourceMS + int64(seq)*1000}
		for range min(1+s.rng.IntN(40), n-int(seq)+1) {
			m := s.message(conversation, seq, members)
			if storage.CountsAsUnread(m) {
				counts[storage.Side(m.Sender, a)]++
			}
			run.Messages, run.Wire = append(run.Messages, m), protocol.AppendBody(run.Wire, m)
			run.ActiveMS = m.SendTimeMS
			seq++
		}
		run.After = counts
		commit, err := s.Append(s.t.Context(), []*storage.Run{run})
		s.check(err)
		s.check(errors.Join(commit.Wait(), run.Err))
	}
	s.mark(conversation, uint64(n), members)
}

func (s *source) message(conversation string, seq uint64, members []string) *protocol.Message {
	sender, client := members[s.rng.IntN(len(members))], fmt.Sprintf("c%d", seq)
	m := &protocol.Message{
		ConversationID: conversation, Seq: seq, ServerMsgID: protocol.NewMessageID(conversation, sender, client).String(), ClientMsgID: client,
		Sender: sender, ContentType: protocol.ContentText, Content: []byte(fmt.Sprintf("text %d of %s", seq, conversation)),
		SendTimeMS: sourceMS + int64(seq)*1000,
	}
	if s.rng.IntN(10) == 0 {
		m.Flags, m.Mentions = protocol.FlagNoUnread, []string{members[0]}
	}
	return m
}

// mark changes, hides, purges and reads at random.
func (s *source) mark(conversation string, n uint64, members []string) {
	s.t.Helper()
	ctx := s.t.Context()
	for range n {
		seq, user := 1+s.rng.Uint64N(n), members[s.rng.IntN(len(members))]
		switch s.rng.IntN(8) {
		case 0:
			s.change(conversation, seq, storage.Labels{Revoke: &protocol.Revoke{User: user, Role: protocol.RoleSender, TimeMS: sourceMS}}, nil)
		case 1, 2:
			s.change(conversation, seq, storage.Labels{Edit: &storage.Edit{ContentType: 2, Content: []byte{byte(seq)}, TimeMS: sourceMS + 1}}, nil)
		case 3:
			s.change(conversation, seq, storage.Labels{Reactions: []storage.Reaction{{Kind: "👍", Count: 2, Users: []string{user}}}},
				&storage.Reactor{User: members[0], Reaction: "👍", On: true})
		case 4, 5:
			s.check(s.ApplyOwn(ctx, []*storage.Own{{User: user, Conversation: conversation, Hide: []uint64{seq, 1 + s.rng.Uint64N(n)}}}))
		case 6:
			s.read(conversation, user, seq)
		case 7:
			if s.rng.IntN(4) == 0 {
				_, err := s.Purge(ctx, conversation, seq, min(n, seq+s.rng.Uint64N(5)))
				s.check(err)
			} else {
				s.check(s.ApplyOwn(ctx, []*storage.Own{{User: user, Conversation: conversation, MinSeq: seq}}))
			}
		}
	}
}

// read marks messages as read, with the other side's count at the last of them.
func (s *source) read(conversation, user string, seq uint64) {
	s.t.Helper()
	_, a, _ := protocol.ParseConversation(conversation)
	var counts storage.Counts
	s.check(s.Slots(s.t.Context(), conversation, "", []uint64{seq}, func(slot *storage.Slot) bool {
		counts = slot.Counts
		return false
	}))
	_, _, err := s.RaiseRead(s.t.Context(), user, conversation, seq, counts[1-storage.Side(user, a)])
	s.check(err)
}

func (s *source) change(conversation string, seq uint64, l storage.Labels, reactor *storage.Reactor) {
	s.t.Helper()
	last, err := s.ChangeSeq(s.t.Context(), conversation)
	s.check(err)
	c := &storage.Change{Conversation: conversation, Seq: seq, ChangeSeq: last + 1, TimeMS: sourceMS + int64(last), Labels: l, Reactor: reactor}
	s.check(s.Apply(s.t.Context(), []*storage.Change{c}))
	if c.Err != nil && !errors.Is(c.Err, storage.ErrGone) {
		s.t.Fatal(c.Err)
	}
}

// notify makes more changes than a change bucket has, and more people delete one message than a slot names.
func (s *source) notify(conversation string) {
	s.t.Helper()
	for i := range 150 {
		s.change(conversation, 1+uint64(i)%7, storage.Labels{Edit: &storage.Edit{ContentType: 1, Content: []byte{byte(i)}, TimeMS: sourceMS}}, nil)
	}
	for _, user := range s.team {
		s.check(s.ApplyOwn(s.t.Context(), []*storage.Own{{User: user, Conversation: conversation, Hide: []uint64{8, 130}}}))
	}
}

// everything is what people can see of a store, as text.
type everything interface {
	storage.Buckets
	storage.Directory
	storage.Changes
	storage.Operator
}

func (s *source) seen(st everything) string {
	s.t.Helper()
	var b strings.Builder
	ctx := s.t.Context()
	epoch, err := st.Epoch(ctx)
	s.check(err)
	fmt.Fprintln(&b, "epoch", epoch)
	for _, user := range append([]string{"alice", "friend4"}, s.team...) {
		entries, _, err := st.Changed(ctx, user, 0)
		s.check(err)
		slices.SortFunc(entries, func(a, b storage.Entry) int { return strings.Compare(a.Conversation, b.Conversation) })
		for _, e := range entries {
			fmt.Fprintf(&b, "%s: %+v\n", user, e)
			s.check(st.Read(ctx, storage.Range{Conversation: e.Conversation, Viewer: user, From: 1, To: 1 << 40}, func(slot *storage.Slot) bool {
				view := storage.Project(&slot.Message, &slot.Labels, storage.Viewer{User: user, MinSeq: e.MinSeq, PeerReadSeq: e.PeerReadSeq})
				fmt.Fprintf(&b, "%d %v %v %x\n", slot.LogTimeMS, slot.Counts, slot.Labels.ChangeSeq, protocol.AppendBody(nil, &view))
				return true
			}))
		}
		for i := range 9 {
			out, err := st.SignedOut(ctx, user, fmt.Sprintf("device\n%d", i))
			s.check(err)
			fmt.Fprintln(&b, user, i, out)
		}
	}
	s.check(st.Conversations(ctx, "", func(c string) bool {
		s.check(st.Recent(ctx, c, func(id storage.RecentID) bool {
			fmt.Fprintln(&b, c, id)
			return true
		}))
		return true
	}))
	return b.String()
}

func openTarget(t *testing.T, uri string) *Target {
	t.Helper()
	to, err := OpenTarget(t.Context(), Options{URI: uri})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := to.Close(); err != nil {
			t.Error(err)
		}
	})
	return to
}

// After a migration everything is the same for everybody, and life goes on.
func TestMigrate(t *testing.T) {
	src := newSource(t, 1)
	src.fill()
	uri := mongotest.Database(t)
	to := openTarget(t, uri)
	var steps []storage.Migrated
	done, err := storage.Migrate(t.Context(), src, to, func(m storage.Migrated) { steps = append(steps, m) })
	if err != nil {
		t.Fatal(err)
	}
	if want := (storage.Migrated{Step: storage.StepVerify, Conversations: 7, Messages: 784, Total: 784}); done != want {
		t.Errorf("it ends with %+v, want %+v", done, want)
	}
	if !slices.IsSortedFunc(steps, func(a, b storage.Migrated) int { return int(a.Step) - int(b.Step) }) || len(steps) != 21 {
		t.Errorf("it reported %d times: %+v", len(steps), steps)
	}
	s := leaseStore(t, uri)
	want, got := strings.Split(src.seen(src), "\n"), strings.Split(src.seen(s), "\n")
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("line %d of %d is, in the database,\n%s\nand in the folder\n%s", i, len(want), got[min(i, len(got)-1)], want[i])
		}
	}
	verified, err := s.Verify(t.Context(), func(f storage.Fault) { t.Errorf("fault: %+v", f) }, nil)
	if err != nil || verified.Messages != 784 {
		t.Errorf("verify: %+v, %v", verified, err)
	}
	goOn(t, s)
}

// goOn appends to a conversation and changes it.
func goOn(t *testing.T, s *Store) {
	t.Helper()
	conversation := protocol.DirectConversation("alice", "friend4")
	state, err := s.State(t.Context(), conversation)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(60) { // over the border of a bucket
		seq := state.Tail + 1 + i
		m := &protocol.Message{ConversationID: conversation, Seq: seq, Sender: "alice", ContentType: 1, Content: []byte("new"), ClientMsgID: fmt.Sprint(seq),
			ServerMsgID: protocol.NewMessageID(conversation, "alice", fmt.Sprint(seq)).String()}
		run := &storage.Run{Conversation: conversation, First: seq, Messages: []*protocol.Message{m}, Wire: protocol.AppendBody(nil, m),
			LogTimeMS: sourceMS * 2, Before: state.Counts, After: state.Counts}
		commit, err := s.Append(t.Context(), []*storage.Run{run})
		if err == nil {
			err = commit.Wait()
		}
		if err = errors.Join(err, run.Err); err != nil {
			t.Fatal(err)
		}
	}
	last, err := s.ChangeSeq(t.Context(), conversation)
	if err != nil {
		t.Fatal(err)
	}
	c := &storage.Change{Conversation: conversation, Seq: state.Tail + 1, ChangeSeq: last + 1, Labels: storage.Labels{Edit: &storage.Edit{ContentType: 1}}}
	if err := errors.Join(s.Apply(t.Context(), []*storage.Change{c}), c.Err); err != nil {
		t.Fatal(err)
	}
	entries, _, err := s.Changed(t.Context(), "alice", 1<<32) // far above the stamps that came with the copy
	if err != nil || len(entries) != 1 || entries[0].ChangeSeq != last+1 || entries[0].State.Tail != state.Tail+60 {
		t.Errorf("what changed since is %+v, %v", entries, err)
	}
}

// Cut off at any moment, a migration is not used by a server, and goes on when it is started again.
func TestMigrateResumes(t *testing.T) {
	src := newSource(t, 2)
	src.fill()
	proxy := wiretest.Start(t, mongotest.Database(t))
	var writes atomic.Int64
	for _, command := range []string{"insert", "update", "delete"} {
		proxy.On(wiretest.Match{Command: command}, wiretest.Do(func(*wiretest.Command) { writes.Add(1) }))
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for round := 0; ; round++ {
		to := openTarget(t, proxy.URI())
		ctx, cancel := context.WithCancel(t.Context())
		var left atomic.Int64
		left.Store(2 + rng.Int64N(12))
		cut := proxy.On(wiretest.Match{Command: "insert"}, wiretest.DoAfter(func(*wiretest.Command) {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
		_, err := storage.Migrate(ctx, src, to, func(storage.Migrated) {})
		cut.Remove()
		cancel()
		if err == nil {
			if round < 2 {
				t.Errorf("it was cut off %d times", round)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Options{URI: proxy.URI()}); !errors.Is(err, ErrCopying) {
			t.Fatalf("a server on half a copy: %v", err)
		}
		if round == 3 { // the folder was used meanwhile
			src.talk("p:late:zoe", 5, nil)
			src.change("g:team", 3, storage.Labels{Edit: &storage.Edit{ContentType: 1, Content: []byte("late")}}, nil)
		}
		if round > 100 {
			t.Fatal("it does not get on")
		}
	}
	if writes.Load() == 0 {
		t.Error("the proxy saw no writes")
	}
	s := leaseStore(t, proxy.URI())
	if src.seen(src) != src.seen(s) {
		t.Error("the database is not what the folder is")
	}
	if _, err := s.Verify(t.Context(), func(f storage.Fault) { t.Errorf("fault: %+v", f) }, nil); err != nil {
		t.Error(err)
	}
}

func TestMigrateRefused(t *testing.T) {
	src := newSource(t, 4)
	src.talk("p:a:b", 3, nil)
	migrate := func(uri string) error {
		_, err := storage.Migrate(t.Context(), src, openTarget(t, uri), func(storage.Migrated) {})
		return err
	}
	t.Run("a server's database", func(t *testing.T) {
		uri := mongotest.Database(t)
		leaseStore(t, uri)
		if err := migrate(uri); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Error(err)
		}
	})
	t.Run("of another program", func(t *testing.T) {
		uri := mongotest.Database(t)
		to := openTarget(t, uri)
		if _, err := to.db.Collection("things").InsertOne(t.Context(), bson.D{{Key: "a", Value: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := migrate(uri); err == nil || !strings.Contains(err.Error(), "things") {
			t.Error(err)
		}
		if n, err := to.meta.CountDocuments(t.Context(), bson.D{}); n != 0 || err != nil {
			t.Errorf("%d documents of ours are there all the same, %v", n, err)
		}
	})
	t.Run("half a copy of another store", func(t *testing.T) {
		uri := mongotest.Database(t)
		if _, err := openTarget(t, uri).Begin(t.Context(), "another", 1); err != nil {
			t.Fatal(err)
		}
		if err := migrate(uri); err == nil || !strings.Contains(err.Error(), "another store") {
			t.Error(err)
		}
	})
	t.Run("twice", func(t *testing.T) {
		uri := mongotest.Database(t)
		if err := migrate(uri); err != nil {
			t.Fatal(err)
		}
		if err := migrate(uri); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Error(err)
		}
	})
}

// damagedTarget changes what was stored before it is compared.
type damagedTarget struct {
	*Target
	damage func(ctx context.Context) error
}

func (d damagedTarget) PutSignOuts(ctx context.Context, list []storage.SignOut) error {
	return errors.Join(d.Target.PutSignOuts(ctx, list), d.damage(ctx))
}

// Whatever is not the same is found, and the copy is not finished.
func TestMigrateFindsDifferences(t *testing.T) {
	set := func(collection, field string, value any) func(*Target) func(context.Context) error {
		return func(to *Target) func(context.Context) error {
			return func(ctx context.Context) error {
				r, err := to.db.Collection(collection).UpdateOne(ctx, bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}})
				if err == nil && r.ModifiedCount != 1 {
					err = errors.New("nothing was changed")
				}
				return err
			}
		}
	}
	msg := appendStored(nil, protocol.AppendBody(nil, &protocol.Message{ConversationID: "p:a:b", Seq: 1, Sender: "mallory"}))
	for name, damage := range map[string]func(*Target) func(context.Context) error{
		"a body":       set("buckets", "slots.0.msg", msg),
		"an id":        set("buckets", "slots.0.id", make([]byte, 16)),
		"a log time":   set("buckets", "slots.1.time", int64(7)),
		"a count":      set("buckets", "slots.1.counts", bson.A{int64(9), int64(9)}),
		"a label":      set("buckets", "slots.2.edit.content", []byte("x")),
		"a deletion":   set("buckets", "slots.2.del_list", bson.A{"b"}),
		"a tail":       set("buckets", "tail", int64(2)),
		"a stamp":      set("buckets", "stamp", bson.DateTime(1)),
		"a read mark":  set("rows", "read_seq", int64(3)),
		"a minimum":    set("rows", "min_seq", int64(3)),
		"a note":       set("changes", "slots.0.time", int64(3)),
		"a device":     set("devices", "stamp", bson.DateTime(3)),
		"a change seq": set("changes", "tail", int64(3)),
		"a conversation more": func(to *Target) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := to.buckets.InsertOne(ctx, bucket{ID: "p:x:y:0", Conv: "p:x:y", Layout: 100, Tail: 1, Newest: true, Slots: make([]slot, 100)})
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := newSource(t, 5)
			src.talk("p:a:b", 0, nil)
			src.plain("p:a:b", 3)
			to := openTarget(t, mongotest.Database(t))
			_, err := storage.Migrate(t.Context(), src, damagedTarget{to, damage(to)}, func(storage.Migrated) {})
			if !errors.Is(err, storage.ErrDiffers) && !errors.Is(err, errDamaged) {
				t.Errorf("it ends with %v", err)
			}
			if err := to.meta.FindOne(t.Context(), bson.D{{Key: "_id", Value: metaID}}).Err(); !noDocument(err) {
				t.Errorf("a server could use it: %v", err)
			}
		})
	}
}

// plain stores n messages, a change of the third, and a device.
func (s *source) plain(conversation string, n uint64) {
	s.t.Helper()
	for seq := uint64(1); seq <= n; seq++ {
		m := s.message(conversation, seq, []string{"a", "b"})
		run := &storage.Run{Conversation: conversation, First: seq, Messages: []*protocol.Message{m}, Wire: protocol.AppendBody(nil, m),
			LogTimeMS: sourceMS, Members: []string{"a", "b"}}
		commit, err := s.Append(s.t.Context(), []*storage.Run{run})
		s.check(err)
		s.check(errors.Join(commit.Wait(), run.Err))
	}
	s.change(conversation, 3, storage.Labels{Edit: &storage.Edit{ContentType: 1, Content: []byte("edited")}}, nil)
	s.check(s.SetSignedOut(s.t.Context(), "a", "phone", true))
}

// The sum of a conversation is of what it holds, not of the form.
func TestSumConversation(t *testing.T) {
	a, b := newSource(t, 6), newSource(t, 6)
	a.fill()
	b.fill()
	for _, c := range []string{"g:team", "p:alice:friend4"} {
		x, err := storage.SumConversation(t.Context(), a, c)
		a.check(err)
		y, err := storage.SumConversation(t.Context(), b, c)
		a.check(err)
		if !reflect.DeepEqual(x, y) || x.Messages < 100 || x.Gone == 0 || x.Labels == 0 || x.Notes == 0 || x.Hidden == 0 || x.Reacted == 0 {
			t.Errorf("%s: %v and %v", c, x, y)
		}
	}
}
