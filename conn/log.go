package conn

import (
	"fmt"
	"log/slog"
)

// engineLog hands the engine's own lines to our logger. It speaks seldom: starts, stops and what fails.
type engineLog struct{ to *slog.Logger }

func (l engineLog) Debugf(format string, args ...any) {
	l.to.Debug("engine: " + fmt.Sprintf(format, args...))
}
func (l engineLog) Infof(format string, args ...any) {
	l.to.Debug("engine: " + fmt.Sprintf(format, args...))
}
func (l engineLog) Warnf(format string, args ...any) {
	l.to.Warn("engine: " + fmt.Sprintf(format, args...))
}
func (l engineLog) Errorf(format string, args ...any) {
	l.to.Error("engine: " + fmt.Sprintf(format, args...))
}

// Fatalf does not end the process, as the engine's own logger would: what the engine's end means is for the process to decide.
func (l engineLog) Fatalf(format string, args ...any) {
	l.to.Error("engine: " + fmt.Sprintf(format, args...))
}
