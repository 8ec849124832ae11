package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/relofs/relofs/api/rendezvous"
	"github.com/relofs/relofs/errcode"
)

const (
	// VersionHeader carries the version of the side that sends.
	VersionHeader = "Relofs-Version"
	// ErrorTrailer carries an error after a streamed body.
	ErrorTrailer = "Relofs-Error"
	// EndTrailer ends every streamed body, so that a cut one is noticed.
	EndTrailer = "Relofs-End"
	// Prefix is the path all methods are below.
	Prefix = "/v1/"
	// StreamType is the content type of streamed responses.
	StreamType = "application/octet-stream"
)

// Options of a client. The zero value talks to a running daemon and never
// starts one.
type Options struct {
	// Program is the relofs executable to start a daemon with when none runs,
	// a path or a name to look up in PATH. "" never starts one.
	Program string
}

// Client calls the methods of the user's daemon. It is safe for concurrent
// use, keeps no connection and outlives daemons: each call connects anew and,
// with Options.Program, starts the daemon if it is gone.
//
// Errors are *errcode.Error values: branch with errors.Is(err, errcode.X).
// A cancelled context ends a call with errcode.Canceled; what the daemon had
// begun to publish is still published.
type Client struct {
	place   rendezvous.Place
	options Options
	http    *http.Client
}

// Connect returns a client of the daemon that belongs to this process's
// environment (see package rendezvous) and makes sure that it can be reached.
func Connect(ctx context.Context, opts Options) (*Client, error) {
	place, err := rendezvous.FromEnvironment()
	if err != nil {
		return nil, err
	}
	c := &Client{place: place, options: opts}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		DisableKeepAlives:  true,
		DisableCompression: true,
	}}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	conn.Close()
	return c, nil
}

// Place is where the client looks for the daemon.
func (c *Client) Place() rendezvous.Place { return c.place }

// Create makes a workspace and mounts it.
func (c *Client) Create(ctx context.Context, req CreateRequest) (*MountResponse, error) {
	if err := resolve(&req.Repository, &req.Directory); err != nil {
		return nil, err
	}
	return call[MountResponse](ctx, c, "create", req)
}

// Mount mounts a workspace; one that is mounted at the wanted place stays.
func (c *Client) Mount(ctx context.Context, req MountRequest) (*MountResponse, error) {
	if err := resolve(&req.Repository, &req.Directory); err != nil {
		return nil, err
	}
	return call[MountResponse](ctx, c, "mount", req)
}

// Unmount publishes what is pending and unmounts. The workspace stays.
func (c *Client) Unmount(ctx context.Context, req UnmountRequest) (*UnmountResponse, error) {
	if err := resolve(&req.Repository, nil); err != nil {
		return nil, err
	}
	return call[UnmountResponse](ctx, c, "unmount", req)
}

// Workspace describes a workspace as of its last revision.
func (c *Client) Workspace(ctx context.Context, t Target) (*Workspace, error) {
	return callTarget[Workspace](ctx, c, "workspace", t)
}

// List describes all workspaces of a repository as of their last revisions.
func (c *Client) List(ctx context.Context, req ListRequest) (*ListResponse, error) {
	if err := resolve(&req.Repository, nil); err != nil {
		return nil, err
	}
	return call[ListResponse](ctx, c, "list", req)
}

// Status publishes what is pending and compares the workspace with its base.
func (c *Client) Status(ctx context.Context, t Target) (*StatusResponse, error) {
	return callTarget[StatusResponse](ctx, c, "status", t)
}

// Log publishes what is pending and lists the revisions, newest first.
func (c *Client) Log(ctx context.Context, req LogRequest) (*LogResponse, error) {
	if err := resolve(&req.Repository, nil); err != nil {
		return nil, err
	}
	return call[LogResponse](ctx, c, "log", req)
}

// Diff publishes what is pending and returns a patch that `git apply` takes,
// or a summary of it. The caller closes it.
func (c *Client) Diff(ctx context.Context, req DiffRequest) (io.ReadCloser, error) {
	if err := resolve(&req.Repository, nil); err != nil {
		return nil, err
	}
	return c.stream(ctx, "diff", req, &Empty{})
}

