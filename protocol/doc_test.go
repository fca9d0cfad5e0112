package protocol

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The tests here hold docs/protocol.md against the code: what is declared there and missing in the document fails, and so does what the
// document says otherwise.

func document(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// prose is the document without its line breaks.
func prose(t *testing.T) string { return strings.Join(strings.Fields(document(t)), " ") }

// rows are the cells of the document's tables, those below a heading; with "" of all of it.
func rows(t *testing.T, heading string) [][]string {
	t.Helper()
	doc := document(t)
	if heading != "" {
		_, after, ok := strings.Cut(doc, "\n"+heading+"\n")
		if !ok {
			t.Fatalf("there is no heading %q", heading)
		}
		doc, _, _ = strings.Cut(after, "\n#")
	}
	var list [][]string
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		line = strings.ReplaceAll(line, `\|`, "\x00") // a bar within a cell
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "\x00", "|")
		}
		list = append(list, cells)
	}
	return list
}

// TestDocumentHasEveryCommand: with its number, the fields of its body, and those of its reply.
func TestDocumentHasEveryCommand(t *testing.T) {
	all := rows(t, "")
	find := func(number Command, name string) []string {
		i := slices.IndexFunc(all, func(r []string) bool { return r[0] == strconv.Itoa(int(number)) && len(r) > 1 && r[1] == name })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	for _, c := range declared(t, "Command") {
		body := lookUp(t, Command(c.value))
		name := strings.Replace(body.name, "_REPLY", " reply", 1)
		row := find(body.cmd, name)
		if row == nil {
			t.Errorf("%s, %d, is not in a table of docs/protocol.md", name, c.value)
			continue
		}
		if want := signature(typeOf(body.fresh())); !slices.Contains(row, want) {
			t.Errorf("%s: docs/protocol.md does not have its body as\n%s, but %q", name, want, row)
		}
	}
	for _, c := range commands {
		request, ok := strings.CutSuffix(c.name, "_REPLY")
		if !ok || c.cmd == CmdSignedOut {
			continue
		}
		row := find(c.cmd-1, request)
		if want := signature(typeOf(c.fresh())); row == nil || row[3] != want {
			t.Errorf("%s: docs/protocol.md does not have its reply as\n%s, but %q", request, want, row)
		}
	}
}

// TestDocumentSaysWhatIsNotThere: each command's last cell is yes or no, and those with no are listed.
func TestDocumentSaysWhatIsNotThere(t *testing.T) {
	_, missing, ok := strings.Cut(prose(t), "Commands with \"no\" in the last column of the tables above (")
	if !ok {
		t.Fatal("there is no list of commands that this server does not have")
	}
	missing, _, _ = strings.Cut(missing, ")")
	listed := strings.Fields(strings.ReplaceAll(missing, ",", " "))
	var no []string
	for _, r := range rows(t, "") {
		if _, err := strconv.Atoi(r[0]); err != nil || len(r) != 5 || r[1] != strings.ToUpper(r[1]) {
			continue
		}
		switch r[4] {
		case "no":
			no = append(no, r[1])
		case "yes":
		default:
			t.Errorf("%s: is it there or not? %q", r[1], r[4])
		}
	}
	slices.Sort(listed)
	slices.Sort(no)
	if len(no) == 0 || !slices.Equal(listed, no) {
		t.Errorf("the tables say no to %q, the list has %q", no, listed)
	}
}

func TestDocumentHasEveryErrorCode(t *testing.T) {
	table := rows(t, "## Errors")
	for _, c := range declared(t, "ErrorCode") {
		code := ErrorCode(c.value)
		closes := map[bool]string{true: "yes", false: "no"}[code.Closes()]
		want := []string{strconv.Itoa(int(code)), code.String(), closes}
		if !slices.ContainsFunc(table, func(r []string) bool { return slices.Equal(r[:3], want) }) {
			t.Errorf("docs/protocol.md has no row %q", want)
		}
	}
	_, reasons, _ := strings.Cut(prose(t), "`reason` refines `forbidden`:")
	reasons, _, _ = strings.Cut(reasons, ".")
	for reason := ReasonBlocked; reason <= ReasonNotFriend; reason++ {
		if !strings.Contains(reasons, fmt.Sprintf(" %d ", reason)) {
			t.Errorf("reason %d of forbidden is missing in %q", reason, reasons)
		}
	}
}

// TestDocumentHasEveryStruct: what travels as an element, field by field.
func TestDocumentHasEveryStruct(t *testing.T) {
	for heading, typ := range map[string]reflect.Type{
		"### Message": reflect.TypeFor[Message](), "### Conversation": reflect.TypeFor[Conversation](), "### Event": reflect.TypeFor[Event](),
	} {
		table := rows(t, heading)[1:]
		for i := range typ.NumField() {
			want := []string{strconv.Itoa(i), snake(typ.Field(i).Name), typeName(typ.Field(i).Type)}
			if i >= len(table) || !slices.Equal(table[i][:3], want) {
				t.Errorf("%s: row %d is not %q", heading, i, want)
			}
		}
	}
	for _, body := range []Body{&ReadData{}, &PresenceData{}, &ResyncData{}, &OwnState{}, &DeletedData{}} {
		if want := "`[" + signature(typeOf(body)) + "]`"; !strings.Contains(prose(t), want) {
			t.Errorf("docs/protocol.md does not have %s", want)
		}
	}
}

// TestDocumentHasEveryNumber: the values of the enumerations are first cells of a table of theirs.
func TestDocumentHasEveryNumber(t *testing.T) {
	for typ, heading := range map[string]string{"KickReason": "## Session", "Platform": "## Session", "EventType": "### Event"} {
		table := rows(t, heading)
		for _, c := range declared(t, typ) {
			header := map[string]string{"KickReason": "reason", "Platform": "platform", "EventType": "type"}[typ]
			i := slices.IndexFunc(table, func(r []string) bool { return r[0] == header })
			if i < 0 || !slices.ContainsFunc(table[i:], func(r []string) bool { return r[0] == strconv.FormatUint(c.value, 10) }) {
				t.Errorf("%s, %d, is in no table under %q", c.name, c.value, heading)
			}
		}
	}
}

func TestDocumentHasEveryLimit(t *testing.T) {
	table := rows(t, "## Limits")
	has := func(field string, n int) bool {
		word := regexp.MustCompile(`\b` + regexp.QuoteMeta(field) + `\b`)
		return slices.ContainsFunc(table, func(r []string) bool { return word.MatchString(r[0]) && (r[1] == strconv.Itoa(n) || n == maxBin) })
	}
	for _, limits := range []map[string]int{limits, lengths} {
		for field, n := range limits {
			if typ, name, ok := strings.Cut(field, "."); ok {
				field = name + " of " + strings.ToUpper(strings.TrimSuffix(typ, "Reply"))
			}
			if !has(field, n) {
				t.Errorf("docs/protocol.md does not say that %s is at most %d", field, n)
			}
		}
	}
	for what, n := range map[string]int{"body before sign-in": HandshakeMaxBody, "body of a request, `max_body`": DefaultMaxBody, "body from the server, `max_down`": DefaultMaxDown} {
		want := []string{what, fmt.Sprintf("%d KiB", n>>10)}
		if !slices.ContainsFunc(table, func(r []string) bool { return slices.Equal(r, want) }) {
			t.Errorf("docs/protocol.md has no row %q", want)
		}
	}
}

// TestDocumentExamples: the bytes of every example are those of its golden vector.
func TestDocumentExamples(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```hex\n# (\\S+): (.+?)\n(.*?)```").FindAllStringSubmatch(document(t), -1)
	seen := map[Command]bool{}
	for _, b := range blocks {
		list := load[vector](t, b[1])
		i := slices.IndexFunc(list, func(v vector) bool { return v.Name == b[2] })
		if i < 0 {
			t.Fatalf("%s has no vector %q", b[1], b[2])
		}
		seen[list[i].Command] = true
		var frame []byte
		for line := range strings.Lines(b[3]) {
			left, _, _ := strings.Cut(line, "  ")
			p, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(left), " ", ""))
			if err != nil {
				t.Fatalf("%s: %q: %v", b[2], line, err)
			}
			frame = append(frame, p...)
		}
		if got := hex.EncodeToString(frame); got != list[i].Frame {
			t.Errorf("%s: the example is\n%s, the vector\n%s", b[2], got, list[i].Frame)
		}
	}
	for _, cmd := range []Command{CmdHello, CmdWelcome, CmdSend, CmdSendAck, CmdPush} {
		if !seen[cmd] {
			t.Errorf("there is no example of %v", cmd)
		}
	}
}

// TestDocumentLinks: those within the page, and the golden files that it names, are there.
func TestDocumentLinks(t *testing.T) {
	doc := document(t)
	anchors := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(doc, -1) {
		anchors[strings.ReplaceAll(strings.ToLower(h[1]), " ", "-")] = true
	}
	for _, l := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(doc, -1) {
		if !anchors[l[1]] {
			t.Errorf("#%s leads nowhere", l[1])
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.Contains(doc, "`"+filepath.Base(f)+"`") {
			t.Errorf("%s is not explained", f)
		}
	}
}
