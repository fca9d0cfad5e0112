package wiretest

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Codes of errors that servers answer with.
const (
	CodeMaxTimeMSExpired      = 50    // the server gave up; a write may have been applied in part
	CodeWriteConcernTimeout   = 64    // applied here, not known to be on a majority
	CodeShutdownInProgress    = 91    // this node is going away
	CodePrimarySteppedDown    = 189   // this node is no longer the primary
	CodeNotWritablePrimary    = 10107 // this node is not the primary
	CodeDuplicateKey          = 11000
	CodeInterruptedAtShutdown = 11600
	CodeInterruptedByElection = 11602 // "InterruptedDueToReplStateChange": a write may have been applied
)

// Retryable is the label that a server gives errors after which a driver may send a write once more, and does when the server tells
// retried writes from new ones.
const Retryable = "RetryableWriteError"

var codeNames = map[int32]string{
	CodeMaxTimeMSExpired: "MaxTimeMSExpired", CodeWriteConcernTimeout: "WriteConcernTimeout", CodeShutdownInProgress: "ShutdownInProgress",
	CodePrimarySteppedDown: "PrimarySteppedDown", CodeNotWritablePrimary: "NotWritablePrimary", CodeDuplicateKey: "DuplicateKey",
	CodeInterruptedAtShutdown: "InterruptedAtShutdown", CodeInterruptedByElection: "InterruptedDueToReplStateChange",
}

func codeName(code int32) string {
	if name := codeNames[code]; name != "" {
		return name
	}
	return fmt.Sprintf("Location%d", code) // as a server does for what has no name
}

// Fail answers the command with an error, and does not forward it.
func Fail(code int32, labels ...string) Action {
	return func(e *Exchange) { e.Answer(e.failure(code, labels)) }
}

// FailAfter forwards the command, waits until it was carried out, and answers with an error all the same.
func FailAfter(code int32, labels ...string) Action {
	return func(e *Exchange) {
		if e.Forward() != nil {
			e.Answer(e.failure(code, labels))
		}
	}
}

func (e *Exchange) failure(code int32, labels []string) bson.D {
	return e.label(bson.D{{Key: "ok", Value: 0.0}, {Key: "errmsg", Value: "injected: " + codeName(code)}, {Key: "code", Value: code},
		{Key: "codeName", Value: codeName(code)}}, labels)
}

// label adds the labels, and the state of the server to which the error belongs: the one that the driver knows. Otherwise a driver that is
// told of another primary would look for it, and wait up to ten seconds for the server, which knows nothing of it, to tell it more.
func (e *Exchange) label(reply bson.D, labels []string) bson.D {
	reply = slices.DeleteFunc(reply, func(e bson.E) bool { return e.Key == "errorLabels" || e.Key == "topologyVersion" })
	if len(labels) > 0 {
		reply = append(reply, bson.E{Key: "errorLabels", Value: labels})
	}
	if known := e.link.p.topology(); !known.IsZero() {
		reply = append(reply, bson.E{Key: "topologyVersion", Value: known})
	}
	return reply
}

// NoMajority forwards the write, and adds to its reply that its write concern was not fulfilled: it was applied on the primary, and a
// failover may roll it back.
func NoMajority(code int32, labels ...string) Action {
	return func(e *Exchange) {
		reply, ok := e.fields(e.Forward())
		if !ok {
			return
		}
		concern := bson.D{{Key: "code", Value: code}, {Key: "codeName", Value: codeName(code)},
			{Key: "errmsg", Value: "injected: waiting for a majority"}}
		e.Answer(e.label(append(reply, bson.E{Key: "writeConcernError", Value: concern}), labels))
	}
}

// fields decodes a reply so that it can be changed.
func (e *Exchange) fields(reply bson.Raw) (fields bson.D, ok bool) {
	if reply == nil {
		return nil, false
	}
	if err := bson.Unmarshal(reply, &fields); err != nil {
		e.fail(err)
		return nil, false
	}
	return fields, true
}

// CutBefore cuts the connection in place of forwarding the command: it is not carried out.
func CutBefore() Action { return (*Exchange).Cut }

