package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage/mongo"
	"github.com/parley-im/parley/storage/mongo/mongotest"
	"github.com/parley-im/parley/storage/mongo/wiretest"
)

// say sends a text and returns its ack, or the server's error.
func say(w *wire, to, client, text string) (protocol.SendAck, error) {
	var ack protocol.SendAck
	err := w.ask(protocol.CmdSend, &protocol.Send{
		ClientMsgID: client, Kind: protocol.KindDirect, Target: to, ContentType: protocol.ContentText, Content: []byte(text),
	}, &ack)
	return ack, err
}

// texts are what is in a conversation.
func texts(t *testing.T, w *wire, conversation string) string {
	t.Helper()
	list, err := pullAll(w, conversation)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "%d %s: %s\n", m.Seq, m.Sender, m.Content)
	}
	return b.String()
}

// A server on MongoDB: messages and changes are there after a restart, one server at a time has the database, and the next may be another
// machine's.
func TestServeMongo(t *testing.T) {
	uri, dir := mongotest.Database(t), t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0", "--mongo", uri)
	keys := tokens(t, dir, "alice", "bob")
	alice, bob := mustDial(t, srv.addr, keys[0], "phone"), mustDial(t, srv.addr, keys[1], "phone")
	for i := range 3 {
		ack, err := say(alice, "bob", fmt.Sprint(i), fmt.Sprintf("hello %d", i))
		if err != nil || ack.Seq != uint64(i+1) {
			t.Fatalf("message %d: %+v, %v", i, ack, err)
		}
		f, err := bob.next()
		if err != nil || f.Command != protocol.CmdPush {
			t.Fatalf("bob gets %v, %v", f.Command, err)
		}
	}
	var changed protocol.ChangeReply
	if err := alice.ask(protocol.CmdRevoke, &protocol.Position{ConversationID: seeded, Seq: 2}, &changed); err != nil || changed.ChangeSeq != 1 {
		t.Errorf("revoke: %+v, %v", changed, err)
	}
	want := "1 alice: hello 0\n2 alice: \n3 alice: hello 2\n"
	if got := texts(t, bob, seeded); got != want {
		t.Errorf("bob reads\n%s", got)
	}
	t.Run("a second server", func(t *testing.T) {
		refused(t, []string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "", "--mongo", uri}, "another server uses the database")
	})
	t.Run("the same folder", func(t *testing.T) {
		refused(t, []string{"--data", dir, "--listen", "127.0.0.1:0", "--http", "", "--mongo", uri}, dir, "in use")
	})
	if _, err := os.Stat(filepath.Join(dir, "db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder has a store: %v", err)
	}
	if code := srv.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	other := t.TempDir()
	srv = startServing(t, other, "127.0.0.1:0", "--mongo", uri)
	bob = mustDial(t, srv.addr, tokens(t, other, "bob")[0], "phone")
	if got := texts(t, bob, seeded); got != want {
		t.Errorf("after the restart bob reads\n%s", got)
	}
	if code := srv.stop(t); code != 0 || strings.Contains(srv.output.text(), "level=ERROR") {
		t.Errorf("exit code %d, and\n%s", code, srv.output.text())
	}
}

// Killed and started again on the same folder, the server gets its database back, and nothing that it told anybody is lost.
func TestKillNineMongo(t *testing.T) {
	killNine(t, 3, "--mongo", mongotest.Database(t))
}

// Another server that took the database, as after its holder hung for long, ends it.
func TestServeMongoTakenOver(t *testing.T) {
	uri, dir := mongotest.Database(t), t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0", "--mongo", uri)
	name, err := os.ReadFile(filepath.Join(dir, serverName))
	if err != nil {
		t.Fatal(err)
	}
	db, err := mongo.Open(t.Context(), mongo.Options{URI: uri})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	lease, err := db.Lease(t.Context(), mongo.LeaseOptions{Server: strings.TrimSpace(string(name)), Host: "a copy of the folder"})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Close()
	if code := srv.exit(t); code != 1 || !strings.Contains(srv.output.text(), "parley: mongo: another server uses the database") {
		t.Errorf("exit code %d, and\n%s", code, srv.output.text())
	}
}

