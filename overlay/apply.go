package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// Step is one path of a workspace that is to change: to a blob with a mode, or,
// with mode 0, to be gone.
type Step struct {
	Path string        `json:"path"`
	Mode gitstore.Mode `json:"mode"`
	OID  gitstore.OID  `json:"oid"`
}

// ApplyFunc brings steps, in their order, into a mounted workspace: by
// ApplyToDir on the mounted directory, in a process that is not the one that
// serves the mount.
type ApplyFunc func(ctx context.Context, steps []Step) error

// stepsOf lists what makes up the differences: what goes first, deepest first, so
// that a directory can take a file's place and the reverse; then what comes.
func stepsOf(diffs []difference) []Step {
	var gone, come []Step
	for _, d := range diffs {
		if d.new.Mode == 0 {
			gone = append(gone, Step{Path: d.path})
		} else {
			come = append(come, Step{Path: d.path, Mode: d.new.Mode, OID: d.new.OID})
		}
	}
	slices.Reverse(gone)
	return append(gone, come...)
}

// reversed are the differences the other way.
func reversed(diffs []difference) []difference {
	out := make([]difference, len(diffs))
	for i, d := range diffs {
		out[i] = difference{path: d.path, old: d.new, new: d.old}
	}
	return out
}

// applySteps changes what the workspace shows: through apply if it is attached,
// else in the upper itself.
func (w *Workspace) applySteps(ctx context.Context, apply ApplyFunc, steps []Step) error {
	if len(steps) == 0 {
		return nil
	}
	if w.attached {
		if apply == nil {
			return errcode.New(errcode.WorkspaceMounted, nil, "workspace %s is mounted", w.agent)
		}
		return apply(ctx, steps)
	}
	if err := applyTo(ctx, w.engine.store, w.engine.dir, viewTarget{w.view()}, steps); err != nil {
		return err
	}
	return w.layer.Sync()
}

// ApplyToDir carries steps out in the directory dir. It is safe to repeat after
// an interruption. Symlinks are replaced, never followed; scratch is a
// directory for temporary files.
func ApplyToDir(ctx context.Context, store *gitstore.Store, dir, scratch string, steps []Step) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return applyTo(ctx, store, scratch, dirTarget{root}, steps)
}

// target is where steps are carried out: a directory or an unmounted upper.
type target interface {
	// kind is 0 if nothing is at p.
	kind(p string) (upper.Kind, error)
	remove(p string) error
	mkdir(p string) error
	writeFile(p string, content io.Reader, mode gitstore.Mode) error
	symlink(to, p string) error
	empty(p string) (bool, error)
}

func applyTo(ctx context.Context, store *gitstore.Store, scratch string, t target, steps []Step) error {
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := applyStep(store, scratch, t, s); err != nil {
			return fmt.Errorf("%s: %w", s.Path, err)
		}
		failpoint("apply: step done")
	}
	return nil
}

func applyStep(store *gitstore.Store, scratch string, t target, s Step) error {
	if s.Mode == 0 {
		return removeAndTidy(t, s.Path)
	}
	for dir := range parents(s.Path) {
		switch k, err := t.kind(dir); {
		case err != nil:
			return err
		case k == 0:
			if err := t.mkdir(dir); err != nil {
				return err
			}
		case k != upper.Dir:
			return errcode.New(errcode.PathInTheWay, nil, "%s is not a directory", dir)
		}
	}
	k, err := t.kind(s.Path)
	if err != nil {
		return err
	}
	if s.Mode == gitstore.ModeGitlink {
		if k == 0 {
			return t.mkdir(s.Path)
		}
		return nil
	}
	if k == upper.Dir {
		if err := removeEmptyDirs(t, s.Path); err != nil {
			return err
		}
	} else if k != 0 {
		if err := t.remove(s.Path); err != nil {
			return err
		}
	}
	content, size, err := store.OpenBlob(s.OID, scratch)
	if err != nil {
		return err
	}
	defer content.Close()
	if s.Mode == gitstore.ModeSymlink {
		to := make([]byte, min(size, 4096))
		if _, err := io.ReadFull(content, to); err != nil {
			return err
		}
		return t.symlink(string(to), s.Path)
	}
	return t.writeFile(s.Path, content, s.Mode)
}

