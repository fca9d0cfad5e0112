package protocol

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// command is a command and the body that its frames have. Every number means one body, whichever side sends it.
type command struct {
	cmd   Command
	name  string
	fresh func() Body
}

// commands are all of version 1, in the order of docs/protocol.md.
var commands = []command{
	{CmdHello, "HELLO", func() Body { return &Hello{} }},
	{CmdWelcome, "WELCOME", func() Body { return &Welcome{} }},
	{CmdPing, "PING", func() Body { return &Empty{} }},
	{CmdPong, "PONG", func() Body { return &Pong{} }},
	{CmdError, "ERROR", func() Body { return &Error{} }},
	{CmdKick, "KICK", func() Body { return &Kick{} }},
	{CmdGoAway, "GOAWAY", func() Body { return &GoAway{} }},
	{CmdSignOut, "SIGN_OUT", func() Body { return &SignOut{} }},
	{CmdSignedOut, "SIGN_OUT_REPLY", func() Body { return &Empty{} }},
	{CmdSend, "SEND", func() Body { return &Send{} }},
	{CmdSendAck, "SEND_ACK", func() Body { return &SendAck{} }},
	{CmdPush, "PUSH", func() Body { return &Push{} }},
	{CmdPushAck, "PUSH_ACK", func() Body { return &Empty{} }},
	{CmdEvent, "EVENT", func() Body { return &Events{} }},
	{CmdSignal, "SIGNAL", func() Body { return &Signal{} }},
	{CmdSync, "SYNC", func() Body { return &Sync{} }},
	{CmdSync.Reply(), "SYNC_REPLY", func() Body { return &SyncReply{} }},
	{CmdPull, "PULL", func() Body { return &Pull{} }},
	{CmdPull.Reply(), "PULL_REPLY", func() Body { return &PullReply{} }},
	{CmdChanges, "CHANGES", func() Body { return &Changes{} }},
	{CmdChanges.Reply(), "CHANGES_REPLY", func() Body { return &ChangesReply{} }},
	{CmdRead, "READ", func() Body { return &Position{} }},
	{CmdRead.Reply(), "READ_REPLY", func() Body { return &ReadReply{} }},
	{CmdRevoke, "REVOKE", func() Body { return &Position{} }},
	{CmdRevoke.Reply(), "REVOKE_REPLY", func() Body { return &ChangeReply{} }},
	{CmdDelete, "DELETE", func() Body { return &Delete{} }},
	{CmdDelete.Reply(), "DELETE_REPLY", func() Body { return &Empty{} }},
	{CmdClear, "CLEAR", func() Body { return &Clear{} }},
	{CmdClear.Reply(), "CLEAR_REPLY", func() Body { return &ClearReply{} }},
	{CmdEdit, "EDIT", func() Body { return &Edit{} }},
	{CmdEdit.Reply(), "EDIT_REPLY", func() Body { return &ChangeReply{} }},
	{CmdSetConversation, "SET_CONVERSATION", func() Body { return &SetConversation{} }},
	{CmdSetConversation.Reply(), "SET_CONVERSATION_REPLY", func() Body { return &Empty{} }},
	{CmdGetConversation, "GET_CONVERSATIONS", func() Body { return &GetConversations{} }},
	{CmdGetConversation.Reply(), "GET_CONVERSATIONS_REPLY", func() Body { return &GetConversationsReply{} }},
	{CmdUnread, "UNREAD", func() Body { return &Empty{} }},
	{CmdUnread.Reply(), "UNREAD_REPLY", func() Body { return &UnreadReply{} }},
	{CmdReact, "REACT", func() Body { return &React{} }},
	{CmdReact.Reply(), "REACT_REPLY", func() Body { return &ChangeReply{} }},
	{CmdRemove, "REMOVE_CONVERSATION", func() Body { return &RemoveConversation{} }},
	{CmdRemove.Reply(), "REMOVE_CONVERSATION_REPLY", func() Body { return &Empty{} }},
	{CmdWatchPresence, "WATCH_PRESENCE", func() Body { return &WatchPresence{} }},
	{CmdWatchPresence.Reply(), "WATCH_PRESENCE_REPLY", func() Body { return &WatchPresenceReply{} }},
	{CmdGetProfiles, "GET_PROFILES", func() Body { return &GetProfiles{} }},
	{CmdGetProfiles.Reply(), "GET_PROFILES_REPLY", func() Body { return &GetProfilesReply{} }},
	{CmdSetProfile, "SET_PROFILE", func() Body { return &SetProfile{} }},
	{CmdSetProfile.Reply(), "SET_PROFILE_REPLY", func() Body { return &SetProfileReply{} }},
	{CmdReaders, "READERS", func() Body { return &Readers{} }},
	{CmdReaders.Reply(), "READERS_REPLY", func() Body { return &ReadersReply{} }},
}

// parts are the bodies that travel within another one: as an element, or in a bin.
var parts = []command{
	{0, "Message", func() Body { return &Message{} }},
	{0, "Conversation", func() Body { return &Conversation{} }},
	{0, "Event", func() Body { return &Event{} }},
	{0, "ReadData", func() Body { return &ReadData{} }},
	{0, "PresenceData", func() Body { return &PresenceData{} }},
	{0, "ResyncData", func() Body { return &ResyncData{} }},
	{0, "OwnState", func() Body { return &OwnState{} }},
	{0, "Reaction", func() Body { return &Reaction{} }},
	{0, "DeletedData", func() Body { return &DeletedData{} }},
}

