package mountmgr

import "github.com/relofs/relofs/errcode"

// Status is the outcome of a check.
type Status string

const (
	OK   Status = "ok"
	Warn Status = "warn" // works, with a limit worth knowing
	Fail Status = "fail" // workspaces cannot be mounted, or soon not be written
)

// Check is one line of `relofs doctor`. Its JSON form, and each Name, is
// stable: names are added, never given another meaning.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`           // what was found
	Remedy string `json:"remedy,omitempty"` // what to do, unless the status is ok

	// Code is the error a Mount would end with, for a failed check that stands
	// in the way of mounting.
	Code errcode.Code `json:"code,omitempty"`
}

// Report is what Probe found, the most fundamental check first.
type Report struct {
	Checks []Check `json:"checks"`
}

// OK reports whether no check failed.
func (r Report) OK() bool {
	for _, c := range r.Checks {
		if c.Status == Fail {
			return false
		}
	}
	return true
}

func passed(name, detail string) Check { return Check{Name: name, Status: OK, Detail: detail} }

func warned(name, detail, remedy string) Check {
	return Check{Name: name, Status: Warn, Detail: detail, Remedy: remedy}
}

func failed(name, detail string, code errcode.Code) Check {
	return Check{Name: name, Status: Fail, Detail: detail, Remedy: code.Remedy(), Code: code}
}
