package wiretest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func raw(t *testing.T, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMessages(t *testing.T) {
	body := raw(t, bson.D{{Key: "insert", Value: "c"}, {Key: "$db", Value: "d"}, {Key: "ordered", Value: false}})
	documents := []bson.Raw{raw(t, doc(1)), raw(t, doc("x"))}
	m := newMessage(opMsg, 7, 3, body, []sequence{{"documents", documents}})
	read, err := readMessage(bytes.NewReader(m))
	if err != nil || !bytes.Equal(read, m) || read.requestID() != 7 || read.moreToCome() {
		t.Fatalf("%v, %v", read, err)
	}
	c, err := parseCommand(read)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "insert" || c.Database != "d" || c.Collection != "c" || c.ordered() {
		t.Errorf("%+v", c)
	}
	if len(c.Statements) != 2 || !bytes.Equal(c.Statements[1], documents[1]) {
		t.Errorf("%+v", c)
	}
	body, apart, err := c.with(documents[1:])
	if err != nil || len(apart) != 1 || len(apart[0].documents) != 1 || body.Lookup("$db").StringValue() != "d" {
		t.Errorf("with one statement: %v %v %v", body, apart, err)
	}
	inBody := newMessage(opMsg, 1, 0, raw(t, bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{doc(1)}}}), nil)
	if c, err := parseCommand(inBody); err != nil || len(c.Statements) != 1 || !c.ordered() {
		t.Errorf("statements in the body: %+v, %v", c, err)
	}
}

// Messages that end anywhere, or claim other lengths than they have, are errors.
func TestBrokenMessages(t *testing.T) {
	whole := newMessage(opMsg, 1, 0, raw(t, bson.D{{Key: "insert", Value: "c"}}), []sequence{{"documents", []bson.Raw{raw(t, doc(1))}}})
	for n := range whole {
		if _, err := readMessage(bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("read a message of which %d bytes are there", n)
		}
		if n < headerSize {
			continue
		}
		cut := slices.Clone(whole[:n])
		if c, err := parseCommand(cut); err == nil && len(c.Statements) != 0 {
			t.Errorf("%d of %d bytes: %+v", n, len(whole), c)
		}
	}
	for at := headerSize; at+4 <= len(whole); at++ {
		wrong := slices.Clone(whole)
		binary.LittleEndian.PutUint32(wrong[at:], 0xfffffff0)
		_, _ = parseCommand(wrong) // it must only come back
	}
	for _, size := range []uint32{0, 15, maxMessage + 1, 1 << 31} {
		if _, err := readMessage(bytes.NewReader(binary.LittleEndian.AppendUint32(nil, size))); err == nil {
			t.Errorf("a message of %d bytes", size)
		}
	}
}

// The first hello of a connection, and its reply, have forms of their own.
func TestQueryAndReply(t *testing.T) {
	hello := raw(t, bson.D{{Key: "isMaster", Value: 1}})
	query := slices.Concat(make(message, headerSize), message("\x00\x00\x00\x00admin.$cmd\x00\x00\x00\x00\x00\x01\x00\x00\x00"), message(hello))
	binary.LittleEndian.PutUint32(query[12:], opQuery)
	if c, err := parseCommand(query); err != nil || c.Name != "isMaster" || c.Is("", "") || !c.Is("isMaster", "") {
		t.Errorf("%+v, %v", c, err)
	}
	if got, _, err := newMessage(opReply, 1, 2, hello, nil).document(); err != nil || !bytes.Equal(got, hello) {
		t.Errorf("%v, %v", got, err)
	}
	for n := headerSize; n < len(query); n++ {
		if _, err := parseCommand(query[:n]); err == nil {
			t.Errorf("a query of %d bytes", n)
		}
	}
}
