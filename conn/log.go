package conn

import (
	"context"
	"fmt"
	"log/slog"
)

// engineLog hands the engine's own lines to our logger. It speaks seldom: starts, stops and what fails.
type engineLog struct{ to *slog.Logger }

// Debugf implements the engine's logger.
func (l engineLog) Debugf(format string, args ...any) { l.log(slog.LevelDebug, format, args) }

// Infof implements the engine's logger. What the engine finds worth telling, an operator need not know.
func (l engineLog) Infof(format string, args ...any) { l.log(slog.LevelDebug, format, args) }

// Warnf implements the engine's logger.
func (l engineLog) Warnf(format string, args ...any) { l.log(slog.LevelWarn, format, args) }

// Errorf implements the engine's logger.
func (l engineLog) Errorf(format string, args ...any) { l.log(slog.LevelError, format, args) }

// Fatalf does not end the process, as the engine's own logger would: what the engine's end means is for the process to decide.
func (l engineLog) Fatalf(format string, args ...any) { l.log(slog.LevelError, format, args) }

func (l engineLog) log(level slog.Level, format string, args []any) {
	l.to.Log(context.Background(), level, "engine: "+fmt.Sprintf(format, args...))
}
