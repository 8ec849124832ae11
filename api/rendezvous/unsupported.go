//go:build !linux

package rendezvous

import (
	"context"
	"net"

	"github.com/relofs/relofs/errcode"
)

func unsupported() error {
	return errcode.New(errcode.UnsupportedPlatform, nil, "workspaces can be mounted on Linux only")
}

// Prepare needs Linux.
func (p Place) Prepare() error { return unsupported() }

// Dial needs Linux.
func (p Place) Dial(context.Context) (net.Conn, error) { return nil, unsupported() }
