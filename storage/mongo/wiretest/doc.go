// Package wiretest makes a MongoDB server fail on purpose: a proxy in the test's process that speaks MongoDB's wire protocol, between the
// driver and the server that the tests run against. Only tests import it.
//
//	proxy := wiretest.Start(t, mongotest.Database(t))
//	… open the store on proxy.URI() …
//	proxy.On(wiretest.Match{Command: "update", Collection: "buckets", Times: 1}, wiretest.DropReply())
package wiretest
