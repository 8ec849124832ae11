package daemon

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/mountmgr"
	"github.com/relofs/relofs/overlay"
)

// use opens the repository of a request; the caller releases it.
func (d *daemon) use(ctx context.Context, dir string) (*repository, located, error) {
	at, err := d.locate(dir)
	if err != nil {
		return nil, at, err
	}
	r, err := d.acquire(ctx, at.commonDir)
	return r, at, err
}

// withWorkspace runs fn on a workspace that exists.
func withWorkspace[Resp any](ctx context.Context, d *daemon, t api.Target, fn func(*workspace, *overlay.Workspace) (*Resp, error)) (*Resp, error) {
	if err := overlay.ValidName(t.Agent); err != nil {
		return nil, err
	}
	r, _, err := d.use(ctx, t.Repository)
	if err != nil {
		return nil, err
	}
	defer d.release(r)
	ws, err := r.engine.Workspace(t.Agent)
	if err != nil {
		return nil, err
	}
	return fn(r.workspace(t.Agent), ws)
}

// inTurn is withWorkspace in the workspace's turn.
func inTurn[Resp any](ctx context.Context, d *daemon, t api.Target, fn func(*workspace, *overlay.Workspace) (*Resp, error)) (*Resp, error) {
	return withWorkspace(ctx, d, t, func(w *workspace, _ *overlay.Workspace) (*Resp, error) {
		if err := w.take(ctx); err != nil {
			return nil, err
		}
		defer w.give()
		// Asked again: it may have been removed, and another made, meanwhile.
		ws, err := w.repository.engine.Workspace(w.agent)
		if err != nil {
			return nil, err
		}
		return fn(w, ws)
	})
}

func (d *daemon) create(ctx context.Context, req api.CreateRequest) (*api.MountResponse, error) {
	start := time.Now()
	if err := overlay.ValidName(req.Agent); err != nil {
		return nil, err
	}
	if err := checkDirectory(req.Directory); err != nil {
		return nil, err
	}
	r, at, err := d.use(ctx, req.Repository)
	if err != nil {
		return nil, err
	}
	defer d.release(r)
	w := r.workspace(req.Agent)
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	defer w.give()

	if req.Base != "" {
		if req.Base, err = at.resolve(ctx, req.Base); err != nil {
			return nil, err
		}
	}
	if req.Existing {
		ws, err := r.engine.Workspace(req.Agent)
		if err == nil {
			if err := sameAsWanted(ctx, r, ws.Info(), req); err != nil {
				return nil, err
			}
			return d.mountInTurn(w, ws, req.Directory, at.prefix, start)
		}
		if !errors.Is(err, errcode.WorkspaceNotFound) {
			return nil, err
		}
	}
	if err := errors.Join(checkMaterialization(r), outsideCheckout(r, req.Directory)); err != nil {
		return nil, err
	}
	if req.Directory == "" {
		req.Directory = d.defaultDirectory(r.dir, req.Agent)
	}
	if req.Base == "" {
		if req.Base, err = at.resolve(ctx, "HEAD"); err != nil {
			return nil, err
		}
	}
	created := time.Now()
	ws, err := r.engine.Create(ctx, req.Agent, overlay.CreateOptions{
		Base: req.Base, ReadOnly: req.ReadOnly, MountPoint: req.Directory,
	})
	if err != nil {
		return nil, err
	}
	createTime := time.Since(created)
	resp, err := d.mountInTurn(w, ws, req.Directory, at.prefix, start)
	if err != nil {
		// What cannot be mounted was not created.
		return nil, errors.Join(err, ws.Remove(context.WithoutCancel(ctx), true))
	}
	resp.Created, resp.CreateUS = true, createTime.Microseconds()
	return resp, nil
}

// checkMaterialization refuses a setting that asks for a directory of a kind this
// version cannot make. What the machine lacks, the mount itself finds out.
func checkMaterialization(r *repository) error {
	settings, err := r.engine.Store().Settings()
	if err != nil {
		return errcode.New(errcode.BadSetting, err, "cannot read the settings of %s", r.dir)
	}
	value, _ := settings.Get(mountmgr.MaterializationKey)
	_, err = mountmgr.Choose(value, mountmgr.Report{})
	return err
}

