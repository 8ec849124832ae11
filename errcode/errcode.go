// Package errcode is the one table of the errors relofs shows to people and
// programs: a stable machine-readable code, the exit status a command ends
// with, and the sentence that says what to do about it.
//
// Every package may import it; it imports nothing of relofs. Packages below
// the API keep their own sentinels for callers that branch on them; where an
// error is about to reach a user it is given a code with New. docs/errors.md
// is generated from Table and a test keeps the two equal.
package errcode

import (
	"errors"
	"fmt"
)

// Code is a stable identifier: once released, its meaning does not change.
type Code string

// Error is an error with a code. Message says what happened and to what; Err,
// if any, is the cause and is part of the text.
type Error struct {
	Code    Code
	Message string
	Err     error
}

// New returns an Error with the given code, cause (may be nil) and message.
func New(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: cause}
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, errcode.Code) work on any chain that holds an Error.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Error makes a Code usable as the target of errors.Is; it is not meant to be
// returned by itself.
func (c Code) Error() string { return string(c) }

// Of returns the code of the outermost Error in err's chain, Internal if there
// is none, and "" for nil.
func Of(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// Exit is the exit status a command ends with for an error of this code:
// 1 failed, 2 usage, 3 conflict or refusal that changed nothing.
func (c Code) Exit() int {
	for _, row := range Table {
		if row.Code == c {
			return row.Exit
		}
	}
	return 1
}

// Remedy is the sentence that says what to do, "" for an unknown code.
func (c Code) Remedy() string {
	for _, row := range Table {
		if row.Code == c {
			return row.Remedy
		}
	}
	return ""
}
