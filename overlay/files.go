package overlay

import (
	"errors"
	"io"
	"io/fs"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/upper"
)

// The methods of this file are the file tools of a workspace that is not
// mounted. They act on the upper; Sync makes a revision of what they did, as it
// does of what tools write in a mounted directory. While the workspace is
// attached they fail with errcode.WorkspaceMounted: edits then go through the
// directory, where watchers see them. Paths are slash separated and relative to
// the workspace's root.

// Stat describes the file at path without following a symlink.
func (w *Workspace) Stat(path string) (upper.Info, error) {
	var info upper.Info
	err := w.read(&path, func(v *upper.View) (err error) {
		info, err = v.Stat(path)
		return err
	})
	return info, err
}

// ReadDir lists the directory at path ("" for the root), sorted by name.
func (w *Workspace) ReadDir(path string) ([]upper.Info, error) {
	var list []upper.Info
	err := w.read(&path, func(v *upper.View) (err error) {
		list, err = v.ReadDir(path)
		return err
	})
	return list, err
}

// ReadFile opens the regular file at path. A reader sees the content at the
// time of the call or, of a file an agent wrote, later writes to it.
func (w *Workspace) ReadFile(path string) (io.ReadCloser, error) {
	var content io.ReadCloser
	err := w.read(&path, func(v *upper.View) (err error) {
		content, _, err = v.Open(path)
		return err
	})
	return content, err
}

// Readlink returns the target of the symlink at path.
func (w *Workspace) Readlink(path string) (string, error) {
	var to string
	err := w.read(&path, func(v *upper.View) (err error) {
		to, err = v.Readlink(path)
		return err
	})
	return to, err
}

// WriteFile replaces the file at path by content, making the directories above
// it. executable sets its mode to 0755 rather than 0644.
func (w *Workspace) WriteFile(path string, content io.Reader, executable bool) error {
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	return w.edit(&path, func(v *upper.View) error {
		if err := mkdirParents(v, path); err != nil {
			return err
		}
		return v.WriteFile(path, content, mode)
	})
}

// Symlink makes path a symlink to the text to, making the directories above it.
func (w *Workspace) Symlink(to, path string) error {
	return w.edit(&path, func(v *upper.View) error {
		if err := mkdirParents(v, path); err != nil {
			return err
		}
		return v.Symlink(to, path)
	})
}

// Mkdir makes a directory and those above it. Git keeps no empty directories,
// so it is in a revision once it has a file.
func (w *Workspace) Mkdir(path string) error {
	return w.edit(&path, func(v *upper.View) error { return v.MkdirAll(path) })
}

// Delete removes the file, symlink or directory with all it holds at path.
func (w *Workspace) Delete(path string) error {
	return w.edit(&path, func(v *upper.View) error {
		if path == "" {
			return errcode.New(errcode.BadPath, nil, "the root of a workspace cannot be deleted")
		}
		if _, err := v.Stat(path); err != nil {
			return err
		}
		return v.RemoveAll(path)
	})
}

// Rename moves the file or directory at path to to, replacing a file there.
func (w *Workspace) Rename(path, to string) error {
	to, err := cleanPath(to)
	if err != nil {
		return err
	}
	return w.edit(&path, func(v *upper.View) error {
		if err := mkdirParents(v, to); err != nil {
			return err
		}
		return v.Rename(path, to)
	})
}

// Chmod makes the file at path executable or not.
func (w *Workspace) Chmod(path string, executable bool) error {
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	return w.edit(&path, func(v *upper.View) error { return v.Chmod(path, mode) })
}

func mkdirParents(v *upper.View, path string) error {
	for dir := range parents(path) {
		if err := v.MkdirAll(dir); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workspace) read(path *string, do func(*upper.View) error) error {
	return w.withView(path, w.usable, do)
}

func (w *Workspace) edit(path *string, do func(*upper.View) error) error {
	return w.withView(path, w.writable, do)
}

func (w *Workspace) withView(path *string, allowed func() error, do func(*upper.View) error) error {
	clean, err := cleanPath(*path)
	if err != nil {
		return err
	}
	*path = clean
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := allowed(); err != nil {
		return err
	}
	if w.attached {
		return errcode.New(errcode.WorkspaceMounted, nil, "workspace %s is mounted at %s", w.agent, w.meta.MountPoint)
	}
	err = do(w.view())
	if errors.Is(err, fs.ErrNotExist) {
		return errcode.New(errcode.PathNotFound, err, "%s in workspace %s", clean, w.agent)
	}
	return coded(err, "%s in workspace %s", clean, w.agent)
}