// removeAndTidy removes p and the directories that become empty by it, as Git
// does on checkout. What is gone already, or a directory by now, is left.
func removeAndTidy(t target, p string) error {
	k, err := t.kind(p)
	if err != nil {
		return err
	}
	switch k {
	case 0:
	case upper.Dir:
		return removeIfEmpty(t, p)
	default:
		if err := t.remove(p); err != nil {
			return err
		}
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		k, err := t.kind(dir)
		if err != nil {
			return err
		}
		if k != upper.Dir {
			continue
		}
		empty, err := t.empty(dir)
		if err != nil || !empty {
			return err
		}
		if err := t.remove(dir); err != nil {
			return err
		}
	}
	return nil
}

func removeIfEmpty(t target, dir string) error {
	empty, err := t.empty(dir)
	if err != nil || !empty {
		return err
	}
	return t.remove(dir)
}

// removeEmptyDirs removes the directory at p, where a file must go; only empty
// directories can be left there.
func removeEmptyDirs(t target, p string) error {
	empty, err := t.empty(p)
	if err != nil {
		return err
	}
	if !empty {
		return errcode.New(errcode.PathInTheWay, nil, "%s is a directory with files that are in no revision", p)
	}
	return t.remove(p)
}

// parents yields the directories above p, outermost first.
func parents(p string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range len(p) {
			if p[i] == '/' && !yield(p[:i]) {
				return
			}
		}
	}
}

// viewTarget is an unmounted upper.
type viewTarget struct{ view *upper.View }

func (t viewTarget) kind(p string) (upper.Kind, error) {
	info, err := t.view.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return info.Kind, err
}

func (t viewTarget) remove(p string) error      { return t.view.Remove(p) }
func (t viewTarget) mkdir(p string) error       { return t.view.Mkdir(p) }
func (t viewTarget) symlink(to, p string) error { return t.view.Symlink(to, p) }

func (t viewTarget) writeFile(p string, content io.Reader, mode gitstore.Mode) error {
	return t.view.WriteFile(p, content, fileMode(mode))
}

func (t viewTarget) empty(p string) (bool, error) {
	list, err := t.view.ReadDir(p)
	return len(list) == 0, err
}

// dirTarget is a directory; os.Root keeps every access beneath it.
type dirTarget struct{ root *os.Root }

func (t dirTarget) kind(p string) (upper.Kind, error) {
	info, err := t.root.Lstat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		// A parent that is a file by now: p does not exist.
		if strings.Contains(p, "/") {
			if k, perr := t.kind(path.Dir(p)); perr == nil && k != upper.Dir {
				return 0, nil
			}
		}
		return 0, err
	case info.IsDir():
		return upper.Dir, nil
	case info.Mode()&fs.ModeSymlink != 0:
		return upper.Symlink, nil
	case info.Mode().IsRegular():
		return upper.File, nil
	}
	return upper.Special, nil
}

func (t dirTarget) remove(p string) error      { return t.root.Remove(p) }
func (t dirTarget) mkdir(p string) error       { return t.root.Mkdir(p, 0o755) }
func (t dirTarget) symlink(to, p string) error { return t.root.Symlink(to, p) }

func (t dirTarget) writeFile(p string, content io.Reader, mode gitstore.Mode) error {
	f, err := t.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode(mode))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

func (t dirTarget) empty(p string) (bool, error) {
	d, err := t.root.Open(p)
	if err != nil {
		return false, err
	}
	defer d.Close()
	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

func fileMode(m gitstore.Mode) fs.FileMode {
	if m == gitstore.ModeExec {
		return 0o755
	}
	return 0o644
}
