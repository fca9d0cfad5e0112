package protocol

import (
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

// idVector is a string, and what it is as an id.
type idVector struct {
	ID    string           `json:"id"`
	Valid bool             `json:"valid"` // as a user or group id
	Kind  ConversationKind `json:"kind"`  // as a conversation id: 0 none, 1 direct, 2 group, 3 a user's stream
	A     string           `json:"a"`
	B     string           `json:"b"`
}

// idSources are strings on both sides of every rule.
var idSources = []string{
	"", "a", "A", "9", ".", "..", "_", "-", "*", "a b", " a", "a\n", "a\x00", "a:b", ":", "a/b", "a\\b", "a%b", "é", "\xff", "日本",
	fullName, "alice@example.org", "auth0|42=+", strings.Repeat("x", MaxIDLen), strings.Repeat("x", MaxIDLen+1),
	"p:a:b", "p:a:a", "p:b:a", "p:B:a", "p:a:B", "p:a:", "p::b", "p::", "p:", "p", "p:a", "p:a:b:c", "p:a:b:", ":a:b", "P:a:b", "p;a;b", "p:a b:c",
	"p:alice:bob", "p:10:9", "p:9:10", "p:-:=", "p:" + strings.Repeat("x", MaxIDLen) + ":" + strings.Repeat("y", MaxIDLen),
	"p:" + strings.Repeat("x", MaxIDLen+1) + ":y", "p:a:" + strings.Repeat("x", MaxIDLen+1), "p:*:a", "p:a:\x00",
	"g:a", "g:", "g", "g:a:b", "g:team-7", "g:" + strings.Repeat("x", MaxIDLen), "g:" + strings.Repeat("x", MaxIDLen+1), "g: ", "g:é",
	"u:a", "u:", "u", "u:a:b", "u:alice", "u:" + strings.Repeat("x", MaxIDLen), "u:" + strings.Repeat("x", MaxIDLen+1),
	"x:a", "c:a:b", "pp:a:b", "p:a:b\n", strings.Repeat(":", 200), strings.Repeat("p:a:b", 1000),
}

// directSources are pairs of users, and their conversation.
var directSources = [][3]string{
	{"alice", "bob", "p:alice:bob"}, {"bob", "alice", "p:alice:bob"}, {"alice", "alice", "p:alice:alice"}, {"a", "B", "p:B:a"},
	{"10", "9", "p:10:9"}, {"a", "aa", "p:a:aa"}, {"a|b", "a", "p:a:a|b"}, {"_", "-", "p:-:_"},
}

func TestVectorsIDs(t *testing.T) {
	made := make([]idVector, len(idSources))
	for i, id := range idSources {
		made[i] = idVector{ID: id, Valid: ValidID(id)}
		made[i].Kind, made[i].A, made[i].B = ParseConversation(id)
	}
	golden(t, "ids.json", keepText(made))
	golden(t, "direct.json", directSources)
}

// keepText leaves out what JSON cannot hold.
func keepText(list []idVector) []idVector {
	var kept []idVector
	for _, v := range list {
		if v.ID == strings.ToValidUTF8(v.ID, "?") {
			kept = append(kept, v)
		}
	}
	return kept
}

func TestValidID(t *testing.T) {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@+=|-"
	for c := range 256 {
		want := strings.IndexByte(allowed, byte(c)) >= 0
		for _, id := range []string{string([]byte{byte(c)}), string([]byte{'a', byte(c)}), string([]byte{byte(c), 'a'})} {
			if ValidID(id) != want {
				t.Errorf("ValidID(%q) is %v", id, !want)
			}
		}
	}
	for n, want := range map[int]bool{0: false, 1: true, MaxIDLen: true, MaxIDLen + 1: false, 1 << 20: false} {
		if ValidID(strings.Repeat("a", n)) != want {
			t.Errorf("an id of %d bytes is valid: %v", n, !want)
		}
	}
}

// TestParseConversation states the grammar a second time, as plainly as can be, and holds every string against it.
func TestParseConversation(t *testing.T) {
	for _, id := range idSources {
		kind, a, b := ParseConversation(id)
		want, wantA, wantB := KindInvalid, "", ""
		switch parts := strings.Split(id, ":"); {
		case len(parts) == 3 && parts[0] == "p" && ValidID(parts[1]) && ValidID(parts[2]) && parts[1] <= parts[2]:
			want, wantA, wantB = KindDirect, parts[1], parts[2]
		case len(parts) == 2 && parts[0] == "g" && ValidID(parts[1]):
			want, wantA = KindGroup, parts[1]
		case len(parts) == 2 && parts[0] == "u" && ValidID(parts[1]):
			want, wantA = KindUser, parts[1]
		}
		if kind != want || a != wantA || b != wantB {
			t.Errorf("ParseConversation(%.40q) is %d %q %q, want %d %q %q", id, kind, a, b, want, wantA, wantB)
		}
	}
}

func TestConversationIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	owner := map[string][2]string{}
	for range 20_000 {
		a, b := randomID(r), randomID(r)
		id := DirectConversation(a, b)
		if id != DirectConversation(b, a) {
			t.Fatalf("DirectConversation(%q, %q) depends on the order", a, b)
		}
		lo, hi := min(a, b), max(a, b)
		if kind, x, y := ParseConversation(id); kind != KindDirect || x != lo || y != hi {
			t.Fatalf("%q parses as %d %q %q", id, kind, x, y)
		}
		if pair, ok := owner[id]; ok && pair != [2]string{lo, hi} {
			t.Fatalf("%q belongs to %q and to %q", id, pair, [2]string{lo, hi})
		}
		owner[id] = [2]string{lo, hi}
	}
	if kind, a, b := ParseConversation(GroupConversation("team")); kind != KindGroup || a != "team" || b != "" {
		t.Error("a group's id does not parse")
	}
	if kind, a, b := ParseConversation(UserStream("alice")); kind != KindUser || a != "alice" || b != "" {
		t.Error("a user stream's id does not parse")
	}
	for _, v := range directSources {
		if got := DirectConversation(v[0], v[1]); got != v[2] {
			t.Errorf("DirectConversation(%q, %q) is %q, want %q", v[0], v[1], got, v[2])
		}
	}
	longest := DirectConversation(strings.Repeat("x", MaxIDLen), strings.Repeat("y", MaxIDLen))
	if len(longest) != maxConversationID {
		t.Errorf("the longest conversation id has %d bytes, the bound is %d", len(longest), maxConversationID)
	}
}

