// Package wiretest makes a MongoDB server fail on purpose: a proxy in the test's process that speaks MongoDB's wire protocol, between the
// driver and the server that the tests run against. Only tests import it.
//
//	proxy := wiretest.Start(t, mongotest.Database(t))
//	store := open(t, proxy.URI())
//	rule := proxy.On(wiretest.Match{Command: "update", Collection: "buckets", Times: 1}, wiretest.DropReply())
//	…
//	if rule.Hits() != 1 { … }      // or wait: <-rule.Reached()
//
// What a rule can do to a command:
//
//	                 carried out?                   the driver sees
//	CutBefore        no                             a cut connection
//	DropReply        yes                            a cut connection
//	Fail             no                             an error of the code and labels
//	FailAfter        yes                            an error of the code and labels
//	NoMajority       yes                            a reply with a write concern error
//	WriteError       the statements not named       a reply with errors at the statements named
//	Duplicate        the statements not named       the same, with code 11000
//	Delay            yes, later                     the reply, later
//	Gate.Before      when the gate is open, even if the driver gave up: a late write
//	Gate.After       yes                            the reply, when the gate is open
//	Do, DoAfter      yes                            the reply; meanwhile another writer did something
//	Behind.Read      not while frozen               what it saw before: a read that is behind
//
// An Action is a function of an Exchange, so a test writes any other in a few lines. A server that is away as a whole: Down, Up, CutAll.
// Count tells what went over the wire, commands and bytes.
//
// # What the driver does by itself
//
// All of it is seen by rules and counted, as commands of their own. TestDriverRepeats holds it against the driver (v2.10):
//
//   - A read is sent once more after a cut connection, and after 91, 189, 10107, 11600 and 11602, with or without a label.
//   - A write is sent once more after a cut connection and after any error with the label RetryableWriteError, also one in a write concern
//     error; not after 91 or 189 without that label. UpdateMany and DeleteMany, also within a bulk, never. SetRetryWrites(false) and
//     SetRetryReads(false) end both.
//   - A replica set carries a write that is sent again out once. The stand-in that `make services` starts carries it out twice: the repeat
//     of an insert is a duplicate key, an $inc adds twice, a compare-and-set does not match the second time. So a store that holds here held
//     without that help.
//   - 50 is not retried, and is a timeout for mongo.IsTimeout. A write concern that is not fulfilled is an error, though the write was applied.
//   - After an error about a change of primary (91, 189, …) the driver looks for the primary, unless the error belongs to a state of the
//     server that it knows already. Those of Fail, FailAfter and NoMajority do, so that nothing waits. One made with Answer does not,
//     and costs as long as the server takes to answer the next hello: up to 10 s.
//   - After a cut connection the driver drops its other connections to the server and looks at it again: that takes some 10 ms here, now and
//     then up to 500 ms, its shortest time between two looks.
//   - The driver in front of a proxy is told directConnection=true: it does not look for the other members of a set.
package wiretest
