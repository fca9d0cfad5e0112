package wiretest

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Command is what a driver asks of the server.
type Command struct {
	Name       string // as the server knows it: insert, update, find, aggregate …
	Database   string
	Collection string // "": the command is not about one
	Body       bson.Raw
	// Statements are the documents of an insert, the updates of an update, the deletes of a delete.
	Statements []bson.Raw
	// Connection is the number of the connection that it came on: 1, 2 …
	Connection int64

	apart []sequence
}

// statements names the array that a command's statements are in.
var statements = map[string]string{"insert": "documents", "update": "updates", "delete": "deletes"}

// handshakes are what drivers send on their own, to find out what the server is and whether it lives.
var handshakes = []string{"hello", "isMaster", "ismaster"}

func parseCommand(m message) (*Command, error) {
	body, apart, err := m.document()
	if err != nil {
		return nil, err
	}
	first, err := body.IndexErr(0)
	if err != nil {
		return nil, err
	}
	c := &Command{Name: first.Key(), Body: body, apart: apart}
	c.Database, _ = body.Lookup("$db").StringValueOK()
	c.Collection, _ = first.Value().StringValueOK()
	if c.Name == "getMore" {
		c.Collection, _ = body.Lookup("collection").StringValueOK()
	}
	array, writes := statements[c.Name]
	if !writes {
		return c, nil
	}
	for _, s := range apart {
		if s.name == array {
			c.Statements = s.documents
			return c, nil
		}
	}
	list, _ := body.Lookup(array).ArrayOK()
	values, err := list.Values()
	for _, v := range values {
		statement, _ := v.DocumentOK()
		c.Statements = append(c.Statements, statement)
	}
	return c, err
}

// Is tells whether the command has the name, and is about the collection. "" stands for any collection, and for any name but those of the
// handshake and of monitoring.
func (c *Command) Is(name, collection string) bool {
	if collection != "" && collection != c.Collection {
		return false
	}
	if name == "" {
		return !slices.Contains(handshakes, c.Name)
	}
	return name == c.Name
}

// ordered tells whether the first write error of the command ends it.
func (c *Command) ordered() bool {
	ordered, ok := c.Body.Lookup("ordered").BooleanOK()
	return ordered || !ok
}

// with returns the command's sections with other statements.
func (c *Command) with(left []bson.Raw) (bson.Raw, []sequence, error) {
	array := statements[c.Name]
	var body bson.D
	if err := bson.Unmarshal(c.Body, &body); err != nil {
		return nil, nil, err
	}
	body = slices.DeleteFunc(body, func(e bson.E) bool { return e.Key == array })
	raw, err := bson.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	apart := slices.DeleteFunc(slices.Clone(c.apart), func(s sequence) bool { return s.name == array })
	return raw, append(apart, sequence{array, left}), nil
}

// String names the command, for a test's log.
func (c *Command) String() string {
	return strings.TrimSuffix(c.Name+" "+c.Collection, " ")
}
