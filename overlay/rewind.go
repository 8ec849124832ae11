package overlay

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// Undo shows the revision before the one shown now, as a new revision. Pending
// writes are published first, so they are what the first Undo takes back.
//
// While the workspace is attached, apply brings the content into the mounted
// directory; otherwise it is not used and may be nil.
//
// Errors: errcode.NothingToUndo, errcode.PathInTheWay and
// errcode.WorkspaceReadOnly, with nothing changed.
func (w *Workspace) Undo(ctx context.Context, apply ApplyFunc) (Revision, error) {
	return w.rewind(ctx, apply, func() (intent, error) {
		if w.head.Prev < w.head.First {
			return intent{}, errcode.New(errcode.NothingToUndo, nil, "workspace %s has no revision before the one it shows", w.agent)
		}
		return intent{Rewind: KindUndo, Revision: w.head.Prev}, nil
	})
}

// Redo takes the last Undo back, as a new revision; errcode.NothingToRedo if
// there is none or something was written since. See Undo for apply.
func (w *Workspace) Redo(ctx context.Context, apply ApplyFunc) (Revision, error) {
	return w.rewind(ctx, apply, func() (intent, error) {
		if len(w.head.Redo) == 0 || w.head.Redo[0] < w.head.First {
			return intent{}, errcode.New(errcode.NothingToRedo, nil, "nothing undone in workspace %s", w.agent)
		}
		return intent{Rewind: KindRedo, Revision: w.head.Redo[0]}, nil
	})
}

// Restore shows revision rev (a number or RevBase) again, whole or only the
// given paths, as a new revision. See Undo for apply.
func (w *Workspace) Restore(ctx context.Context, rev string, paths []string, apply ApplyFunc) (Revision, error) {
	clean := make([]string, len(paths))
	for i, p := range paths {
		var err error
		if clean[i], err = cleanPath(p); err != nil {
			return Revision{}, err
		}
	}
	return w.rewind(ctx, apply, func() (intent, error) {
		number := toBase
		if rev != RevBase {
			var err error
			if number, err = w.resolveNumber(rev); err != nil {
				return intent{}, err
			}
		}
		tree, err := w.numberedTree(number)
		if err != nil {
			return intent{}, err
		}
		for _, p := range clean {
			if err := w.inEither(tree, p); err != nil {
				return intent{}, err
			}
		}
		return intent{Rewind: KindRestore, Revision: number, Paths: clean}, nil
	})
}

// inEither returns errcode.PathNotFound for a path that neither the target nor
// the newest revision has: most likely a typing error.
func (w *Workspace) inEither(target gitstore.OID, p string) error {
	for _, tree := range []gitstore.OID{target, w.head.tree} {
		e, err := entryAt(w.engine.store, tree, p)
		if err != nil {
			return coded(err, "%s", p)
		}
		if e.Mode != 0 {
			return nil
		}
	}
	return errcode.New(errcode.PathNotFound, nil, "%s is in neither revision of %s", p, w.agent)
}

// rewind is the common course of undo, redo and restore: publish what is
// pending, record the intent, change the paths that differ, publish, clear the
// intent. A crash in between is completed by Recover.
func (w *Workspace) rewind(ctx context.Context, apply ApplyFunc, choose func() (intent, error)) (Revision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.writable(); err != nil {
		return Revision{}, err
	}
	if _, err := w.sync(ctx); err != nil {
		return Revision{}, err
	}
	it, err := choose()
	if err != nil {
		return Revision{}, err
	}
	it.Kind, it.From = intentRewind, w.head.commit

	diffs, err := w.rewindDiffs(it)
	if err != nil {
		return Revision{}, err
	}
	if len(diffs) == 0 && it.Rewind == KindRestore {
		return w.head.public(), nil
	}
	if err := w.checkFree(diffs); err != nil {
		return Revision{}, err
	}
	if err := w.saveMeta(func(m *meta) { m.Intent = &it }); err != nil {
		return Revision{}, err
	}
	failpoint("rewind: intent written")
	if err := w.applySteps(ctx, apply, stepsOf(diffs)); err != nil {
		return Revision{}, w.takeBack(ctx, apply, diffs, err)
	}
	if err := w.finishRewind(it); err != nil {
		return Revision{}, err
	}
	return w.head.public(), nil
}

// toBase stands for the base in an intent.
const toBase = -1

