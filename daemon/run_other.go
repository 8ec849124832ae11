//go:build !linux

package daemon

import (
	"context"
	"io"
	"runtime"

	"github.com/relofs/relofs/errcode"
)

func unsupported() error {
	return errcode.New(errcode.UnsupportedPlatform, nil, "the daemon mounts workspaces, which needs Linux; this is %s", runtime.GOOS)
}

// Run returns errcode.UnsupportedPlatform.
func Run(context.Context, Options) error { return unsupported() }

// Apply returns errcode.UnsupportedPlatform.
func Apply(context.Context, io.Reader) error { return unsupported() }
