package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// Step is one path of a workspace that is to change: to a blob with a mode, or,
// with mode 0, to be gone.
type Step struct {
	Path string
	Mode gitstore.Mode
	OID  gitstore.OID
	// Was is what the path holds before; mode 0 for nothing. If a tool has
	// written something else by then, the step fails with
	// errcode.PathInTheWay or, with Yield, leaves it alone.
	WasMode gitstore.Mode
	WasOID  gitstore.OID
	Yield   bool
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
		s := Step{Path: d.path, Mode: d.new.Mode, OID: d.new.OID, WasMode: d.old.Mode, WasOID: d.old.OID}
		if s.Mode == 0 {
			gone = append(gone, s)
		} else {
			come = append(come, s)
		}
	}
	slices.Reverse(gone)
	return append(gone, come...)
}

// stepsBack lists what takes the differences back as far as they were made and
// nobody has written since.
func stepsBack(diffs []difference) []Step {
	back := make([]difference, len(diffs))
	for i, d := range diffs {
		back[i] = difference{path: d.path, old: d.new, new: d.old}
	}
	steps := stepsOf(back)
	for i := range steps {
		steps[i].Yield = true
	}
	return steps
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
	a := applier{store: w.engine.store, scratch: w.engine.dir, target: viewTarget{w.view()}}
	if err := a.apply(ctx, steps); err != nil {
		return err
	}
	return w.layer.Sync()
}

// ApplyToDir carries steps out in the directory dir, in which tools may be
// writing meanwhile. It is safe to repeat after an interruption. Symlinks are
// replaced, never followed; scratch is a directory for temporary files.
func ApplyToDir(ctx context.Context, store *gitstore.Store, dir, scratch string, steps []Step) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := dirTarget{root}
	return applier{store: store, scratch: scratch, target: t, holds: t.holds}.apply(ctx, steps)
}

// target is where steps are carried out: a directory or an unmounted upper.
type target interface {
	// kind is 0 if nothing is at p.
	kind(p string) (upper.Kind, error)
	// remove removes a file, a link, or an empty directory.
	remove(p string) error
	mkdir(p string) error
	// writeFile and symlink replace what is at p unless it is a directory.
	writeFile(p string, content io.Reader, mode gitstore.Mode) error
	symlink(to, p string) error
}

// applier carries steps out.
type applier struct {
	store   *gitstore.Store
	scratch string
	target
	// holds reports whether the path, where something of kind k is, holds the
	// blob with the mode. It is nil where nobody else writes.
	holds func(p string, k upper.Kind, mode gitstore.Mode, oid gitstore.OID) (bool, error)
}

// apply removes first, then the directories that have become empty, as Git does
// on checkout, and then writes.
func (a applier) apply(ctx context.Context, steps []Step) error {
	emptied := map[string]bool{}
	tidied := false
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.Mode != 0 && !tidied {
			if err := a.tidy(emptied); err != nil {
				return err
			}
			tidied = true
		}
		if err := a.step(s); err != nil {
			return fmt.Errorf("%s: %w", s.Path, err)
		}
		if s.Mode == 0 {
			for dir := range parents(s.Path) {
				emptied[dir] = true
			}
		}
		failpoint("apply: step done")
	}
	if tidied {
		return nil
	}
	return a.tidy(emptied)
}

