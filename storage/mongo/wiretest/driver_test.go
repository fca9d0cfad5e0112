package wiretest

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// What the driver repeats by itself, as doc.go has it: tests of a store that do not know it would count wrong.
func TestDriverRepeats(t *testing.T) {
	raise := bson.D{{Key: "$inc", Value: bson.D{{Key: "v", Value: 1}}}}
	raiseOne := mongo.NewUpdateOneModel().SetFilter(doc(int32(1))).SetUpdate(raise)
	operations := map[string]func(context.Context, *mongo.Collection) error{
		"insert": func(ctx context.Context, c *mongo.Collection) error {
			_, err := c.InsertOne(ctx, doc(int32(2)))
			return err
		},
		"bulk": func(ctx context.Context, c *mongo.Collection) error {
			_, err := c.BulkWrite(ctx, []mongo.WriteModel{raiseOne, set(int32(3), 1)}, options.BulkWrite().SetOrdered(false))
			return err
		},
		"update many": func(ctx context.Context, c *mongo.Collection) error {
			_, err := c.UpdateMany(ctx, bson.D{}, raise)
			return err
		},
		"find": func(ctx context.Context, c *mongo.Collection) error { return c.FindOne(ctx, doc(int32(1))).Err() },
	}
	type outcome struct {
		action Action
		times  map[string]int64 // how often the driver sends the operation; those that it sends once fail
	}
	all := map[string]int64{"insert": 2, "bulk": 2, "find": 2, "update many": 1}
	reads := map[string]int64{"insert": 1, "bulk": 1, "find": 2, "update many": 1}
	none := map[string]int64{"insert": 1, "bulk": 1, "find": 1, "update many": 1}
	for name, c := range map[string]outcome{
		"reply dropped":              {DropReply(), all},
		"cut before":                 {CutBefore(), all},
		"shutdown":                   {Fail(CodeShutdownInProgress), reads},
		"shutdown, labelled":         {Fail(CodeShutdownInProgress, Retryable), all},
		"stepped down after":         {FailAfter(CodePrimarySteppedDown, Retryable), all},
		"time is up":                 {FailAfter(CodeMaxTimeMSExpired), none},
		"no majority":                {NoMajority(CodeWriteConcernTimeout), none},
		"no majority, labelled":      {NoMajority(CodeShutdownInProgress, Retryable), all},
		"interrupted by an election": {Fail(CodeInterruptedByElection, Retryable), all},
	} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t)
			needsReplicaSet(t, b.beside)
			for operation, run := range operations {
				if _, err := b.beside.DeleteMany(t.Context(), bson.D{}); err != nil {
					t.Fatal(err)
				}
				if _, err := b.beside.InsertOne(t.Context(), doc(int32(1))); err != nil {
					t.Fatal(err)
				}
				b.ResetCounts()
				b.On(Match{Collection: "c", Times: 1}, c.action)
				err := run(t.Context(), b.through)
				if mongo.IsDuplicateKeyError(err) {
					err = nil // the server does not tell a repeated write from a new one: it was applied before
				}
				if got, want := b.Count("", "c").Commands, c.times[operation]; got != want || (err == nil) != (want == 2) {
					t.Errorf("%s: sent %d times, want %d; %v", operation, got, want, err)
				}
			}
		})
	}
}

// needsReplicaSet skips on a server that is alone: to one the driver sends no write again.
func needsReplicaSet(t *testing.T, c *mongo.Collection) {
	t.Helper()
	var hello struct{ SetName string }
	if err := c.Database().RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	if hello.SetName == "" {
		t.Skip("the server is not of a replica set")
	}
}