// Show returns a file of a revision; its content is read from the second
// result, which the caller closes.
func (c *Client) Show(ctx context.Context, req ShowRequest) (*File, io.ReadCloser, error) {
	if err := resolve(&req.Repository, nil); err != nil {
		return nil, nil, err
	}
	var file File
	content, err := c.stream(ctx, "show", req, &file)
	if err != nil {
		return nil, nil, err
	}
	return &file, content, nil
}

// Sync publishes pending writes now.
func (c *Client) Sync(ctx context.Context, t Target) (*SyncResponse, error) {
	return callTarget[SyncResponse](ctx, c, "sync", t)
}

// Undo goes back one revision. Files change through the mount if there is one.
func (c *Client) Undo(ctx context.Context, t Target) (*RevisionResponse, error) {
	return callTarget[RevisionResponse](ctx, c, "undo", t)
}

// Redo takes back an Undo.
func (c *Client) Redo(ctx context.Context, t Target) (*RevisionResponse, error) {
	return callTarget[RevisionResponse](ctx, c, "redo", t)
}

// Restore makes the workspace, or some paths of it, what a revision holds.
func (c *Client) Restore(ctx context.Context, req RestoreRequest) (*RevisionResponse, error) {
	if err := resolve(&req.Repository, nil); err != nil {
		return nil, err
	}
	return call[RevisionResponse](ctx, c, "restore", req)
}

// Settle folds the captured part of an unmounted workspace into its lower.
func (c *Client) Settle(ctx context.Context, t Target) (*SettleResponse, error) {
	return callTarget[SettleResponse](ctx, c, "settle", t)
}

// Remove unmounts and removes a workspace. Without Force it refuses one with
// changes (errcode.UndecidedChanges) and leaves it as it is, mounted or not.
func (c *Client) Remove(ctx context.Context, req RemoveRequest) (*RemoveResponse, error) {
	if err := resolve(&req.Repository, nil); err != nil {
		return nil, err
	}
	return call[RemoveResponse](ctx, c, "remove", req)
}

// Recover checks and mends the workspaces of a repository.
func (c *Client) Recover(ctx context.Context, req RecoverRequest) (*RecoverResponse, error) {
	if err := resolve(&req.Repository, nil); err != nil {
		return nil, err
	}
	return call[RecoverResponse](ctx, c, "recover", req)
}

// DaemonStatus describes the daemon. It works across versions.
func (c *Client) DaemonStatus(ctx context.Context) (*DaemonStatus, error) {
	return call[DaemonStatus](ctx, c, "daemon_status", Empty{})
}

// DaemonStop publishes and unmounts everything and ends the daemon. It returns
// when the process is gone. It works across versions.
func (c *Client) DaemonStop(ctx context.Context) (*StopResponse, error) {
	resp, err := call[StopResponse](ctx, c, "daemon_stop", Empty{})
	if err != nil {
		return nil, err
	}
	return resp, c.waitGone(ctx, resp.PID)
}

func callTarget[Resp any](ctx context.Context, c *Client, method string, t Target) (*Resp, error) {
	if err := resolve(&t.Repository, nil); err != nil {
		return nil, err
	}
	return call[Resp](ctx, c, method, t)
}

// call is one request with a JSON answer.
func call[Resp any](ctx context.Context, c *Client, method string, req any) (*Resp, error) {
	resp, err := c.post(ctx, method, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(Resp)
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return nil, c.lost(ctx, err)
	}
	return out, nil
}

// dyingPatience bounds how often a daemon that is being killed is met before it
// is gone: while the kernel takes its process apart, its socket still accepts.
const dyingPatience = 5 * time.Second

