package overlay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/relofs/relofs/durable"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
)

const refPrefix = "refs/relo/vws/"

func overlayRef(agent string) string { return refPrefix + agent + "/overlay" }
func baseRef(agent string) string    { return refPrefix + agent + "/base" }

// Engine holds the workspaces of one repository. One process at a time has a
// repository's engine open; its methods may be called concurrently.
type Engine struct {
	store *gitstore.Store
	dir   string // <common>/relo
	log   durable.Log
	state *state

	// mu guards workspaces. It is held across no disk access but that of Open.
	mu         sync.Mutex
	workspaces map[string]*Workspace
}

// Open opens the workspaces of the repository that holds dir (a directory of
// its work tree, its Git directory, or a bare repository). Workspaces with an
// unfinished change are left as they are until Recover.
//
// It fails with errcode.NotRepository, errcode.UnsupportedFormat,
// errcode.RepositoryReadOnly, or errcode.RepositoryInUse if another process
// has the engine open.
func Open(dir string) (*Engine, error) {
	store, err := gitstore.Open(dir)
	if err != nil {
		return nil, coded(err, "%s", dir)
	}
	e := &Engine{store: store, dir: filepath.Join(store.CommonDir(), "relo"), workspaces: map[string]*Workspace{}}
	if err := e.open(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Engine) open() error {
	if err := os.MkdirAll(filepath.Join(e.dir, "upper"), 0o700); err != nil {
		return coded(err, "make %s", e.dir)
	}
	e.log = durable.LogOf(e.dir, e.store.CommonDir(), filepath.Join(e.store.CommonDir(), "refs"))
	var err error
	if e.state, err = openState(e.dir); err != nil {
		return err
	}
	refs, err := e.store.Refs(refPrefix)
	if err != nil {
		return coded(err, "list %s", refPrefix)
	}
	for _, ref := range refs {
		agent, ok := strings.CutSuffix(strings.TrimPrefix(ref.Name, refPrefix), "/overlay")
		if ok && ValidName(agent) == nil {
			w := newWorkspace(e, agent)
			w.load(ref.OID)
			e.workspaces[agent] = w
		}
	}
	return nil
}

// Close saves the caches and lets the repository go. Workspaces must not be
// used afterwards; mounted ones stay mounted.
func (e *Engine) Close() error {
	var err error
	if e.state != nil {
		for _, w := range e.snapshot() {
			err = errors.Join(err, w.close())
		}
		err = errors.Join(err, e.state.close())
	}
	return errors.Join(err, e.store.Close())
}

// Store is the repository the engine works on.
func (e *Engine) Store() *gitstore.Store { return e.store }

// StateDir is the directory of relofs's local state in the repository,
// <git common dir>/relo.
func (e *Engine) StateDir() string { return e.dir }

// CreateOptions say what a new workspace starts from.
type CreateOptions struct {
	// Base is anything that names a commit; empty for HEAD.
	Base string
	// ReadOnly refuses every change to the workspace.
	ReadOnly bool
	// MountPoint is recorded as the place the workspace is about to be mounted
	// at (see Attach), empty for none.
	MountPoint string
}

// Create makes a workspace over the commit opts.Base names. Nothing of the
// repository's content is read or copied: the cost does not depend on its size.
//
// Errors: errcode.BadAgentName, errcode.WorkspaceExists, errcode.UnbornHead,
// errcode.UnknownRevision, errcode.HostileTree, errcode.DiskFull.
func (e *Engine) Create(ctx context.Context, agent string, opts CreateOptions) (*Workspace, error) {
	if err := ValidName(agent); err != nil {
		return nil, err
	}
	base, commit, err := e.resolveBase(ctx, opts.Base)
	if err != nil {
		return nil, err
	}

	e.mu.Lock()
	if e.workspaces[agent] != nil {
		e.mu.Unlock()
		return nil, errcode.New(errcode.WorkspaceExists, nil, "workspace %s exists", agent)
	}
	w := newWorkspace(e, agent)
	w.mu.Lock() // whoever finds the workspace now waits until it is made
	defer w.mu.Unlock()
	e.workspaces[agent] = w
	e.mu.Unlock()

	if err := w.create(base, commit, opts); err != nil {
		w.damage = err
		e.forget(agent)
		return nil, err
	}
	return w, nil
}

// resolveBase finds the commit to start from and checks that it can be shown.
func (e *Engine) resolveBase(ctx context.Context, rev string) (gitstore.OID, *gitstore.Commit, error) {
	name := rev
	if name == "" {
		name = "HEAD"
	}
	base, err := e.store.Resolve(ctx, name)
	if err != nil {
		return base, nil, coded(err, "base %s", name)
	}
	commit, err := e.store.Commit(base)
	if err != nil {
		return base, nil, coded(err, "base %s", name)
	}
	root, err := readTree(e.store, commit.Tree)
	if err != nil {
		return base, nil, coded(err, "root tree of %s", name)
	}
	for _, entry := range root {
		if gitstore.IsReserved(entry.Name, true) {
			return base, nil, errcode.New(errcode.HostileTree, nil, "root tree of %s has an entry %q, a name relofs keeps for itself", name, entry.Name)
		}
	}
	return base, commit, nil
}

// create makes w's directory, revision 0 and refs, in this order: the overlay
// ref, written last, is what makes the workspace exist.
func (w *Workspace) create(base gitstore.OID, commit *gitstore.Commit, opts CreateOptions) (err error) {
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			return coded(err, "make the workspace's directory")
		}
		// Left by a creation or removal that did not finish, or by a workspace
		// whose refs were deleted: only what holds nothing may be replaced.
		if err := w.sweepOrphan(); err != nil {
			return err
		}
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			return coded(err, "make the workspace's directory")
		}
	}
	defer func() {
		if err != nil {
			os.RemoveAll(w.dir)
		}
	}()
	for _, sub := range []string{w.upperDir(), w.workDir()} {
		if err := os.Mkdir(sub, 0o755); err != nil {
			return coded(err, "make the workspace's directory")
		}
	}
	failpoint("create: directory made")
	w.meta = meta{
		Format: metaFormat, Agent: w.agent, Lower: commit.Tree, Namespace: defaultNamespace(),
		MountPoint: opts.MountPoint, Wanted: opts.MountPoint != "",
	}
	// Made durable with the refs, or made anew (see loadMeta).
	if err := w.meta.write(w.engine.log.OrLater(), w.dir); err != nil {
		return coded(err, "write the workspace's metadata")
	}
	head, err := w.publishFirst(base, commit.Tree, opts.ReadOnly)
	if err != nil {
		return err
	}
	failpoint("create: published")
	w.baseTree, w.baseTime = commit.Tree, commit.Committer.When
	w.setHead(head)
	return w.openUpper()
}

