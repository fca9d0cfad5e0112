package wiretest

import (
	"errors"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Which actions let the command be carried out, and what a driver that does not retry sees.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		action  Action
		applied bool
		code    int32
		network bool
	}{
		"fail":            {Fail(CodePrimarySteppedDown), false, CodePrimarySteppedDown, false},
		"fail, labelled":  {Fail(CodeShutdownInProgress, Retryable), false, CodeShutdownInProgress, false},
		"fail after":      {FailAfter(CodeInterruptedByElection, Retryable), true, CodeInterruptedByElection, false},
		"time is up":      {FailAfter(CodeMaxTimeMSExpired), true, CodeMaxTimeMSExpired, false},
		"cut before":      {CutBefore(), false, 0, true},
		"reply dropped":   {DropReply(), true, 0, true},
		"nothing to fail": {Do(func(*Command) {}), true, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t, once)
			rule := b.On(Match{Command: "insert", Collection: "c", Times: 1}, c.action)
			_, err := b.through.InsertOne(t.Context(), doc(int32(1)))
			switch {
			case c.code < 0 && err != nil, c.code > 0 && code(err) != c.code, mongo.IsNetworkError(err) != c.network:
				t.Errorf("the driver sees %v", err)
			}
			var failed mongo.ServerError
			if errors.As(err, &failed) && !c.network && failed.HasErrorLabel(Retryable) != (name == "fail, labelled" || name == "fail after") {
				t.Errorf("labels of %v", err)
			}
			if rule.Hits() != 1 {
				t.Errorf("the rule was applied %d times", rule.Hits())
			}
			if c.applied {
				wantIDs(t, b.beside, 1)
			} else {
				wantIDs(t, b.beside)
			}
		})
	}
}

// A write that was applied, and is not known to be on a majority.
func TestNoMajority(t *testing.T) {
	b := setUp(t, once)
	b.On(Match{Command: "insert"}, NoMajority(CodeWriteConcernTimeout))
	_, err := b.through.InsertOne(t.Context(), doc(int32(1)))
	var failed mongo.WriteException
	if !errors.As(err, &failed) || failed.WriteConcernError == nil || failed.WriteConcernError.Code != CodeWriteConcernTimeout {
		t.Errorf("the driver sees %v", err)
	}
	wantIDs(t, b.beside, 1)
}

// Statements of a bulk that fail by their places; what the server itself finds wrong keeps its place too.
func TestDuplicate(t *testing.T) {
	type failure struct {
		index int
		code  int
	}
	for name, c := range map[string]struct {
		ordered bool
		refused []int
		models  []mongo.WriteModel
		failed  []failure
		left    []int32
	}{
		"one of an unordered bulk": {false, []int{1}, []mongo.WriteModel{insert(1), insert(2), insert(3)},
			[]failure{{1, 11000}}, []int32{1, 3, 9}},
		"all":             {false, []int{0, 1}, []mongo.WriteModel{insert(1), insert(2)}, []failure{{0, 11000}, {1, 11000}}, []int32{9}},
		"an ordered bulk": {true, []int{1}, []mongo.WriteModel{insert(1), insert(2), insert(3)}, []failure{{1, 11000}}, []int32{1, 9}},
		"beside a real one": {false, []int{0}, []mongo.WriteModel{insert(1), insert(2), insert(9), insert(4)},
			[]failure{{0, 11000}, {2, 11000}}, []int32{2, 4, 9}},
		"after a real one, ordered": {true, []int{2}, []mongo.WriteModel{insert(1), insert(9), insert(3)}, []failure{{1, 11000}}, []int32{1, 9}},
		"a place that is not there": {false, []int{5}, []mongo.WriteModel{insert(1)}, nil, []int32{1, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t, once)
			if _, err := b.beside.InsertOne(t.Context(), doc(9)); err != nil {
				t.Fatal(err)
			}
			b.On(Match{Command: "insert", Times: 1}, Duplicate(c.refused...))
			_, err := b.through.BulkWrite(t.Context(), c.models, options.BulkWrite().SetOrdered(c.ordered))
			var failed []failure
			var bulk mongo.BulkWriteException
			if errors.As(err, &bulk) {
				for _, e := range bulk.WriteErrors {
					failed = append(failed, failure{e.Index, e.Code})
				}
			} else if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(failed, func(a, b failure) int { return a.index - b.index })
			if !slices.Equal(failed, c.failed) {
				t.Errorf("failed %v, want %v", failed, c.failed)
			}
			wantIDs(t, b.beside, c.left...)
		})
	}
}

// Updates: what was matched, changed and inserted is told of those that were forwarded, by their places.
func TestWriteErrorOfUpdates(t *testing.T) {
	b := setUp(t, once)
	if _, err := b.beside.InsertOne(t.Context(), doc(9)); err != nil {
		t.Fatal(err)
	}
	b.On(Match{Command: "update", Times: 1}, WriteError(CodeDuplicateKey, 1))
	upsert := func(id int) mongo.WriteModel {
		return mongo.NewUpdateOneModel().SetFilter(doc(id)).SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1}}}}).SetUpsert(true)
	}
	models := []mongo.WriteModel{upsert(1), upsert(2), upsert(9), upsert(4)}
	result, err := b.through.BulkWrite(t.Context(), models, options.BulkWrite().SetOrdered(false))
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || len(bulk.WriteErrors) != 1 || bulk.WriteErrors[0].Index != 1 || !mongo.IsDuplicateKeyError(err) {
		t.Errorf("the driver sees %v", err)
	}
	if result.MatchedCount != 1 || result.ModifiedCount != 1 || result.UpsertedCount != 2 ||
		result.UpsertedIDs[3] == nil || result.UpsertedIDs[0] == nil {
		t.Errorf("%+v", result)
	}
	wantIDs(t, b.beside, 1, 4, 9)
	b.On(Match{Command: "update", Times: 1}, WriteError(CodeMaxTimeMSExpired, 0))
	_, err = b.through.BulkWrite(t.Context(), []mongo.WriteModel{set(9, 5)})
	if !errors.As(err, &bulk) || bulk.WriteErrors[0].Code != CodeMaxTimeMSExpired {
		t.Errorf("the driver sees %v", err)
	}
}