// notBegun reports that a request ended before the daemon had read it, so that
// no method ran: the kernel resets a unix connection that is closed with data
// unread, and ends one whose data were read in good order (unix_release_sock in
// net/unix/af_unix.c).
func notBegun(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// post sends a request and turns every answer but 200 into its error. A daemon
// that was met while it stops or dies is followed by the next one.
func (c *Client) post(ctx context.Context, method string, req any) (*http.Response, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	resp, err := c.postOnce(ctx, method, body)
	if c.options.Program == "" {
		return resp, err
	}
	if errors.Is(err, errStopping) {
		resp, err = c.postOnce(ctx, method, body)
	}
	for end := time.Now().Add(dyingPatience); notBegun(err) && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
		resp, err = c.postOnce(ctx, method, body)
	}
	return resp, err
}

// errStopping marks a request that a stopping daemon refused to begin.
var errStopping = errors.New("it is stopping")

func (c *Client) postOnce(ctx context.Context, method string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://relofs"+Prefix+method, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(VersionHeader, Version())
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return nil, errcode.New(errcode.DaemonUnreachable, errStopping, "the daemon takes no more requests")
	}
	var failed ErrorBody
	if err := json.NewDecoder(resp.Body).Decode(&failed); err != nil || failed.Error == nil {
		return nil, errcode.New(errcode.DaemonUnreachable, err, "the daemon answered %s", resp.Status)
	}
	return nil, failed.Error.Err()
}

// lost explains a call that ended without an answer.
func (c *Client) lost(ctx context.Context, err error) error {
	var coded *errcode.Error
	if errors.As(err, &coded) {
		return coded
	}
	if ctx.Err() != nil {
		return errcode.New(errcode.Canceled, nil, "interrupted")
	}
	return errcode.New(errcode.DaemonUnreachable, err, "lost the daemon (log: %s)", c.place.Log())
}

// stream is a request with a streamed answer, whose first line is decoded into
// head.
func (c *Client) stream(ctx context.Context, method string, req, head any) (io.ReadCloser, error) {
	resp, err := c.post(ctx, method, req)
	if err != nil {
		return nil, err
	}
	s := &stream{client: c, ctx: ctx, resp: resp, body: bufio.NewReader(resp.Body)}
	line, err := s.body.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, head)
	}
	if err != nil {
		resp.Body.Close()
		return nil, c.lost(ctx, err)
	}
	return s, nil
}

// stream reads a streamed body and, at its end, the error in the trailer.
type stream struct {
	client *Client
	ctx    context.Context
	resp   *http.Response
	body   *bufio.Reader
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err != io.EOF:
		return n, s.client.lost(s.ctx, err)
	}
	if text := s.resp.Trailer.Get(ErrorTrailer); text != "" {
		var failed ErrorBody
		if err := json.Unmarshal([]byte(text), &failed); err == nil && failed.Error != nil {
			return n, failed.Error.Err()
		}
	}
	if s.resp.Trailer.Get(EndTrailer) == "" {
		return n, s.client.lost(s.ctx, io.ErrUnexpectedEOF)
	}
	return n, io.EOF
}

func (s *stream) Close() error { return s.resp.Body.Close() }

// resolve makes the directories of a request absolute and free of symbolic
// links, in this process: the daemon must not walk through paths that may lead
// into its own mounts. A mount point need not exist yet, and "" stays "".
func resolve(repository, mountPoint *string) error {
	dir, err := filepath.Abs(*repository)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return errcode.New(errcode.NotRepository, err, "cannot look at %s", *repository)
	}
	*repository = dir
	if mountPoint == nil || *mountPoint == "" {
		return nil
	}
	dir, err = filepath.Abs(*mountPoint)
	if err == nil {
		dir, err = evalExisting(dir)
	}
	if err != nil {
		return errcode.New(errcode.MountPointBad, err, "cannot look at %s", *mountPoint)
	}
	*mountPoint = dir
	return nil
}

// evalExisting resolves the part of an absolute path that exists.
func evalExisting(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return resolved, err
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path, nil
	}
	if _, err := os.Lstat(path); err == nil {
		return "", errcode.New(errcode.MountPointBad, nil, "%s is a link that leads nowhere", path)
	}
	parent, err = evalExisting(parent)
	return filepath.Join(parent, filepath.Base(path)), err
}