// tidy removes those of the directories that are empty, the deepest first.
func (a applier) tidy(dirs map[string]bool) error {
	list := slices.Sorted(maps.Keys(dirs))
	slices.Reverse(list)
	for _, dir := range list {
		if err := a.removeDir(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// removeDir removes a directory; that something else is there is no error.
func (a applier) removeDir(p string) error {
	if k, err := a.kind(p); err != nil || k != upper.Dir {
		return err
	}
	err := a.remove(p)
	if errors.Is(err, syscall.EEXIST) { // rmdir(2): the same as ENOTEMPTY
		return syscall.ENOTEMPTY
	}
	return err
}

func (a applier) step(s Step) error {
	k, err := a.kind(s.Path)
	if err != nil {
		return err
	}
	if done, err := a.settled(s, k); err != nil || done {
		return err
	}
	switch {
	case s.Mode == 0 && k == 0:
		return nil
	case s.Mode == 0 && k == upper.Dir:
		if err := a.removeDir(s.Path); !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
		return nil
	case s.Mode == 0:
		return a.remove(s.Path)
	}
	if err := a.makeParents(s.Path); err != nil {
		return err
	}
	switch {
	case s.Mode == gitstore.ModeGitlink && k != 0:
		return nil
	case s.Mode == gitstore.ModeGitlink:
		return a.mkdir(s.Path)
	case k == upper.Dir:
		// Only what is in no revision can have been left in it.
		err := a.removeDir(s.Path)
		if errors.Is(err, syscall.ENOTEMPTY) {
			return errcode.New(errcode.PathInTheWay, nil, "%s is a directory with files that are in no revision", s.Path)
		}
		if err != nil {
			return err
		}
	}
	err = a.put(s)
	if errors.Is(err, fs.ErrExist) {
		if s.Yield {
			return nil
		}
		return writtenMeanwhile(s.Path)
	}
	return err
}

// settled reports whether a step has nothing to do, and refuses it if somebody
// has written at its path.
func (a applier) settled(s Step, k upper.Kind) (bool, error) {
	if a.holds == nil || k == 0 {
		return false, nil
	}
	if s.Mode != 0 {
		if same, err := a.holds(s.Path, k, s.Mode, s.OID); err != nil || same {
			return same, err
		}
	}
	if s.WasMode == 0 && k == upper.Dir {
		return false, nil // an empty one, or step says what is the matter
	}
	same, err := a.holds(s.Path, k, s.WasMode, s.WasOID)
	switch {
	case err != nil || same:
		return false, err
	case s.Yield:
		return true, nil
	}
	return false, writtenMeanwhile(s.Path)
}

func writtenMeanwhile(p string) error {
	return errcode.New(errcode.PathInTheWay, nil, "%s was written by somebody else meanwhile", p)
}

func (a applier) makeParents(p string) error {
	for dir := range parents(p) {
		switch k, err := a.kind(dir); {
		case err != nil:
			return err
		case k == 0:
			if err := a.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		case k != upper.Dir:
			return errcode.New(errcode.PathInTheWay, nil, "%s is not a directory", dir)
		}
	}
	return nil
}

// put writes the blob of a step.
func (a applier) put(s Step) error {
	content, size, err := a.store.OpenBlob(s.OID, a.scratch)
	if err != nil {
		return err
	}
	defer content.Close()
	if s.Mode != gitstore.ModeSymlink {
		return a.writeFile(s.Path, content, s.Mode)
	}
	if size > maxTarget {
		return errcode.New(errcode.BadPath, nil, "%s is a link to more than %d bytes", s.Path, maxTarget)
	}
	to, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return a.symlink(string(to), s.Path)
}

// maxTarget is the longest target a symlink can have, symlink(2).
const maxTarget = 4095

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

func (t dirTarget) remove(p string) error { return t.root.Remove(p) }
func (t dirTarget) mkdir(p string) error  { return t.root.Mkdir(p, 0o755) }

// writeFile never gives more rights to a file than the one it replaces had.
func (t dirTarget) writeFile(p string, content io.Reader, mode gitstore.Mode) error {
	perm := fileMode(mode)
	if old, err := t.root.Lstat(p); err == nil && old.Mode().IsRegular() {
		perm &= old.Mode().Perm() | perm&0o700
	}
	if err := t.makeRoom(p); err != nil {
		return err
	}
	f, err := t.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, t.root.Remove(p)) // half of it is nobody's content
	}
	return nil
}

func (t dirTarget) symlink(to, p string) error {
	if err := t.makeRoom(p); err != nil {
		return err
	}
	return t.root.Symlink(to, p)
}

func (t dirTarget) makeRoom(p string) error {
	if err := t.root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// holds compares by content, as Git would name it.
func (t dirTarget) holds(p string, k upper.Kind, mode gitstore.Mode, oid gitstore.OID) (bool, error) {
	switch {
	case mode == gitstore.ModeGitlink:
		return k == upper.Dir, nil
	case mode == gitstore.ModeSymlink && k == upper.Symlink:
		to, err := t.root.Readlink(p)
		return gitstore.HashObject(gitstore.KindBlob, []byte(to)) == oid, err
	case !mode.IsFile() || k != upper.File:
		return false, nil
	}
	f, err := t.root.Open(p)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if executable := info.Mode()&0o100 != 0; executable != (mode == gitstore.ModeExec) {
		return false, nil
	}
	id, err := gitstore.BlobID(info.Size(), f)
	if errors.Is(err, gitstore.ErrSizeMismatch) {
		return false, nil // it is being written
	}
	return id == oid, err
}

func fileMode(m gitstore.Mode) fs.FileMode {
	if m == gitstore.ModeExec {
		return 0o755
	}
	return 0o644
}