// sameAsWanted refuses a workspace that is not what a request would create.
func sameAsWanted(ctx context.Context, r *repository, info overlay.Info, req api.CreateRequest) error {
	if req.Base != "" {
		base, err := r.engine.Store().Resolve(ctx, req.Base)
		if err != nil {
			return errcode.New(errcode.UnknownRevision, err, "base %s", req.Base)
		}
		if base != info.Base {
			return errcode.New(errcode.WorkspaceExists, nil, "workspace %s exists on base %.12s, and %s is %.12s", req.Agent, info.Base, req.Base, base)
		}
	}
	if req.ReadOnly && !info.ReadOnly {
		return errcode.New(errcode.WorkspaceExists, nil, "workspace %s exists and is not read-only", req.Agent)
	}
	return nil
}

// checkDirectory refuses a mount point that only a client could resolve.
func checkDirectory(dir string) error {
	if dir != "" && (!filepath.IsAbs(dir) || filepath.Clean(dir) != dir) {
		return errcode.New(errcode.MountPointBad, nil, "mount point %q is not a clean absolute path", dir)
	}
	return nil
}

func (d *daemon) mountMethod(ctx context.Context, req api.MountRequest) (*api.MountResponse, error) {
	start := time.Now()
	if err := checkDirectory(req.Directory); err != nil {
		return nil, err
	}
	at, err := d.locate(req.Repository)
	if err != nil {
		return nil, err
	}
	return inTurn(ctx, d, req.Target, func(w *workspace, ws *overlay.Workspace) (*api.MountResponse, error) {
		if err := outsideCheckout(w.repository, req.Directory); err != nil {
			return nil, err
		}
		return d.mountInTurn(w, ws, req.Directory, at.prefix, start)
	})
}

// outsideCheckout refuses a mount point that somebody named in the user's own
// checkout: Git would see all of the view as untracked files there.
func outsideCheckout(r *repository, dir string) error {
	top := r.engine.Store().WorkTree()
	if top == "" || dir == "" {
		return nil
	}
	if _, inside := below(dir, top); inside {
		return errcode.New(errcode.MountPointBad, nil, "mount point %s lies in the checkout %s", dir, top)
	}
	return nil
}

// mountInTurn mounts a workspace unless it is mounted, for the holder of the
// turn. A call that began at start is answered with it.
func (d *daemon) mountInTurn(w *workspace, ws *overlay.Workspace, directory, prefix string, start time.Time) (*api.MountResponse, error) {
	resp := &api.MountResponse{Prefix: prefix}
	state, where := w.where()
	switch {
	case state == api.Mounted && (directory == "" || directory == where):
		resp.AlreadyMounted = true
	case state == api.Mounted:
		return nil, errcode.New(errcode.WorkspaceMounted, nil, "workspace %s is mounted at %s", w.agent, where)
	default:
		began := time.Now()
		if err := d.mount(w, ws, directory); err != nil {
			return nil, err
		}
		resp.MountUS = time.Since(began).Microseconds()
	}
	resp.EngineUS = time.Since(start).Microseconds()
	resp.Workspace = d.workspaceOf(w.repository, ws.Info())
	return resp, nil
}

func (d *daemon) unmountMethod(ctx context.Context, req api.UnmountRequest) (*api.UnmountResponse, error) {
	return inTurn(ctx, d, req.Target, func(w *workspace, ws *overlay.Workspace) (*api.UnmountResponse, error) {
		problems, err := d.unmountInTurn(w, unmountOptions{force: req.Force})
		if err != nil {
			return nil, err
		}
		return &api.UnmountResponse{Workspace: d.workspaceOf(w.repository, ws.Info()), Problems: notNil(problems)}, nil
	})
}

func (d *daemon) describe(ctx context.Context, t api.Target) (*api.Workspace, error) {
	return withWorkspace(ctx, d, t, func(w *workspace, ws *overlay.Workspace) (*api.Workspace, error) {
		out := d.workspaceOf(w.repository, ws.Info())
		return &out, nil
	})
}

func (d *daemon) list(ctx context.Context, req api.ListRequest) (*api.ListResponse, error) {
	r, _, err := d.use(ctx, req.Repository)
	if err != nil {
		return nil, err
	}
	defer d.release(r)
	return &api.ListResponse{Workspaces: d.workspacesOf(r, r.engine.List())}, nil
}

func (d *daemon) status(ctx context.Context, t api.Target) (*api.StatusResponse, error) {
	return withWorkspace(ctx, d, t, func(w *workspace, ws *overlay.Workspace) (*api.StatusResponse, error) {
		s, err := ws.Status(ctx)
		if err != nil {
			return nil, err
		}
		return &api.StatusResponse{
			Workspace: d.workspaceOf(w.repository, s.Info),
			Changes:   changesOf(s.Changes), Excluded: exclusionsOf(s.Excluded),
		}, nil
	})
}

