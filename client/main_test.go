package client

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain: a package of the server starts goroutines of its own when it is loaded; those are not counted.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }
