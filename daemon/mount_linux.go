package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/mountmgr"
	"github.com/relofs/relofs/overlay"
)

// captureRetry is how long after a failed capture the next one is tried.
const captureRetry = 10 * time.Second

// move changes the state of a workspace by an event; the caller holds its turn.
func (w *workspace) move(e event) {
	w.repository.daemon.mu.Lock()
	defer w.repository.daemon.mu.Unlock()
	w.state = next(w.state, e)
	if w.state == api.Unmounted {
		w.directory = ""
	}
}

// defaultDirectory is where a workspace is mounted if nobody says otherwise:
// <state>/<repository's name>-<hash>/<agent>. The hash tells repositories of one
// name apart.
func (d *daemon) defaultDirectory(commonDir, agent string) string {
	name := strings.TrimSuffix(filepath.Base(commonDir), ".git")
	if name == "" {
		name = filepath.Base(filepath.Dir(commonDir))
	}
	name = strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			return c
		}
		return '-'
	}, name)
	sum := sha256.Sum256([]byte(commonDir))
	return filepath.Join(d.place.State, name+"-"+hex.EncodeToString(sum[:4]), agent)
}

// mount mounts a workspace at directory, or with "" where it was last, or at
// its default place. The caller holds the turn of w, whose state is unmounted.
//
// Once begun it is not cancelled: a mount that is neither there nor not helps
// nobody.
func (d *daemon) mount(w *workspace, ws *overlay.Workspace, directory string) (err error) {
	info := ws.Info()
	if directory == "" {
		directory = info.MountPoint
	}
	if directory == "" {
		directory = d.defaultDirectory(w.repository.dir, w.agent)
	}
	layers, err := ws.Layers()
	if err != nil {
		return err
	}
	d.mu.Lock()
	w.state = next(w.state, mountBegins)
	w.directory, w.readOnly = directory, layers.ReadOnly
	d.mu.Unlock()
	defer func() {
		if err != nil {
			w.move(mountFails)
		} else {
			w.move(mountSucceeds)
		}
	}()
	// Before the mount, as after a crash in between the next start must look
	// here; after the state has moved, for forgetUnmounted.
	if err := d.registry.add(w.repository.dir); err != nil {
		return errcode.New(errcode.MountFailed, err, "cannot note that workspace %s is mounted", w.agent)
	}
	ctx := context.Background()
	store := w.repository.engine.Store()
	err = d.manager.Mount(ctx, mountmgr.Spec{
		Lower: fusefs.Config{
			Store: store, Tree: layers.LowerTree, Time: layers.LowerTime, Settled: layers.Settled,
			UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
			Blobs: d.blobs,
			Report: func(path string, err error) {
				d.log.Warn("cannot serve", "repository", store.CommonDir(), "path", path, "err", err)
			},
		},
		Upper: layers.Upper, Work: layers.Work,
		Target: directory, ReadOnly: layers.ReadOnly, Name: w.agent,
	})
	if err != nil {
		return err
	}
	if err := ws.Attach(directory); err != nil {
		return errors.Join(err, d.manager.Unmount(ctx, directory, true))
	}
	if !layers.ReadOnly {
		if err := d.watcher.Add(watchKey{w.repository.dir, w.agent}.String(), layers.Upper, ws.Ignored); err != nil {
			// Revisions then wait for a sync or the unmount.
			d.log.Warn("cannot watch for writes", "agent", w.agent, "err", err)
		}
	}
	return nil
}

// mountAgain mounts a workspace a former daemon had mounted, and publishes in
// the background what that daemon could not.
func (d *daemon) mountAgain(r *repository, info overlay.Info) error {
	w := r.workspace(info.Agent)
	if err := w.take(d.ctx); err != nil {
		return err
	}
	defer w.give()
	ws, err := r.engine.Workspace(info.Agent)
	if err != nil {
		return err
	}
	if err := d.mount(w, ws, ""); err != nil {
		return err
	}
	d.log.Info("mounted again", "agent", info.Agent, "directory", info.MountPoint)
	go d.captureNow(w)
	return nil
}

type unmountOptions struct {
	force  bool // also a directory in use
	wanted bool // mount it again when the daemon next starts
}