func (d *daemon) history(ctx context.Context, req api.LogRequest) (*api.LogResponse, error) {
	if req.Limit < 0 {
		return nil, errcode.New(errcode.Usage, nil, "limit %d is negative", req.Limit)
	}
	return withWorkspace(ctx, d, req.Target, func(_ *workspace, ws *overlay.Workspace) (*api.LogResponse, error) {
		revisions, err := ws.Log(ctx, req.Limit)
		if err != nil {
			return nil, err
		}
		resp := &api.LogResponse{Revisions: make([]api.Revision, len(revisions))}
		for i, rev := range revisions {
			resp.Revisions[i] = revisionOf(rev)
		}
		return resp, nil
	})
}

func (d *daemon) sync(ctx context.Context, t api.Target) (*api.SyncResponse, error) {
	start := time.Now()
	return withWorkspace(ctx, d, t, func(_ *workspace, ws *overlay.Workspace) (*api.SyncResponse, error) {
		s, err := ws.Sync(ctx)
		if err != nil {
			return nil, err
		}
		return &api.SyncResponse{
			Revision: revisionOf(s.Revision), Published: s.Published,
			NewlyExcluded: exclusionsOf(s.NewlyExcluded), Unsettled: append([]string{}, s.Unsettled...), EngineUS: time.Since(start).Microseconds(),
		}, nil
	})
}

// fromRoot returns paths, which start at the directory dir of a checkout or a
// workspace, from its root.
func (d *daemon) fromRoot(dir string, paths []string) ([]string, error) {
	at, err := d.locate(dir)
	if err != nil || at.prefix == "" {
		return paths, err
	}
	out := make([]string, len(paths))
	for i, p := range paths {
		if out[i] = p; !path.IsAbs(p) {
			out[i] = path.Join(at.prefix, p)
		}
	}
	return out, nil
}

func (d *daemon) diff(ctx context.Context, req api.DiffRequest, out *stream) error {
	paths, err := d.fromRoot(req.Repository, req.Paths)
	if err != nil {
		return err
	}
	_, err = withWorkspace(ctx, d, req.Target, func(_ *workspace, ws *overlay.Workspace) (*api.Empty, error) {
		return nil, ws.Diff(ctx, out, overlay.DiffOptions{
			From: req.From, To: req.To, Stat: req.Stat, Color: req.Color, Paths: paths,
		})
	})
	return err
}

func (d *daemon) show(ctx context.Context, req api.ShowRequest, out *stream) error {
	if strings.HasPrefix(req.Path, "./") || strings.HasPrefix(req.Path, "../") { // as Git has it
		paths, err := d.fromRoot(req.Repository, []string{req.Path})
		if err != nil {
			return err
		}
		req.Path = paths[0]
	}
	_, err := withWorkspace(ctx, d, req.Target, func(_ *workspace, ws *overlay.Workspace) (*api.Empty, error) {
		file, err := ws.Show(ctx, req.Revision, req.Path)
		if err != nil {
			return nil, err
		}
		return nil, copyFile(out, file)
	})
	return err
}

// rewind is undo, redo or restore: in the workspace's turn, as it acts through
// the mount.
func (d *daemon) rewind(ctx context.Context, t api.Target, fn func(*overlay.Workspace, overlay.ApplyFunc) (overlay.Revision, error)) (*api.RevisionResponse, error) {
	return inTurn(ctx, d, t, func(w *workspace, ws *overlay.Workspace) (*api.RevisionResponse, error) {
		layers, err := ws.Layers()
		if err != nil {
			return nil, err
		}
		if state, directory := w.where(); state == api.Mounted {
			// What is at that path otherwise is not to be changed.
			if err := d.manager.InPlace(directory); err != nil {
				return nil, err
			}
		}
		rev, err := fn(ws, func(ctx context.Context, steps []overlay.Step) error {
			return applyThroughMount(ctx, w, layers.Upper, steps)
		})
		if err != nil {
			return nil, err
		}
		return &api.RevisionResponse{Revision: revisionOf(rev)}, nil
	})
}

func (d *daemon) undo(ctx context.Context, t api.Target) (*api.RevisionResponse, error) {
	return d.rewind(ctx, t, func(ws *overlay.Workspace, apply overlay.ApplyFunc) (overlay.Revision, error) {
		return ws.Undo(ctx, apply)
	})
}