func allBodies() []command { return append(slices.Clone(commands), parts...) }

func lookUp(t testing.TB, cmd Command) command {
	t.Helper()
	for _, c := range commands {
		if c.cmd == cmd {
			return c
		}
	}
	t.Fatalf("no body is known for command %d", cmd)
	return command{}
}

// constant is one that this package declares.
type constant struct {
	name  string
	value uint64
}

// declared reads the package's source for its constants of a type, so that none can be forgotten in a table.
func declared(t *testing.T, typeName string) []constant {
	t.Helper()
	var list []constant
	eachDecl(t, func(decl ast.Decl) {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			return
		}
		for _, spec := range d.Specs {
			v := spec.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != typeName {
				continue
			}
			lit, ok := v.Values[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s is not a plain number", v.Names[0].Name)
			}
			n, err := strconv.ParseUint(lit.Value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, constant{v.Names[0].Name, n})
		}
	})
	if len(list) == 0 {
		t.Fatalf("no constants of type %s found", typeName)
	}
	return list
}

func eachDecl(t *testing.T, f func(ast.Decl)) {
	t.Helper()
	fset := token.NewFileSet()
	for _, path := range goFiles(t) {
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f(d)
		}
	}
}

// TestRegistryIsComplete: the tables that all other tests walk over miss no command and no body.
func TestRegistryIsComplete(t *testing.T) {
	for _, c := range declared(t, "Command") {
		if lookUp(t, Command(c.value)).fresh == nil {
			t.Errorf("%s has no body", c.name)
		}
	}
	known := map[string]bool{}
	for _, c := range allBodies() {
		known[typeOf(c.fresh()).Name()] = true
	}
	eachDecl(t, func(decl ast.Decl) {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Name.Name != "decode" {
			return
		}
		name := f.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
		if !known[name] {
			t.Errorf("body %s is in no table", name)
		}
	})
}

func TestCommandNames(t *testing.T) {
	seen := map[string]Command{}
	for n := range 1 << 16 {
		name := Command(n).String()
		if other, ok := seen[name]; ok {
			t.Fatalf("commands %d and %d are both called %s", n, other, name)
		}
		seen[name] = Command(n)
		i := slices.IndexFunc(commands, func(c command) bool { return c.cmd == Command(n) })
		want := strconv.Itoa(n)
		if i >= 0 {
			want = commands[i].name
		}
		if name != want {
			t.Errorf("command %d is called %s, want %s", n, name, want)
		}
	}
}

func TestCountsInFlight(t *testing.T) {
	for _, c := range commands {
		want := c.cmd != CmdPing && c.cmd != CmdPushAck && c.cmd != CmdSignal
		if got := c.cmd.CountsInFlight(); got != want {
			t.Errorf("%s counts in flight: %v", c.name, got)
		}
	}
	if !Command(999).CountsInFlight() {
		t.Error("an unknown command has a reply, ERROR, and must count")
	}
}

func TestErrorCodes(t *testing.T) {
	closes := map[ErrorCode]bool{
		CodeBadFrame: true, CodeUnsupportedVersion: true, CodeUnauthenticated: true, CodeForbidden: false, CodeNotFound: false,
		CodeInvalidArgument: false, CodeTooLarge: true, CodeRateLimited: false, CodeUnavailable: false, CodeRejected: false,
		CodeInternal: false, CodeUnknownCommand: false, CodeTokenExpired: true, 0: false, 14: false, 65535: false,
	}
	codes := declared(t, "ErrorCode")
	if len(codes) != len(closes)-3 {
		t.Errorf("%d codes are declared, the table has %d", len(codes), len(closes)-3)
	}
	for code, want := range closes {
		if got := code.Closes(); got != want {
			t.Errorf("%v closes: %v", code, got)
		}
	}
	for _, c := range codes {
		if got := snake(strings.TrimPrefix(c.name, "Code")); ErrorCode(c.value).String() != got {
			t.Errorf("code %d is called %v, want %s", c.value, ErrorCode(c.value), got)
		}
	}
	for _, c := range []ErrorCode{0, 14, 65535} {
		if c.String() != strconv.Itoa(int(c)) {
			t.Errorf("code %d is called %v", int(c), c)
		}
	}
}

func TestErrorValues(t *testing.T) {
	e := Errorf(CodeNotFound, "no %s", "such thing")
	if e.Error() != "not_found: no such thing" || (&Error{Code: CodeInternal}).Error() != "internal" {
		t.Errorf("%q", e.Error())
	}
	if !e.Is(&Error{Code: CodeNotFound}) || e.Is(&Error{Code: CodeForbidden}) || e.Is(errPlain) {
		t.Error("Is must look at the code alone")
	}
}

func TestKickReasons(t *testing.T) {
	may := map[KickReason]bool{KickSlow: true, KickServerFull: true, KickTokenExpired: true, 100: true, 65535: true}
	for _, k := range []KickReason{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99, 100, 65535} {
		if k.MayReconnect() != may[k] {
			t.Errorf("after KICK %d a client may reconnect: %v", k, k.MayReconnect())
		}
	}
}
