package api

import (
	"errors"
	"net/http"

	"github.com/relofs/relofs/errcode"
)

// Error is an error as it crosses the wire and as `--json` prints it.
type Error struct {
	Code    errcode.Code `json:"code"`
	Message string       `json:"message"`
	Remedy  string       `json:"remedy"`
}

// ErrorBody is the object an Error is sent in.
type ErrorBody struct {
	Error *Error `json:"error"`
}

// ErrorOf makes the wire form of err, nil for nil.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	code := errcode.Of(err)
	return &Error{Code: code, Message: err.Error(), Remedy: code.Remedy()}
}

// Err is the error an Error stands for: an *errcode.Error of its code. The
// remedy follows from the code, as on the side that sent it.
func (e *Error) Err() error {
	if e == nil {
		return nil
	}
	return errcode.New(e.Code, nil, "%s", e.Message)
}

// HTTPStatus is the status an error of this code is answered with.
func (e *Error) HTTPStatus() int {
	switch e.Code.Exit() {
	case 2:
		return http.StatusBadRequest
	case 3:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// CodeOr gives err a code if it has none.
func CodeOr(err error, code errcode.Code, format string, args ...any) error {
	var coded *errcode.Error
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return errcode.New(code, err, format, args...)
}

// errNotRunning is the cause of a DaemonUnreachable that only means that no
// daemon runs.
var errNotRunning = errors.New("no daemon runs")

// NotRunning reports whether err, from Connect with Options that start no
// daemon, means that there is none.
func NotRunning(err error) bool { return errors.Is(err, errNotRunning) }