// publishFirst makes revision 0 on base and the workspace's refs.
func (w *Workspace) publishFirst(base, tree gitstore.OID, readOnly bool) (revision, error) {
	now := time.Now()
	first := checkpoint{
		Agent: w.agent, Kind: KindCreate, Base: base, Prev: -1,
		ReadOnly: readOnly, Created: now.Truncate(time.Second),
	}
	batch := w.engine.store.NewBatch()
	oid, err := batch.Commit(checkpointCommit(first, tree, base, now))
	if err != nil {
		batch.Discard()
		return revision{}, coded(err, "write revision 0")
	}
	err = batch.PublishNew(
		gitstore.RefUpdate{Name: baseRef(w.agent), New: base},
		gitstore.RefUpdate{Name: overlayRef(w.agent), New: oid})
	if errors.Is(err, gitstore.ErrRefChanged) {
		return revision{}, errcode.New(errcode.WorkspaceExists, err, "refs of a workspace %s exist", w.agent)
	}
	if err != nil {
		return revision{}, coded(err, "publish revision 0")
	}
	return revision{commit: oid, tree: tree, parent: base, time: now.Truncate(time.Second), checkpoint: first}, nil
}

// Workspace returns the agent's workspace, or errcode.WorkspaceNotFound.
func (e *Engine) Workspace(agent string) (*Workspace, error) {
	if err := ValidName(agent); err != nil {
		return nil, err
	}
	e.mu.Lock()
	w := e.workspaces[agent]
	e.mu.Unlock()
	if w == nil {
		return nil, errcode.New(errcode.WorkspaceNotFound, nil, "no workspace %s in %s", agent, e.store.CommonDir())
	}
	return w, nil
}

// List describes every workspace, damaged ones included, sorted by agent.
func (e *Engine) List() []Info {
	var out []Info
	for _, w := range e.snapshot() {
		out = append(out, w.Info())
	}
	return out
}

// snapshot returns the workspaces sorted by agent.
func (e *Engine) snapshot() []*Workspace {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*Workspace, 0, len(e.workspaces))
	for _, w := range e.workspaces {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *Workspace) int { return strings.Compare(a.agent, b.agent) })
	return out
}

func (e *Engine) forget(agent string) {
	e.mu.Lock()
	delete(e.workspaces, agent)
	e.mu.Unlock()
}

// coded gives err the code a user sees for it, with what was being done.
func coded(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	code := errcode.Of(err)
	if code == errcode.Internal {
		for _, row := range errorCodes {
			if errors.Is(err, row.is) {
				code = row.code
				break
			}
		}
	}
	return errcode.New(code, err, "%s", fmt.Sprintf(format, args...))
}

// errorCodes maps what the layers below return; the first match counts.
var errorCodes = []struct {
	is   error
	code errcode.Code
}{
	{gitstore.ErrNotRepository, errcode.NotRepository},
	{gitstore.ErrUnsupportedFormat, errcode.UnsupportedFormat},
	{gitstore.ErrForeignOwner, errcode.ForeignRepository},
	{gitstore.ErrUnbornHead, errcode.UnbornHead},
	{gitstore.ErrUnknownRevision, errcode.UnknownRevision},
	{gitstore.ErrHostileTree, errcode.HostileTree},
	{gitstore.ErrCorrupt, errcode.ObjectCorrupt},
	{gitstore.ErrTooLarge, errcode.ObjectTooLarge},
	{gitstore.ErrNotFound, errcode.ObjectMissing},
	{gitstore.ErrRefChanged, errcode.RefChanged},
	{gitstore.ErrRefLocked, errcode.RefChanged},
	{gitstore.ErrRefConflict, errcode.RefChanged},
	{syscall.ENOSPC, errcode.DiskFull},
	{syscall.EDQUOT, errcode.DiskFull},
	{syscall.EROFS, errcode.RepositoryReadOnly},
	{fs.ErrPermission, errcode.RepositoryReadOnly},
	{context.Canceled, errcode.Canceled},
}
