package mongotest

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestWithDatabase(t *testing.T) {
	for in, want := range map[string]string{
		"mongodb://h":                                      "mongodb://h/x",
		"mongodb://h:1/":                                   "mongodb://h:1/x",
		"mongodb://a:1,b:2/old":                            "mongodb://a:1,b:2/x",
		"mongodb://a:1,b:2/?replicaSet=r":                  "mongodb://a:1,b:2/x?replicaSet=r",
		"mongodb://a:1?w=1":                                "mongodb://a:1/x?w=1",
		"mongodb+srv://u:p@h/old?tls=true":                 "mongodb+srv://u:p@h/x?authSource=old&tls=true",
		"mongodb://u:p@h/old":                              "mongodb://u:p@h/x?authSource=old",
		"mongodb://u:p@h/old?authSource=admin&appName=a/b": "mongodb://u:p@h/x?authSource=admin&appName=a/b",
	} {
		if got := withDatabase(in, "x"); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestDatabaseName(t *testing.T) {
	name := databaseName("TestX/a b.c$d/" + strings.Repeat("ü", 100))
	if len(name) > 63 || strings.ContainsAny(name, `/\. "$*<>:|?`) || name == databaseName("TestX") {
		t.Errorf("%q", name)
	}
}

// Each test has a database of its own, and nothing is left of it.
func TestDatabaseIsDropped(t *testing.T) {
	uri := URI(t)
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	var name string
	t.Run("use", func(t *testing.T) {
		own, other := Database(t), Database(t)
		if own == other {
			t.Fatal("two tests share a database")
		}
		_, name, _ = strings.Cut(strings.TrimPrefix(own, "mongodb://"), "/")
		name, _, _ = strings.Cut(name, "?")
		if _, err := client.Database(name).Collection("c").InsertOne(t.Context(), bson.D{{Key: "a", Value: 1}}); err != nil {
			t.Fatal(err)
		}
		if found := databases(t, client, name); found != 1 {
			t.Fatalf("%d databases named %s", found, name)
		}
	})
	if found := databases(t, client, name); found != 0 {
		t.Errorf("%s was not dropped", name)
	}
}

func databases(t *testing.T, client *mongo.Client, name string) int {
	t.Helper()
	names, err := client.ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: name}})
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
