package daemon

import (
	"context"
	"time"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/overlay"
)

// repository is an open repository.
type repository struct {
	daemon *daemon
	dir    string // common directory

	// engine and err are set before opened is closed, then read only.
	opened chan struct{}
	engine *overlay.Engine
	err    error

	// Guarded by daemon.mu.
	users      int                   // calls under way
	workspaces map[string]*workspace // by agent, as far as they were asked for
	idle       *time.Timer           // closes it
	closing    bool
	closed     chan struct{} // closed when a closing repository is closed
}

// workspace is what the daemon knows of a workspace beyond its engine.
type workspace struct {
	repository *repository
	agent      string

	// turn holds one token for the operation that may mount, unmount or change
	// files through the mount; a channel, as waiting for it must be cancellable.
	turn chan struct{}

	// Guarded by daemon.mu; changed only by the holder of turn.
	state     api.State
	directory string // while the state is not unmounted
	readOnly  bool
	retry     *time.Timer // repeats a capture that failed
}

// acquire returns the open repository with this common directory; the caller
// releases it. The first to ask opens it, recovers its engine and mounts the
// workspaces that are wanted; others wait for that.
func (d *daemon) acquire(ctx context.Context, dir string) (*repository, error) {
	for {
		d.mu.Lock()
		r := d.repositories[dir]
		if r == nil {
			if d.stopping {
				d.mu.Unlock()
				return nil, errcode.New(errcode.DaemonUnreachable, nil, "the daemon is stopping")
			}
			r = &repository{
				daemon: d, dir: dir, users: 1,
				opened: make(chan struct{}), closed: make(chan struct{}),
				workspaces: make(map[string]*workspace),
			}
			d.repositories[dir] = r
			d.mu.Unlock()
			return r, d.open(r)
		}
		if r.closing {
			d.mu.Unlock()
			select {
			case <-r.closed:
				continue
			case <-ctx.Done():
				return nil, canceled(ctx)
			}
		}
		r.users++
		if r.idle != nil {
			r.idle.Stop()
			r.idle = nil
		}
		d.mu.Unlock()
		select {
		case <-r.opened:
		case <-ctx.Done():
			d.release(r)
			return nil, canceled(ctx)
		}
		// A failed one is out of the map already, its count does not matter.
		return r, r.err
	}
}

func canceled(ctx context.Context) error {
	return errcode.New(errcode.Canceled, context.Cause(ctx), "interrupted")
}

// open opens r for acquire. Its work belongs to all who wait, so no request's
// context reaches it.
func (d *daemon) open(r *repository) error {
	defer close(r.opened)
	r.engine, r.err = overlay.Open(r.dir)
	if r.err != nil {
		d.mu.Lock()
		delete(d.repositories, r.dir)
		d.mu.Unlock()
		return r.err
	}
	report, err := r.engine.Recover(d.ctx)
	for _, text := range report.Repaired {
		d.log.Info("recovered", "repository", r.dir, "what", text)
	}
	for _, text := range report.Problems {
		d.log.Warn("not recovered", "repository", r.dir, "what", text)
	}
	if err != nil {
		d.log.Warn("recovery failed", "repository", r.dir, "err", err)
	}
	for _, info := range r.engine.List() {
		if !info.Wanted || info.Damage != "" {
			continue
		}
		if err := d.mountAgain(r, info); err != nil {
			d.problem("Workspace %s of %s is not mounted again at %s: %v", info.Agent, r.dir, info.MountPoint, err)
		}
	}
	return nil
}

// release ends a use of r and, if it was the last, starts the idle clock.
func (d *daemon) release(r *repository) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.users--
	if r.users > 0 || d.stopping || d.repositories[r.dir] != r {
		return
	}
	r.idle = time.AfterFunc(d.idleAfter, func() { d.closeIdle(r) })
}

// closeIdle closes r if it is still idle.
func (d *daemon) closeIdle(r *repository) {
	d.mu.Lock()
	if r.users > 0 || r.closing || d.stopping || d.repositories[r.dir] != r {
		d.mu.Unlock()
		return
	}
	for _, w := range r.workspaces {
		if w.state != api.Unmounted {
			d.mu.Unlock()
			return // unmount's own release starts the clock anew
		}
	}
	r.closing = true
	d.mu.Unlock()

	err := r.engine.Close()
	d.mu.Lock()
	delete(d.repositories, r.dir)
	d.mu.Unlock()
	close(r.closed)
	d.log.Info("closed", "repository", r.dir, "err", err)
}

// workspace returns the daemon's record of an agent, made when first asked for.
func (r *repository) workspace(agent string) *workspace {
	r.daemon.mu.Lock()
	defer r.daemon.mu.Unlock()
	w := r.workspaces[agent]
	if w == nil {
		w = &workspace{repository: r, agent: agent, turn: make(chan struct{}, 1), state: api.Unmounted}
		r.workspaces[agent] = w
	}
	return w
}

// take waits for the workspace's turn; the caller gives it back with give.
func (w *workspace) take(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return canceled(ctx)
	}
}

func (w *workspace) give() { <-w.turn }

// where returns the state of the workspace's directory and its place.
func (w *workspace) where() (api.State, string) {
	w.repository.daemon.mu.Lock()
	defer w.repository.daemon.mu.Unlock()
	return w.state, w.directory
}
