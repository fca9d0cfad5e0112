package wiretest

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-im/parley/storage/mongo/mongotest"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a proxy, and a collection through it and beside it.
type bench struct {
	*Proxy
	through, beside *mongo.Collection
}

func setUp(t *testing.T, with ...func(*options.ClientOptions)) bench {
	t.Helper()
	uri := mongotest.Database(t)
	beside := connect(t, uri)
	p := Start(t, uri)
	return bench{p, connect(t, p.URI(), with...), beside}
}

// connect opens collection c of the URI's database.
func connect(t *testing.T, uri string, with ...func(*options.ClientOptions)) *mongo.Collection {
	t.Helper()
	o := options.Client().ApplyURI(uri).SetTimeout(10 * time.Second)
	for _, set := range with {
		set(o)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	_, name, _ := strings.Cut(strings.TrimPrefix(uri, "mongodb://"), "/")
	name, _, _ = strings.Cut(name, "?")
	return client.Database(name).Collection("c")
}

// once leaves it to the test to repeat.
func once(o *options.ClientOptions) { o.SetRetryWrites(false).SetRetryReads(false) }

func doc(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

// insert returns a model for a bulk.
func insert(id any) mongo.WriteModel { return mongo.NewInsertOneModel().SetDocument(doc(id)) }

func set(id, value any) mongo.WriteModel {
	return mongo.NewUpdateOneModel().SetFilter(doc(id)).SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: value}}}})
}

// ids returns what is in the collection.
func ids(t *testing.T, c *mongo.Collection) (found []int32) {
	t.Helper()
	cursor, err := c.Find(t.Context(), bson.D{}, options.Find().SetSort(doc(1)))
	if err != nil {
		t.Fatal(err)
	}
	var docs []struct {
		ID int32 `bson:"_id"`
	}
	if err := cursor.All(t.Context(), &docs); err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		found = append(found, d.ID)
	}
	return found
}

func wantIDs(t *testing.T, c *mongo.Collection, want ...int32) {
	t.Helper()
	if got := ids(t, c); !slices.Equal(got, want) {
		t.Errorf("the collection has %v, want %v", got, want)
	}
}

// A proxy without rules changes nothing, and counts.
func TestPassesThrough(t *testing.T) {
	b := setUp(t)
	models := make([]mongo.WriteModel, 500)
	for i := range models {
		models[i] = insert(int32(i))
	}
	if _, err := b.through.BulkWrite(t.Context(), models, options.BulkWrite().SetOrdered(false)); err != nil {
		t.Fatal(err)
	}
	if got, want := ids(t, b.through), ids(t, b.beside); len(got) != 500 || !slices.Equal(got, want) {
		t.Errorf("read %d through the proxy and %d beside it", len(got), len(want))
	}
	if _, err := b.through.UpdateOne(t.Context(), doc(7), bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1}}}}); err != nil {
		t.Fatal(err)
	}
	insert, update, all := b.Count("insert", "c"), b.Count("update", "c"), b.Count("", "c")
	if insert.Commands != 1 || update.Commands != 1 || insert.Sent < 500*14 || update.Sent > 600 || update.Received > 600 {
		t.Errorf("insert %+v, update %+v", insert, update)
	}
	find, more := b.Count("find", "c"), b.Count("getMore", "c")
	if find.Commands != 1 || more.Commands < 1 || find.Received+more.Received < 500*14 {
		t.Errorf("find %+v, getMore %+v", find, more)
	}
	if all.Commands != insert.Commands+update.Commands+find.Commands+more.Commands {
		t.Errorf("all: %+v", all)
	}
	if names := b.Names(); names["insert"] != 1 || names["hello"]+names["isMaster"]+names["ismaster"] == 0 {
		t.Errorf("names: %v", names)
	}
	b.ResetCounts()
	if all := b.Count("", ""); all.Commands != 0 {
		t.Errorf("after a reset: %+v", all)
	}
}

