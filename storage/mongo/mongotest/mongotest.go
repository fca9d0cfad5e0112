// Package mongotest gives tests the MongoDB server that they run against: the one whose address is in PARLEY_TEST_MONGO. `make test` starts
// one and sets it; to run the tests against a server of your own, set it yourself. Only tests import this package.
package mongotest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	addressVariable = "PARLEY_TEST_MONGO"
	quickVariable   = "PARLEY_TEST_QUICK"

	// patience is how long a server on the same machine, or near, may take to answer.
	patience = 20 * time.Second
)

// URI returns the address of the tests' server. Without one the test is skipped when PARLEY_TEST_QUICK is 1, and fails otherwise. It is
// called from the test's goroutine.
func URI(tb testing.TB) string {
	tb.Helper()
	if uri := os.Getenv(addressVariable); uri != "" {
		return uri
	}
	if os.Getenv(quickVariable) == "1" {
		tb.Skip("no MongoDB server: " + addressVariable + " is not set")
	}
	tb.Fatal(addressVariable +
		" is not set: run `make test`, or `make services` and `env $(cat .services/env) go test …`, or set it to a server of yours")
	return ""
}

// Database returns a URI of a database of that server which is the test's own: it is empty, and is dropped when the test is over, after
// whatever the test gave to Cleanup later. It is called from the test's goroutine.
func Database(tb testing.TB) string {
	tb.Helper()
	uri, name := URI(tb), databaseName(tb.Name())
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetTimeout(patience))
	if err != nil {
		tb.Fatalf("the address in %s: %v", addressVariable, err)
	}
	disconnect := func() {
		if err := client.Disconnect(context.Background()); err != nil {
			tb.Errorf("disconnect from the tests' server: %v", err)
		}
	}
	if err := client.Ping(tb.Context(), nil); err != nil {
		disconnect()
		tb.Fatalf("the server in %s does not answer: %v", addressVariable, err)
	}
	tb.Cleanup(func() {
		defer disconnect()
		if err := client.Database(name).Drop(context.Background()); err != nil {
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return withDatabase(uri, name)
}

// databaseName makes a name that no other test has, and which says whose it is. MongoDB takes 63 bytes, without most punctuation.
func databaseName(test string) string {
	var id [6]byte
	rand.Read(id[:])
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, test)
	return "parley_test_" + hex.EncodeToString(id[:]) + "_" + plain[:min(len(plain), 35)]
}

// withDatabase sets the database of a URI: scheme://[user:password@]host[,host][/[database][?options]]. A database that was named there
// is also where its user is looked up, unless authSource says otherwise.
func withDatabase(uri, name string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	rest, query, _ := strings.Cut(rest, "?")
	authority, old, _ := strings.Cut(rest, "/")
	if old != "" && strings.Contains(authority, "@") && !strings.Contains(strings.ToLower(query), "authsource=") {
		query = strings.TrimSuffix("authSource="+old+"&"+query, "&")
	}
	uri = scheme + "://" + authority + "/" + name
	if query != "" {
		uri += "?" + query
	}
	return uri
}
