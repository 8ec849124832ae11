package overlay

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
)

// Remove deletes the workspace: its refs, its upper and all that is in no
// revision. Unless force is set it refuses with errcode.UndecidedChanges if the
// workspace differs from its base. The workspace must not be attached.
//
// The revisions' objects stay in the repository until Git's garbage collection
// drops them; the error and Info name the newest one's commit.
func (w *Workspace) Remove(ctx context.Context, force bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attached {
		return errcode.New(errcode.WorkspaceMounted, nil, "workspace %s is mounted at %s", w.agent, w.meta.MountPoint)
	}
	if errcode.Of(w.damage) == errcode.WorkspaceNotFound {
		return w.damage // what has its name by now is another workspace
	}
	if !force {
		if _, err := w.sync(ctx); err != nil {
			return err
		}
		if w.head.tree != w.baseTree {
			return errcode.New(errcode.UndecidedChanges, nil, "workspace %s has changes nobody has decided on (revision %d, commit %s)", w.agent, w.head.Number, w.head.commit)
		}
	}
	if w.damage == nil {
		if err := w.saveMeta(func(m *meta) { m.Intent = &intent{Kind: intentRemove, From: w.head.commit} }); err != nil {
			return err
		}
	}
	failpoint("remove: intent written")
	return w.finishRemove()
}

// finishRemove deletes the refs, which ends the workspace, and then what only
// it used.
func (w *Workspace) finishRemove() error {
	if err := w.deleteRefs(); err != nil {
		return err
	}
	failpoint("remove: refs deleted")
	w.engine.forget(w.agent)
	w.damage = errcode.New(errcode.WorkspaceNotFound, nil, "workspace %s was removed", w.agent)
	if err := errors.Join(w.closeUpper(), os.RemoveAll(w.dir)); err != nil {
		return coded(err, "delete the files of %s", w.agent)
	}
	return w.engine.state.forget(w.agent)
}

// RemoveOrphan deletes what is left on disk of a workspace whose refs are gone,
// or returns errcode.WorkspaceNotFound if nothing is. A workspace that exists is
// not touched.
func (e *Engine) RemoveOrphan(agent string) error {
	if err := ValidName(agent); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock() // held across the removal, so that no workspace begins meanwhile
	dir := newWorkspace(e, agent).dir
	if _, err := os.Lstat(dir); err != nil || e.workspaces[agent] != nil {
		return errcode.New(errcode.WorkspaceNotFound, nil, "no workspace %s in %s", agent, e.store.CommonDir())
	}
	if err := os.RemoveAll(dir); err != nil {
		return coded(err, "delete the files of %s", agent)
	}
	return e.state.forget(agent)
}

func (w *Workspace) deleteRefs() error {
	refs, err := w.engine.store.Refs(refPrefix + w.agent + "/")
	if err != nil {
		return coded(err, "list the refs of %s", w.agent)
	}
	deletions := make([]gitstore.RefUpdate, len(refs))
	for i, ref := range refs {
		deletions[i] = gitstore.RefUpdate{Name: ref.Name, Old: ref.OID}
	}
	return coded(w.engine.store.UpdateRefs(deletions...), "delete the refs of %s", w.agent)
}

// sweepOrphan removes the directory of a workspace that has no refs, if nothing
// can be lost by it: its removal had begun, or its upper is empty.
func (w *Workspace) sweepOrphan() error {
	m, err := readMeta(w.dir)
	removing := err == nil && m.Intent != nil && m.Intent.Kind == intentRemove
	if !removing {
		entries, err := os.ReadDir(w.upperDir())
		if err != nil && !os.IsNotExist(err) {
			return coded(err, "read %s", w.upperDir())
		}
		if len(entries) > 0 {
			return errcode.New(errcode.DamagedWorkspace, nil, "%s holds files of a workspace %s whose refs are gone; `relofs remove %s --force` deletes them", w.upperDir(), w.agent, w.agent)
		}
	}
	if err := os.RemoveAll(w.dir); err != nil {
		return coded(err, "delete %s", filepath.Base(w.dir))
	}
	return nil
}