// randomID is short and of few letters, so that pairs come close to each other.
func randomID(r *rand.Rand) string {
	b := make([]byte, 1+r.IntN(3))
	for i := range b {
		b[i] = "ab.|"[r.IntN(4)]
	}
	return string(b)
}

// TestMessageIDIsStable: a repeat of a SEND gets the same id from every version of the server, for ever.
func TestMessageIDIsStable(t *testing.T) {
	for _, v := range []struct{ conversation, sender, clientMsgID, want string }{
		// printf '\x0bp:alice:bob\x05alice\x1a01JDX3Q5V9W3E0N6C8RZ7T4KYB' | sha256sum, the first 16 bytes as base64url
		{aliceBob, "alice", clientID, serverID},
		{"", "", "", "cJ6AyISHokEeHuTfufIqhg"}, // printf '\0\0\0' | sha256sum
	} {
		id := NewMessageID(v.conversation, v.sender, v.clientMsgID)
		if id.String() != v.want {
			t.Errorf("NewMessageID(%q, %q, %q) is %s, want %s", v.conversation, v.sender, v.clientMsgID, id, v.want)
		}
	}
}

func TestMessageIDText(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		var id MessageID
		binary.BigEndian.PutUint64(id[:], r.Uint64())
		binary.BigEndian.PutUint64(id[8:], r.Uint64())
		s := id.String()
		if len(s) != MessageIDLen || string(id.Append([]byte("x"))) != "x"+s {
			t.Fatalf("%q, %q", s, id.Append(nil))
		}
		if got, ok := ParseMessageID(s); !ok || got != id {
			t.Fatalf("%s parses as %s, %v", s, got, ok)
		}
	}
	good := MessageID{1}.String()
	for _, s := range []string{
		"", good[:21], good + "A", good + "=", good[:21] + "=", good[:21] + "\n", "\n" + good, good[:10] + "\n" + good[11:], good[:21] + "B", // bits behind the end
		strings.Repeat("+", 22), strings.Repeat("/", 22), strings.Repeat(" ", 22), base64.StdEncoding.EncodeToString(make([]byte, 16)),
	} {
		if _, ok := ParseMessageID(s); ok {
			t.Errorf("%q is taken for an id", s)
		}
	}
}

// TestMessageIDInputs: no two triples of pieces are the same bytes to the hash, wherever the borders between them lie. The strings are
// all of up to 4 letters over an alphabet that has a length prefix in it, split at every pair of borders.
func TestMessageIDInputs(t *testing.T) {
	seen := map[MessageID][3]string{}
	var all func(prefix string, left int)
	all = func(prefix string, left int) {
		for i := range len(prefix) + 1 {
			for j := i; j <= len(prefix); j++ {
				triple := [3]string{prefix[:i], prefix[i:j], prefix[j:]}
				id := NewMessageID(triple[0], triple[1], triple[2])
				if other, ok := seen[id]; ok && other != triple {
					t.Fatalf("%q and %q have one id", triple, other)
				}
				seen[id] = triple
			}
		}
		if left > 0 {
			for _, c := range []string{"a", "\x00", "\x01", "\x02", ":"} {
				all(prefix+c, left-1)
			}
		}
	}
	all("", 4)
	// Beyond the bounds of the fields, too: a length of two bytes, and more than the scratch buffer holds.
	long := strings.Repeat("a", 600)
	if NewMessageID(long, "", "") == NewMessageID(long[:599], "a", "") || NewMessageID(long, "b", "c") == NewMessageID(long, "bc", "") {
		t.Error("long pieces collide")
	}
}
