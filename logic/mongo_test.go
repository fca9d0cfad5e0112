package logic

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// TestOnMongo runs the tests of what clients see over MongoDB, too: it does not depend on where the messages are. Only TestSyncFindsWhatChanged is
// not here: stamps are clock times there, so that what has just changed comes more than once.
func TestOnMongo(t *testing.T) {
	for _, test := range []func(*testing.T){
		TestSendReachesAllDevicesOfBothSides, TestPushIsTheProjection, TestSendToOneself, TestSendRefusals, TestPipelinedSendsKeepTheirOrder,
		TestOneBusyConversation, TestRepeats, TestRepeatsAtTheSameMoment, TestRepeatAfterHours, TestStatesAreBounded, TestIDsThatCollide,
		TestReadAndUnread, TestAccess, TestPullRanges, TestSyncWhileThingsChange, TestSyncTokens,
		TestSyncPagesFitTheBound, TestNothingFallsBetweenSyncAndPush, TestSignOut, TestRevoke, TestRevokeRefused, TestEditAndReact,
		TestChangesPages, TestDelete, TestDeleteRefused, TestClear, TestOwnEffectFirst, TestPullRuns, TestConversationsOnce,
	} {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		t.Run(name[strings.LastIndex(name, ".Test")+1:], test)
	}
}