// While MongoDB is away /readyz is red and sends are refused in time, and a repeat after it is back is the same message.
func TestMongoAwayAndBack(t *testing.T) {
	t.Parallel() // it waits, mostly
	proxy, dir := wiretest.Start(t, mongotest.Database(t)), t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0", "--mongo", proxy.URI())
	w := mustDial(t, srv.addr, tokens(t, dir, "alice")[0], "phone")
	if _, err := say(w, "bob", "before", "before"); err != nil {
		t.Fatal(err)
	}
	proxy.Down()
	began := time.Now()
	_, err := say(w, "bob", "meanwhile", "meanwhile")
	if took := time.Since(began); !unavailable(err) || took > 25*time.Second {
		t.Errorf("a message that was under way: %v after %v", err, took)
	}
	awaitReady(t, srv, 503)
	began = time.Now()
	if _, err = say(w, "bob", "meanwhile", "meanwhile"); !unavailable(err) || time.Since(began) > 2*time.Second {
		t.Errorf("a message while it is known: %v after %v", err, time.Since(began))
	}
	if _, err := pullAll(w, seeded); !unavailable(err) {
		t.Errorf("a read: %v", err)
	}
	proxy.Up()
	awaitReady(t, srv, 200)
	for range 2 {
		if ack, err := say(w, "bob", "meanwhile", "meanwhile"); err != nil || ack.Seq != 2 {
			t.Errorf("after it is back: %+v, %v", ack, err)
		}
	}
	if got, want := texts(t, w, seeded), "1 alice: before\n2 alice: meanwhile\n"; got != want {
		t.Errorf("the conversation is\n%s", got)
	}
	if code := srv.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func unavailable(err error) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Code == protocol.CodeUnavailable
}

// awaitReady waits until /readyz has the status.
func awaitReady(t *testing.T, srv *serving, want int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		code, body := get(t, srv.http+"/readyz")
		if code == want {
			if code == 503 && !strings.Contains(body, "cannot be reached") {
				t.Errorf("/readyz says %q", body)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz is %d, not %d", code, want)
		}
	}
}

// A password is in no output, whatever goes wrong.
func TestMongoPassword(t *testing.T) {
	t.Parallel() // it waits, mostly
	const password = "hunter2hunter2"
	away := freePort(t)
	running := map[string]*process{}
	for name, uri := range map[string]string{
		"not there":  "mongodb://parley:" + password + "@" + away + "/db",
		"no URI":     "mongo://parley:" + password + "@" + away,
		"bad option": "mongodb://parley:" + password + "@" + away + "/?w=" + password + "&tls=maybe",
	} {
		for _, args := range []string{
			"serve --listen 127.0.0.1:0 --http= --data " + t.TempDir(), "admin verify", "admin purge p:a:b 1 1 --yes", "migrate --data " + seedAll(t),
		} {
			cmd := command(strings.Fields(args)...)
			cmd.Env = append(cmd.Env, "PARLEY_MONGO="+uri)
			running[name+": "+args] = startCommand(t, cmd)
		}
	}
	for what, p := range running {
		code, text := p.exit(t), p.output.text()
		if code != 1 || strings.Contains(text, password) || !strings.Contains(text, "parley: mongo: ") {
			t.Errorf("%s: exit code %d, and\n%s", what, code, text)
		}
	}
}

func TestDescribeMongo(t *testing.T) {
	for uri, want := range map[string]string{
		"mongodb://h:27017":                         "the MongoDB database parley on h:27017",
		"mongodb://u:p@h:27017/chat?w=1":            "the MongoDB database chat on h:27017",
		"mongodb+srv://u:p%40q@cluster.example.org": "the MongoDB database parley on cluster.example.org",
		"mongodb://u:p@a:1,b:2/?replicaSet=r":       "the MongoDB database parley on a:1,b:2",
		"mongodb://u:p@a:1?replicaSet=r":            "the MongoDB database parley on a:1",
		"mongodb://u:p@x@a:1/db":                    "the MongoDB database db on a:1",
	} {
		if got := describeMongo(uri); got != want {
			t.Errorf("%s is %q, want %q", uri, got, want)
		}
	}
}