// DropReply forwards the command, waits until it was carried out, and cuts the connection: the driver cannot know that it was.
func DropReply() Action {
	return func(e *Exchange) {
		e.Forward()
		e.Cut()
	}
}

// Duplicate is WriteError with a duplicate key. Where the other document matters, insert one for real at that moment, with Do.
func Duplicate(indices ...int) Action { return WriteError(CodeDuplicateKey, indices...) }

// WriteError makes the statements of these indices, of an insert, update or delete, fail with the code. They are not forwarded; the others
// are, those after the first failed one only when the command is unordered. The reply is the server's, with these errors in it.
func WriteError(code int32, indices ...int) Action {
	return func(e *Exchange) {
		kept, refused := e.Command.split(indices)
		statements := make([]bson.Raw, len(kept))
		for i, index := range kept {
			statements[i] = e.Command.Statements[index]
		}
		reply, ok := bson.D{{Key: "n", Value: int32(0)}, {Key: "ok", Value: 1.0}}, true
		if e.Command.Name == "update" {
			reply = append(reply, bson.E{Key: "nModified", Value: int32(0)})
		}
		if len(kept) > 0 {
			reply, ok = e.fields(e.ForwardOnly(statements))
		}
		if ok {
			e.Answer(e.Command.withErrors(reply, code, kept, refused))
		}
	}
}

// split tells which statements still reach the server and which fail, by their places in the command.
func (c *Command) split(indices []int) (kept, refused []int) {
	for i := range c.Statements {
		switch {
		case !slices.Contains(indices, i):
			kept = append(kept, i)
		case c.ordered():
			return kept, []int{i}
		default:
			refused = append(refused, i)
		}
	}
	return kept, refused
}

// withErrors puts the places of the original command into the server's reply, and adds an error for each refused statement. An error of
// the server's own ended an ordered command before it came to them.
func (c *Command) withErrors(reply bson.D, code int32, kept, refused []int) bson.D {
	var failed bson.A
	for i := range reply {
		list, ok := reply[i].Value.(bson.A)
		if !ok || reply[i].Key != "writeErrors" && reply[i].Key != "upserted" {
			continue
		}
		for _, entry := range list {
			place(entry, kept)
		}
		if reply[i].Key == "writeErrors" {
			failed = list
		}
	}
	if c.ordered() && len(failed) > 0 {
		return reply
	}
	for _, index := range refused {
		failed = append(failed, c.writeError(code, index))
	}
	reply = slices.DeleteFunc(reply, func(e bson.E) bool { return e.Key == "writeErrors" })
	if len(failed) > 0 {
		reply = append(reply, bson.E{Key: "writeErrors", Value: failed})
	}
	return reply
}

// place replaces the index in an entry of a reply by the place that the statement has in the driver's command.
func place(entry any, kept []int) {
	fields, _ := entry.(bson.D)
	for i := range fields {
		if fields[i].Key != "index" {
			continue
		}
		switch at := fields[i].Value.(type) {
		case int32:
			fields[i].Value = int32(kept[at])
		case int64:
			fields[i].Value = int32(kept[at])
		}
	}
}

// writeError is what a server says of a statement that failed.
func (c *Command) writeError(code int32, index int) bson.D {
	err := bson.D{{Key: "index", Value: int32(index)}, {Key: "code", Value: code}}
	if code != CodeDuplicateKey {
		return append(err, bson.E{Key: "errmsg", Value: "injected: " + codeName(code)})
	}
	statement := c.Statements[index]
	id := statement.Lookup("_id")
	if q, ok := statement.Lookup("q").DocumentOK(); ok {
		id = q.Lookup("_id")
	}
	var key any = "injected"
	if !id.IsZero() {
		key = id
	}
	return append(err,
		bson.E{Key: "keyPattern", Value: bson.D{{Key: "_id", Value: int32(1)}}},
		bson.E{Key: "keyValue", Value: bson.D{{Key: "_id", Value: key}}},
		bson.E{Key: "errmsg", Value: fmt.Sprintf("E11000 duplicate key error collection: %s.%s index: _id_ dup key: { _id: %v }",
			c.Database, c.Collection, key)})
}