func (d *daemon) redo(ctx context.Context, t api.Target) (*api.RevisionResponse, error) {
	return d.rewind(ctx, t, func(ws *overlay.Workspace, apply overlay.ApplyFunc) (overlay.Revision, error) {
		return ws.Redo(ctx, apply)
	})
}

func (d *daemon) restore(ctx context.Context, req api.RestoreRequest) (*api.RevisionResponse, error) {
	paths, err := d.fromRoot(req.Repository, req.Paths)
	if err != nil {
		return nil, err
	}
	return d.rewind(ctx, req.Target, func(ws *overlay.Workspace, apply overlay.ApplyFunc) (overlay.Revision, error) {
		return ws.Restore(ctx, req.To, paths, apply)
	})
}

func (d *daemon) settle(ctx context.Context, t api.Target) (*api.SettleResponse, error) {
	return inTurn(ctx, d, t, func(_ *workspace, ws *overlay.Workspace) (*api.SettleResponse, error) {
		s, err := ws.Settle(ctx)
		if err != nil {
			return nil, err
		}
		return &api.SettleResponse{Revision: revisionOf(s.Revision), Kept: exclusionsOf(s.Kept), Freed: s.Freed}, nil
	})
}

// remove unmounts and removes a workspace. A refusal leaves it as it was: what
// can be known before the unmount is asked before it, and if the last writes
// were made in between, the workspace is mounted again.
func (d *daemon) remove(ctx context.Context, req api.RemoveRequest) (*api.RemoveResponse, error) {
	resp, err := d.removeWorkspace(ctx, req)
	if !req.Force || !errors.Is(err, errcode.WorkspaceNotFound) {
		return resp, err
	}
	r, _, err := d.use(ctx, req.Repository)
	if err != nil {
		return nil, err
	}
	defer d.release(r)
	return &api.RemoveResponse{Removed: req.Agent}, r.engine.RemoveOrphan(req.Agent)
}

func (d *daemon) removeWorkspace(ctx context.Context, req api.RemoveRequest) (*api.RemoveResponse, error) {
	return inTurn(ctx, d, req.Target, func(w *workspace, ws *overlay.Workspace) (*api.RemoveResponse, error) {
		state, directory := w.where()
		if state == api.Mounted {
			if !req.Force {
				if _, err := ws.Sync(ctx); err != nil {
					return nil, err
				}
				if info := ws.Info(); info.Changed {
					return nil, errcode.New(errcode.UndecidedChanges, nil, "workspace %s has changes nobody has decided on (revision %d, commit %s)", w.agent, info.Revision, info.Commit)
				}
			}
			if _, err := d.unmountInTurn(w, unmountOptions{force: req.Force}); err != nil {
				return nil, err
			}
		}
		if err := ws.Remove(context.WithoutCancel(ctx), req.Force); err != nil {
			if state == api.Mounted {
				err = errors.Join(err, d.mount(w, ws, directory))
			}
			return nil, err
		}
		info := ws.Info()
		return &api.RemoveResponse{Removed: w.agent, Revision: info.Revision, Commit: info.Commit.String()}, nil
	})
}

func (d *daemon) recover(ctx context.Context, req api.RecoverRequest) (*api.RecoverResponse, error) {
	r, _, err := d.use(ctx, req.Repository)
	if err != nil {
		return nil, err
	}
	defer d.release(r)
	report, err := r.engine.Recover(ctx)
	if err != nil {
		return nil, err
	}
	return &api.RecoverResponse{
		Workspaces: d.workspacesOf(r, report.Workspaces),
		Repaired:   notNil(report.Repaired), Problems: notNil(report.Problems),
	}, nil
}

func (d *daemon) daemonStatus(context.Context, api.Empty) (*api.DaemonStatus, error) {
	s := &api.DaemonStatus{
		PID: os.Getpid(), Version: api.Version(), Started: d.started,
		Socket: d.place.Socket(), Log: d.place.Log(),
		Repositories: []string{}, Mounts: []api.Mount{},
	}
	for _, m := range d.mounted() {
		s.Mounts = append(s.Mounts, m.Mount)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for dir := range d.repositories {
		s.Repositories = append(s.Repositories, dir)
	}
	slices.Sort(s.Repositories)
	s.Problems = notNil(slices.Clone(d.problems))
	return s, nil
}

func (d *daemon) daemonStop(ctx context.Context, _ api.Empty) (*api.StopResponse, error) {
	d.askStop()
	<-d.stopped
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := *d.outcome
	resp.PID = os.Getpid()
	return &resp, nil
}
