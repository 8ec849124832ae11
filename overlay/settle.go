package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/relofs/relofs/capture"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// SettleResult tells what a settle did.
type SettleResult struct {
	Revision
	// Kept is what stays in the upper because no revision holds it.
	Kept []capture.Exclusion `json:"kept"`
	// Freed is the number of upper entries dropped.
	Freed int `json:"freed"`
}

// Settle publishes what is pending and folds it into the lower: the next mount
// shows the newest revision itself, and the upper holds no more than what is in
// no revision. Modification times of the files folded in are kept. The
// workspace must not be attached.
func (w *Workspace) Settle(ctx context.Context) (SettleResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.writable(); err != nil {
		return SettleResult{}, err
	}
	if w.attached {
		return SettleResult{}, errcode.New(errcode.WorkspaceMounted, nil, "workspace %s is mounted at %s", w.agent, w.meta.MountPoint)
	}
	s, err := w.sync(ctx)
	if err != nil {
		return SettleResult{}, err
	}
	it := intent{Kind: intentSettle, From: w.head.commit, Tree: w.head.tree}
	for _, x := range s.Excluded {
		p := path.Clean(x.Path)
		if err := w.materialize(ctx, p); err != nil {
			return SettleResult{}, coded(err, "keep %s of %s", p, w.agent)
		}
		it.Keep = append(it.Keep, p)
	}
	times, err := w.settledTimes()
	if err != nil {
		return SettleResult{}, err
	}
	if err := writeJSON(w.engine.log, w.dir, settledName(it.Tree), times); err != nil {
		return SettleResult{}, coded(err, "write modification times of %s", w.agent)
	}
	if err := w.saveMeta(func(m *meta) { m.Intent = &it }); err != nil {
		return SettleResult{}, err
	}
	failpoint("settle: intent written")
	freed, err := w.finishSettle(it)
	if err != nil {
		return SettleResult{}, err
	}
	return SettleResult{Revision: w.head.public(), Kept: s.Excluded, Freed: freed}, nil
}

// finishSettle drops from the upper what the tree of the intent holds and makes
// that tree the lower. Repeating it after an interruption is safe: all it drops
// is in the revision, and what must stay was listed before it began.
func (w *Workspace) finishSettle(it intent) (freed int, err error) {
	keep := map[string]bool{}
	for _, p := range it.Keep {
		keep[p] = true
	}
	root, err := os.OpenRoot(w.upperDir())
	if err != nil {
		return 0, coded(err, "open the upper of %s", w.agent)
	}
	defer root.Close()
	if _, err := w.prune(root, "", it.Tree, keep, &freed); err != nil {
		return freed, coded(err, "settle %s", w.agent)
	}
	// A mark that came back after a power cut would hide the new lower.
	if err := syncFileSystem(w.upperDir()); err != nil {
		return freed, coded(err, "make the upper of %s durable", w.agent)
	}
	failpoint("settle: upper pruned")
	old := w.meta.Lower
	if err := w.saveMeta(func(m *meta) { m.Lower, m.Intent = it.Tree, nil }); err != nil {
		return freed, err
	}
	failpoint("settle: lower switched")
	if old != it.Tree {
		if err := os.Remove(path.Join(w.dir, settledName(old))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return freed, coded(err, "settle %s", w.agent)
		}
	}
	return freed, nil
}

// prune removes all below dir but what keep lists, and empty directories, which
// no tree has. Directories on the way to what stays lose their marks: they now
// merge with the new lower's directory of the same place. It reports whether
// anything stays.
func (w *Workspace) prune(root *os.Root, dir string, tree gitstore.OID, keep map[string]bool, freed *int) (kept bool, err error) {
	entries, err := w.layer.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		p := path.Join(dir, e.Name)
		if keep[p] {
			kept = true
			continue
		}
		if e.Kind == upper.Dir {
			below, err := w.prune(root, p, tree, keep, freed)
			if err != nil {
				return kept, err
			}
			in, err := entryAt(w.engine.store, tree, p)
			if err != nil {
				return kept, err
			}
			if below || in.Mode == 0 {
				kept = true
				if err := w.layer.ClearMarks(p); err != nil {
					return kept, err
				}
				continue
			}
		}
		if err := root.Remove(p); err != nil {
			return kept, err
		}
		*freed++
		failpoint("settle: entry pruned")
	}
	return kept, nil
}

// materialize makes the upper hold all that the view shows below p, a path that
// is in no revision: a directory renamed to an ignored name still has its
// unmodified files in the lower, which is about to change.
func (w *Workspace) materialize(ctx context.Context, p string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	view := w.view()
	info, err := view.Stat(p)
	if err != nil || info.Kind != upper.Dir {
		return err
	}
	return view.CopyUpAll(p)
}

// settledTimes are the modification times to show for what differs from the
// base: those of the upper's files, and of files settled before.
func (w *Workspace) settledTimes() (map[string]time.Time, error) {
	diffs, err := diffTrees(w.engine.store, w.baseTree, w.head.tree)
	if err != nil {
		return nil, coded(err, "compare %s with its base", w.agent)
	}
	before, err := readSettled(w.dir, w.meta.Lower)
	if err != nil {
		return nil, errcode.New(errcode.DamagedWorkspace, err, "metadata of %s", w.agent)
	}
	view := w.view()
	times := map[string]time.Time{}
	for _, d := range diffs {
		if d.new.Mode == 0 || d.new.Mode == gitstore.ModeGitlink {
			continue
		}
		info, err := view.Stat(d.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // replaced by something that is in no revision
		}
		if err != nil {
			return nil, coded(err, "%s in workspace %s", d.path, w.agent)
		}
		if !info.FromLower {
			times[d.path] = info.ModTime
		} else if t, ok := before[d.path]; ok {
			times[d.path] = t
		}
	}
	return times, nil
}
