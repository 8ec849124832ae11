package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/relofs/relofs/api/rendezvous"
	"github.com/relofs/relofs/errcode"
)

const (
	// startTimeout bounds a start, which repairs and mounts again what a
	// killed daemon left.
	startTimeout = 60 * time.Second
	// goneTimeout bounds the wait for a stopped daemon's process to end; what
	// takes long in a stop is over by then.
	goneTimeout = 10 * time.Second
)

// dial connects, and starts the daemon first if none runs and the options say
// how.
func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	conn, err := c.place.Dial(ctx)
	if err == nil || !rendezvous.NobodyListens(err) {
		return conn, CodeOr(err, errcode.DaemonUnreachable, "cannot connect to the daemon")
	}
	if c.options.Program == "" {
		return nil, errcode.New(errcode.DaemonUnreachable, errNotRunning, "socket %s", c.place.Socket())
	}
	if err := c.place.Prepare(); err != nil {
		return nil, err
	}
	// Of many clients that find no daemon one starts it; the others wait for
	// the lock and then find the socket.
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	lock, err := rendezvous.WaitLock(ctx, c.place.StartLock(), "")
	if err != nil {
		return nil, errcode.New(errcode.DaemonUnreachable, err, "cannot start the daemon: %s", c.place.StartLock())
	}
	defer lock.Unlock()
	conn, err = c.place.Dial(ctx)
	if err == nil || !rendezvous.NobodyListens(err) {
		return conn, CodeOr(err, errcode.DaemonUnreachable, "cannot connect to the daemon")
	}
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	conn, err = c.place.Dial(ctx)
	return conn, CodeOr(err, errcode.DaemonUnreachable, "the daemon ended right after its start (log: %s)", c.place.Log())
}

// ReadyFD is the descriptor on which a daemon started with --ready-fd tells
// its starter how the start went: an ErrorBody, whose error is null if it
// listens.
const ReadyFD = 3

// start runs the daemon in a session of its own and waits until it listens.
func (c *Client) start(ctx context.Context) error {
	program, err := exec.LookPath(c.options.Program)
	if err != nil {
		return errcode.New(errcode.DaemonUnreachable, err, "cannot start the daemon")
	}
	// What the daemon's process prints before its log is open, and a crash of
	// the Go runtime, goes where the log goes.
	log, err := os.OpenFile(c.place.Log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return errcode.New(errcode.DaemonUnreachable, err, "cannot open the daemon's log")
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return errcode.New(errcode.DaemonUnreachable, err, "cannot start the daemon")
	}
	defer r.Close()
	cmd := exec.Command(program, "daemon", "run", "--ready-fd", strconv.Itoa(ReadyFD))
	cmd.Dir = "/" // keeps no directory busy
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return errcode.New(errcode.DaemonUnreachable, err, "cannot start the daemon")
	}
	// A daemon that ends while this process lives must not stay a zombie.
	go cmd.Wait()

	if deadline, ok := ctx.Deadline(); ok {
		r.SetReadDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Now()) })
	defer stop()
	var ready ErrorBody
	err = json.NewDecoder(io.LimitReader(r, 1<<16)).Decode(&ready)
	switch {
	case err == nil:
		return ready.Error.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		if ctx.Err() == context.Canceled {
			return errcode.New(errcode.Canceled, nil, "interrupted while the daemon started")
		}
		err = fmt.Errorf("no answer within %v", startTimeout)
	case errors.Is(err, io.EOF):
		err = errors.New("its process ended")
	}
	return errcode.New(errcode.DaemonUnreachable, err, "the daemon did not start (log: %s)", c.place.Log())
}

// waitGone waits until the daemon's process is at its end, which its locks
// tell: they are not taken here, as the next daemon may want them.
func (c *Client) waitGone(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	for _, path := range []string{c.place.RuntimeLock(), c.place.StateLock()} {
		for rendezvous.Holder(path).PID == pid {
			select {
			case <-ctx.Done():
				return errcode.New(errcode.DaemonUnreachable, ctx.Err(), "the daemon has unmounted everything and its process %d still runs", pid)
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	return nil
}
