//go:build !linux

package api

import (
	"context"
	"net"
)

// dial fails: there are no mounts on this platform and so there is no daemon.
func (c *Client) dial(ctx context.Context) (net.Conn, error) { return c.place.Dial(ctx) }

func (c *Client) waitGone(context.Context, int) error { return nil }
