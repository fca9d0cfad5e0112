package protocol

import (
	"fmt"
	"strconv"
)

// ErrorCode is the code of an ERROR frame.
type ErrorCode uint16

// The error codes of version 1. docs/protocol.md says what a client does about each.
const (
	CodeBadFrame           ErrorCode = 1
	CodeUnsupportedVersion ErrorCode = 2
	CodeUnauthenticated    ErrorCode = 3
	CodeForbidden          ErrorCode = 4
	CodeNotFound           ErrorCode = 5
	CodeInvalidArgument    ErrorCode = 6
	CodeTooLarge           ErrorCode = 7
	CodeRateLimited        ErrorCode = 8
	CodeUnavailable        ErrorCode = 9
	CodeRejected           ErrorCode = 10
	CodeInternal           ErrorCode = 11
	CodeUnknownCommand     ErrorCode = 12
	CodeTokenExpired       ErrorCode = 13
)

// Reasons that refine CodeForbidden.
const (
	ReasonBlocked   uint16 = 1
	ReasonNotMember uint16 = 2
	ReasonMuted     uint16 = 3
	ReasonNotOwner  uint16 = 4
	ReasonNotFriend uint16 = 5
)

var codeNames = [...]string{
	CodeBadFrame: "bad_frame", CodeUnsupportedVersion: "unsupported_version", CodeUnauthenticated: "unauthenticated",
	CodeForbidden: "forbidden", CodeNotFound: "not_found", CodeInvalidArgument: "invalid_argument",
	CodeTooLarge: "too_large", CodeRateLimited: "rate_limited", CodeUnavailable: "unavailable",
	CodeRejected: "rejected", CodeInternal: "internal", CodeUnknownCommand: "unknown_command",
	CodeTokenExpired: "token_expired",
}

// String is the code's name in the spec, or its number.
func (c ErrorCode) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return strconv.Itoa(int(c))
}

// Closes tells whether the server closes the connection after an ERROR of this code.
func (c ErrorCode) Closes() bool {
	switch c {
	case CodeBadFrame, CodeUnsupportedVersion, CodeUnauthenticated, CodeTooLarge, CodeTokenExpired:
		return true
	}
	return false
}

// Error is the body of an ERROR frame, and the error that every layer hands up when the peer must be told a code.
//
//	code u16, message str, retry_after_ms u32, reason u16
type Error struct {
	Code         ErrorCode
	Message      string
	RetryAfterMS uint32
	Reason       uint16
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.String()
	}
	return e.Code.String() + ": " + e.Message
}

// Is makes errors.Is(err, &Error{Code: c}) match any error of the code c.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf makes an Error with a message.
func Errorf(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) encode(w *writer) {
	w.array(4)
	w.uint(uint64(e.Code))
	w.text(e.Message)
	w.uint(uint64(e.RetryAfterMS))
	w.uint(uint64(e.Reason))
}

func (e *Error) decode(r *reader) {
	end := r.open("error")
	e.Code = ErrorCode(r.u16("code"))
	e.Message = r.str("message", maxText)
	e.RetryAfterMS = r.u32("retry_after_ms")
	e.Reason = r.u16("reason")
	r.close(end)
}