func (w *Workspace) numberedTree(n int) (gitstore.OID, error) {
	if n == toBase {
		return w.baseTree, nil
	}
	r, err := w.revision(n)
	return r.tree, err
}

// rewindDiffs is where the newest revision differs from what an intent leads to.
func (w *Workspace) rewindDiffs(it intent) ([]difference, error) {
	target, err := w.numberedTree(it.Revision)
	if err != nil {
		return nil, err
	}
	var diffs []difference
	if len(it.Paths) == 0 {
		diffs, err = diffTrees(w.engine.store, w.head.tree, target)
	}
	for _, p := range it.Paths {
		var old, new gitstore.TreeEntry
		if old, err = entryAt(w.engine.store, w.head.tree, p); err != nil {
			break
		}
		if new, err = entryAt(w.engine.store, target, p); err != nil {
			break
		}
		if err = entryDifference(w.engine.store, p, old, new, &diffs); err != nil {
			break
		}
	}
	return diffs, coded(err, "compare revisions of %s", w.agent)
}

// finishRewind publishes what the workspace shows by now and clears the intent.
func (w *Workspace) finishRewind(it intent) error {
	target, err := w.numberedTree(it.Revision)
	if err != nil {
		return err
	}
	batch := w.engine.store.NewBatch()
	if len(it.Paths) > 0 {
		if target, err = graft(w.engine.store, batch, w.head.tree, target, it.Paths); err != nil {
			batch.Discard()
			return coded(err, "restore paths of %s", w.agent)
		}
	}
	next := w.head.edited(it.Rewind)
	if it.Rewind != KindRestore {
		r, err := w.revision(it.Revision)
		if err != nil {
			batch.Discard()
			return err
		}
		next.At, next.Prev = r.Number, r.Prev
		if it.Rewind == KindUndo {
			next.Redo = append([]int{w.head.At}, w.head.Redo...)
			next.Redo = next.Redo[:min(len(next.Redo), maxRedo)]
		} else {
			next.Redo = slices.Clone(w.head.Redo[1:])
		}
	}
	failpoint("rewind: applied")
	if err := w.publish(batch, target, next); err != nil {
		return err
	}
	failpoint("rewind: published")
	return w.saveMeta(func(m *meta) { m.Intent = nil })
}

// takeBack leads a rewind that failed half way back to the newest revision. If
// that fails too, the mixture stays for the next capture to record: every
// content concerned is in a revision.
func (w *Workspace) takeBack(ctx context.Context, apply ApplyFunc, diffs []difference, cause error) error {
	err := w.applySteps(context.WithoutCancel(ctx), apply, stepsBack(diffs))
	err = errors.Join(err, w.saveMeta(func(m *meta) { m.Intent = nil }))
	if err != nil {
		return errcode.New(errcode.Of(cause), errors.Join(cause, err), "workspace %s now holds parts of both revisions; `relofs log` lists them", w.agent)
	}
	return coded(cause, "workspace %s is as it was", w.agent)
}

// checkFree returns errcode.PathInTheWay if carrying out the differences would
// replace or delete something that is in no revision.
func (w *Workspace) checkFree(diffs []difference) error {
	excluded := make([]string, len(w.excluded))
	for i, x := range w.excluded {
		excluded[i] = path.Clean(x.Path)
	}
	slices.Sort(excluded)
	view := w.view()
	isDir := func(p string) bool {
		info, err := view.Stat(p)
		return err == nil && info.Kind == upper.Dir
	}
	for _, d := range diffs {
		blocker := ""
		if at, found := slices.BinarySearch(excluded, d.path); found {
			blocker = d.path
		} else if below := d.path + "/"; d.new.Mode != 0 && at < len(excluded) && strings.HasPrefix(excluded[at], below) {
			blocker = excluded[at]
		} else if d.old.Mode == 0 && !isDir(d.path) {
			// Not a known exclusion by itself, yet there: inside an ignored directory.
			if _, err := view.Stat(d.path); err == nil {
				blocker = d.path
			}
		}
		for p := path.Dir(d.path); p != "." && blocker == "" && d.new.Mode != 0; p = path.Dir(p) {
			if _, found := slices.BinarySearch(excluded, p); found && !isDir(p) {
				blocker = p
			}
		}
		if blocker != "" {
			return errcode.New(errcode.PathInTheWay, nil, "%s in workspace %s is in no revision and in the way of %s", blocker, w.agent, d.path)
		}
	}
	return nil
}