// The operator's commands on a database, while its server runs.
func TestAdminMongo(t *testing.T) {
	uri, dir := mongotest.Database(t), t.TempDir()
	t.Setenv("PARLEY_MONGO", uri)
	for _, args := range [][]string{{"verify"}, {"inspect", seeded}, {"purge", "--older-than", "1h", "--yes"}, {"rebucket", "--size", "7"}} {
		if _, _, err := run(append([]string{"admin"}, args...)...); err == nil || !strings.Contains(err.Error(), "there is no store") {
			t.Errorf("%v on an empty database: %v", args, err)
		}
	}
	srv := startServing(t, dir, "127.0.0.1:0", "--mongo", uri)
	keys := tokens(t, dir, "alice", "bob")
	w := mustDial(t, srv.addr, keys[0], "phone")
	for i := range 25 {
		if _, err := say(w, "bob", fmt.Sprint(i), fmt.Sprintf("text %d", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verify"}, "1 conversations, 25 messages (0 of them gone), 1 buckets, 0 changes, 2 rows: 0 faults\n"},
		{[]string{"revoke", seeded, "3"}, "message 3 of p:alice:bob is taken back; it is change 1 of the conversation\n"},
		{[]string{"purge", seeded, "1", "2", "--yes"}, "2 messages purged\n"},
		{[]string{"rebucket", "--size", "10", seeded}, "1 conversations have buckets of 10\n"},
		{[]string{"rebucket", "--size", "10"}, "1 conversations have buckets of 10\n"},
		{[]string{"purge", "--older-than", "2020-01-01", "--yes"}, "0 messages purged, in 1 conversations looked at\n"},
	} {
		if out := runs(t, append([]string{"admin"}, c.args...)...); out != c.want {
			t.Errorf("%v prints %q, want %q", c.args, out, c.want)
		}
	}
	out := runs(t, "admin", "inspect", seeded, "1", "3", "4")
	for _, want := range []string{"25 messages, 1 changes", "message 1: in bucket", "gone: purged", "taken back by operator", "content of 6 bytes: text 4"} {
		if !strings.Contains(out, want) {
			t.Errorf("inspect does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "text 3") {
		t.Errorf("inspect prints what was taken back:\n%s", out)
	}
	if _, err := say(w, "bob", "more", "and more"); err != nil {
		t.Errorf("the server, after all this: %v", err)
	}
	var pulled protocol.PullReply
	if err := w.ask(protocol.CmdPull, &protocol.Pull{ConversationID: seeded, Limit: 100}, &pulled); err != nil {
		t.Fatal(err)
	}
	list := pulled.Messages
	if len(list) != 25 || list[0].Status != protocol.StatusGone || list[0].Run != 2 || list[1].Status != protocol.StatusRevoked ||
		list[24].Seq != 26 || string(list[24].Content) != "and more" {
		t.Errorf("alice reads %d messages: %+v", len(list), list)
	}
	if _, _, err := run("admin", "purge", seeded, "1", "2", "--yes", "--compact"); err == nil || !strings.Contains(err.Error(), "--compact is for folders") {
		t.Errorf("compact: %v", err)
	}
}

// The command line's folder is not overruled by a database of the environment.
func TestAdminDataOverMongo(t *testing.T) {
	dir := seedAll(t)
	t.Setenv("PARLEY_MONGO", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100")
	if out := runs(t, "admin", "verify", "--data", dir); !strings.Contains(out, "8 messages") {
		t.Errorf("it prints %q", out)
	}
	t.Setenv("PARLEY_YES", "true")
	if _, _, err := run("admin", "verify", "--data", dir); err == nil || !strings.Contains(err.Error(), "PARLEY_YES") {
		t.Errorf("a confirmation from the environment: %v", err)
	}
}

// After migrate a server on the database answers devices as the one on the folder did: the same tokens, lists, unread counts and messages.
func TestMigrateCommand(t *testing.T) {
	dir, uri := seedAll(t), mongotest.Database(t)
	onFolder(t, dir, func(s store) { seed(t, s, "p:bob:carol", 120) })
	look := func(flags ...string) string {
		srv := startServing(t, dir, "127.0.0.1:0", flags...)
		defer srv.stop(t)
		var b strings.Builder
		for i, key := range tokens(t, dir, "alice", "bob", "carol") {
			w := mustDial(t, srv.addr, key, fmt.Sprint("phone", i))
			var sync protocol.SyncReply
			var unread protocol.UnreadReply
			if err := errors.Join(w.ask(protocol.CmdSync, &protocol.Sync{}, &sync), w.ask(protocol.CmdUnread, nil, &unread)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%d unread in %d; epoch %s\n", unread.Total, unread.Conversations, w.welcome.Epoch)
			for _, c := range sync.Conversations {
				list, err := pullAll(w, c.ConversationID)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%x\n", protocol.AppendBody(nil, &protocol.SyncReply{Conversations: []protocol.Conversation{c}}))
				for _, m := range list {
					fmt.Fprintf(&b, "%x\n", protocol.AppendBody(nil, &m))
				}
			}
		}
		return b.String()
	}
	want := look()
	out := runs(t, "migrate", "--data", dir, "--mongo", uri)
	if !strings.Contains(out, "2 conversations with 128 messages are there, and are the same") {
		t.Errorf("it prints %q", out)
	}
	if got := look("--mongo", uri); got != want {
		t.Errorf("on the database devices see\n%s\nand on the folder\n%s", got, want)
	}
	if _, _, err := run("migrate", "--data", dir, "--mongo", uri); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second time: %v", err)
	}
	if _, _, err := run("migrate", "--data", dir); err == nil || !strings.Contains(err.Error(), "PARLEY_MONGO") {
		t.Errorf("without a database: %v", err)
	}
	if _, _, err := run("migrate", "--data", filepath.Join(dir, "x"), "--mongo", uri); err == nil || !strings.Contains(err.Error(), "there is no store") {
		t.Errorf("without a folder: %v", err)
	}
}
