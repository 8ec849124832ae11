//go:build !linux

package mountmgr

import (
	"runtime"

	"github.com/relofs/relofs/errcode"
)

// Manager mounts nothing on this platform.
type Manager struct{}

// New returns errcode.UnsupportedPlatform.
func New(Options) (*Manager, error) {
	return nil, errcode.New(errcode.UnsupportedPlatform, nil, "mounting a workspace needs Linux; this is %s", runtime.GOOS)
}

// Probe reports that this platform mounts nothing.
func Probe(string) Report {
	return Report{Checks: []Check{failed("platform", runtime.GOOS+" has neither FUSE as relofs uses it nor overlayfs", errcode.UnsupportedPlatform)}}
}