// Down and Up: the server is away, and is back. CutAll: nothing that was applied is lost with the connection.
func TestDownAndUp(t *testing.T) {
	b := setUp(t, func(o *options.ClientOptions) { o.SetServerSelectionTimeout(300 * time.Millisecond) })
	if _, err := b.through.InsertOne(t.Context(), doc(1)); err != nil {
		t.Fatal(err)
	}
	b.Down()
	if _, err := b.through.InsertOne(t.Context(), doc(2)); err == nil {
		t.Error("a write got through to a server that is away")
	}
	b.Up()
	retry(t, func() error { _, err := b.through.InsertOne(t.Context(), doc(3)); return err })
	b.CutAll()
	retry(t, func() error { _, err := b.through.InsertOne(t.Context(), doc(4)); return err })
	wantIDs(t, b.beside, 1, 3, 4)
}

// retry repeats what may fail until the driver has found its server again. A repeat of what was applied is a duplicate, and as good.
func retry(t *testing.T, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := f(); err == nil || mongo.IsDuplicateKeyError(err) {
			return
		}
	}
	t.Error("the driver did not find its server again")
}

// A proxy ends while commands are held, delayed and awaited.
func TestCloseWhileHeld(t *testing.T) {
	uri := mongotest.Database(t)
	p, err := start(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	gate := NewGate()
	p.On(Match{Command: "insert"}, gate.Before)
	delayed := p.On(Match{Command: "update"}, Delay(time.Hour))
	c := connect(t, p.URI(), once)
	failed := make(chan error, 2)
	go func() { _, err := c.InsertOne(t.Context(), doc(1)); failed <- err }()
	go func() {
		_, err := c.UpdateOne(t.Context(), doc(1), bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1}}}})
		failed <- err
	}()
	<-gate.Reached()
	<-delayed.Reached()
	if faults := p.close(); len(faults) > 0 {
		t.Errorf("faults: %v", faults)
	}
	for range 2 {
		if err := <-failed; err == nil {
			t.Error("a held command succeeded")
		}
	}
	wantIDs(t, connect(t, uri))
}

func TestThroughProxy(t *testing.T) {
	for in, want := range map[string]string{
		"mongodb://h/db": "mongodb://P/db?directConnection=true",
		"mongodb://a:1,b:2/?replicaSet=r&w=majority&compressors=zlib&zlibCompressionLevel=3": "mongodb://P/?directConnection=true&w=majority",
		"mongodb://u:p%40q@h/db?authSource=x&tls=true&tlsInsecure=true":                      "mongodb://u:p%40q@P/db?directConnection=true&authSource=x",
		"mongodb://u:p@h/db?directConnection=true&appName=a":                                 "mongodb://u:p@P/db?directConnection=true&authSource=db&appName=a",
	} {
		if got := throughProxy(in, "P", options.Client().ApplyURI(in)); got != want {
			t.Errorf("%s:\n%s, want\n%s", in, got, want)
		}
	}
}

// An address at which no server is is an error, and not a proxy that lets every test fail.
func TestStartWithoutServer(t *testing.T) {
	for _, uri := range []string{"mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200", "http://x"} {
		if _, err := start(t.Context(), uri); err == nil {
			t.Errorf("%s: a proxy", uri)
		}
	}
}

// What a driver must not send ends its connection, and is told to the test.
func TestFaultsAreTold(t *testing.T) {
	p, err := start(t.Context(), mongotest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write(newMessage(opCompressed, 1, 0, bson.Raw{5, 0, 0, 0, 0}, nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := raw.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes for what cannot be read", n)
	}
	if faults := p.close(); len(faults) != 1 || !strings.Contains(faults[0].Error(), "compressed") {
		t.Errorf("faults: %v", faults)
	}
}

func code(err error) int32 {
	var failed mongo.CommandError
	if errors.As(err, &failed) {
		return failed.Code
	}
	return 0
}

// A write to which no reply is wanted gets none, and the next command of its connection gets its own.
func TestUnacknowledged(t *testing.T) {
	b := setUp(t)
	rule := b.On(Match{Command: "insert"}, FailAfter(CodeShutdownInProgress))
	silent := b.through.Clone(options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	if _, err := silent.InsertOne(t.Context(), doc(int32(1))); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); len(ids(t, b.through)) == 0; {
		if time.Now().After(end) {
			t.Fatal("the write did not arrive")
		}
	}
	if rule.Hits() != 1 {
		t.Errorf("%d hits", rule.Hits())
	}
	wantIDs(t, b.beside, 1)
}