// unmount takes the directory away and publishes what was written. The problems
// are sentences about what did not work although the directory is gone.
func (d *daemon) unmount(w *workspace, opts unmountOptions) (problems []string, err error) {
	if err := w.take(context.Background()); err != nil {
		return nil, err
	}
	defer w.give()
	return d.unmountInTurn(w, opts)
}

// unmountInTurn is unmount for the holder of the turn. Like a mount it is not
// cancelled once begun.
func (d *daemon) unmountInTurn(w *workspace, opts unmountOptions) (problems []string, err error) {
	state, directory := w.where()
	if state != api.Mounted {
		return nil, errcode.New(errcode.NotMounted, nil, "workspace %s is not mounted", w.agent)
	}
	ws, err := w.repository.engine.Workspace(w.agent)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	w.move(unmountBegins)
	if err := d.manager.Unmount(ctx, directory, opts.force); err != nil && !errors.Is(err, errcode.NotMounted) {
		w.move(unmountFails)
		return nil, err
	}
	d.watcher.Remove(watchKey{w.repository.dir, w.agent}.String())
	if err := ws.Detach(opts.wanted); err != nil {
		problems = append(problems, fmt.Sprintf("Workspace %s is unmounted, but that could not be noted: %v.", w.agent, err))
	}
	w.move(unmountSucceeds)
	d.mu.Lock()
	if w.retry != nil {
		w.retry.Stop()
		w.retry = nil
	}
	d.mu.Unlock()
	if _, err := ws.Publish(ctx); err != nil {
		problems = append(problems, fmt.Sprintf("The last writes in workspace %s are kept and not yet published: %v.", w.agent, err))
	}
	if !opts.wanted {
		if err := d.forgetUnmounted(w.repository); err != nil {
			problems = append(problems, fmt.Sprintf("%v.", err))
		}
	}
	return problems, nil
}

// forgetUnmounted takes a repository off the list if nothing of it is mounted.
// A mount that begins meanwhile has moved its state before it adds the entry:
// either the second look sees it, or its add comes after the removal.
func (d *daemon) forgetUnmounted(r *repository) error {
	if d.inUse(r) {
		return nil
	}
	if err := d.registry.remove(r.dir); err != nil {
		return err
	}
	if d.inUse(r) {
		return d.registry.add(r.dir)
	}
	return nil
}

func (d *daemon) inUse(r *repository) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range r.workspaces {
		if w.state != api.Unmounted {
			return true
		}
	}
	return false
}

// watchKey names a workspace to the watcher.
type watchKey struct{ repository, agent string }

func (k watchKey) String() string { return k.repository + "\x00" + k.agent }

// written is called by the watcher when writing in a workspace has paused.
func (d *daemon) written(key string) {
	if w := d.watched(key); w != nil {
		d.captureNow(w)
	}
}

// fileClosed is called by the watcher when a file of a workspace was closed that
// had been open for writing. It holds up the watcher, so it waits for nothing.
func (d *daemon) fileClosed(key, path string) {
	w := d.watched(key)
	if w == nil {
		return
	}
	if ws, err := w.repository.engine.Workspace(w.agent); err == nil {
		ws.FileClosed(path)
	}
}

// watched is the workspace a key of the watcher names, nil if it is gone.
func (d *daemon) watched(key string) *workspace {
	repository, agent, _ := strings.Cut(key, "\x00")
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.repositories[repository]; r != nil {
		return r.workspaces[agent]
	}
	return nil
}

// captureNow publishes what was written in a mounted workspace, and sees to it
// that a failure is not the last try.
func (d *daemon) captureNow(w *workspace) {
	if !d.begin() {
		return
	}
	defer d.calls.Done()
	<-w.repository.opened // mounted again while its repository opens
	if state, _ := w.where(); state != api.Mounted {
		return
	}
	ws, err := w.repository.engine.Workspace(w.agent)
	if err != nil {
		return
	}
	result, err := ws.Publish(d.ctx)
	switch {
	case err == nil:
		if result.Published {
			d.log.Info("published", "agent", w.agent, "revision", result.Number)
		}
	case d.ctx.Err() == nil:
		d.log.Warn("capture failed", "agent", w.agent, "err", err)
		d.mu.Lock()
		if w.retry == nil && w.state == api.Mounted {
			w.retry = time.AfterFunc(captureRetry, func() {
				d.mu.Lock()
				w.retry = nil
				d.mu.Unlock()
				d.captureNow(w)
			})
		}
		d.mu.Unlock()
	}
}
