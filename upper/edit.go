package upper

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/relofs/relofs/gitstore"
)

// edit runs one edit of the place path, whose directory must exist. The root is
// no place to edit.
func (v *View) edit(op, path string, fn func(parent, n *node) error) error {
	v.layer.edits.Lock()
	defer v.layer.edits.Unlock()
	parent, n, err := v.walk(path)
	if err == nil && parent == nil {
		err = syscall.EBUSY
	}
	if err != nil {
		return pathError(op, path, err)
	}
	defer parent.close(v.layer)
	defer n.close(v.layer)
	return pathError(op, path, fn(parent, n))
}

// WriteFile makes path a regular file with the content of data and mode's
// permission bits. A file, link or special file there is replaced by a new file
// at once and whole, so that no reader meets half of it and hard links to the old
// one keep the old content; a directory is EISDIR. Memory is bounded whatever the
// size.
func (v *View) WriteFile(path string, data io.Reader, mode fs.FileMode) error {
	return v.edit("write", path, func(parent, n *node) error {
		if n.kind() == Dir {
			return syscall.EISDIR
		}
		return v.putFile(parent, n, data, mode, time.Time{})
	})
}

// Symlink makes path a symbolic link to target, which is not looked at. What is
// there is replaced as by WriteFile.
func (v *View) Symlink(target, path string) error {
	return v.edit("symlink", path, func(parent, n *node) error {
		switch {
		case n.kind() == Dir:
			return syscall.EISDIR
		case target == "":
			return syscall.ENOENT // as symlink(2)
		case len(target) > maxTarget:
			return syscall.ENAMETOOLONG
		case strings.IndexByte(target, 0) >= 0:
			return syscall.EINVAL
		}
		return v.putSymlink(parent, n, target, time.Time{})
	})
}

// Mkdir makes the directory path, which must not exist.
func (v *View) Mkdir(path string) error {
	return v.edit("mkdir", path, func(parent, n *node) error {
		if n.kind() != 0 {
			return syscall.EEXIST
		}
		// Only a deleted name can have something in the lower that a new
		// directory must not merge with.
		hides, err := v.hides(parent, n.name)
		if err != nil {
			return err
		}
		return v.putDir(parent, n, hides, time.Time{})
	})
}

// MkdirAll makes the directory path and those above it that do not exist.
func (v *View) MkdirAll(path string) error {
	if !validPath(path) {
		return pathError("mkdir", path, syscall.EINVAL)
	}
	for end := range len(path) + 1 {
		if end == 0 || end < len(path) && path[end] != '/' {
			continue
		}
		err := v.Mkdir(path[:end])
		if errors.Is(err, fs.ErrExist) {
			var info Info
			if info, err = v.Stat(path[:end]); err == nil && info.Kind != Dir {
				err = pathError("mkdir", path[:end], syscall.ENOTDIR)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the file, link or empty directory path.
func (v *View) Remove(path string) error {
	return v.edit("remove", path, func(parent, n *node) error {
		if n.bad != nil {
			return n.bad
		}
		if n.kind() == 0 {
			return syscall.ENOENT
		}
		if err := v.checkEmpty(n); err != nil {
			return err
		}
		return v.takeOut(parent, n)
	})
}

// RemoveAll removes path and everything below it; that it does not exist is no
// error. It does not look into what it removes, so that damage below path (a bad
// mark, a missing tree) is no obstacle.
func (v *View) RemoveAll(path string) error {
	err := v.edit("remove", path, func(parent, n *node) error {
		if n.bad == nil && n.kind() == 0 {
			return nil
		}
		return v.takeOut(parent, n)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Chmod sets the permission bits of the file or directory path. A symbolic link
// has none (ENOTSUP).
func (v *View) Chmod(path string, mode fs.FileMode) error {
	v.layer.edits.Lock()
	defer v.layer.edits.Unlock()
	parent, n, err := v.copyUp(path)
	if err != nil {
		return pathError("chmod", path, err)
	}
	defer parent.close(v.layer)
	defer n.close(v.layer)
	switch {
	case n.kind() == Symlink:
		err = syscall.ENOTSUP
	case parent == nil:
		err = n.dir.chmod(".", mode)
	default:
		err = parent.dir.chmod(n.name, mode)
	}
	if err == nil {
		v.layer.touched(path, n.kind(), n.kind())
	}
	return pathError("chmod", path, err)
}

// checkEmpty returns ENOTEMPTY for a directory that shows something.
func (v *View) checkEmpty(n *node) error {
	if n.kind() != Dir {
		return nil
	}
	err := v.each(n, func(*node) error { return errStop })
	if errors.Is(err, errStop) {
		return syscall.ENOTEMPTY
	}
	return err
}

// hides reports whether the tree has name where parent stands, so that a name
// that is not to be seen needs a whiteout (ovl_lower_positive).
func (v *View) hides(parent *node, name string) (bool, error) {
	if !parent.hasLower {
		return false, nil
	}
	_, ok, err := v.lower.lookup(parent.lower, name)
	return ok, err
}

// copyUp makes sure that the layer has what is at path, so that it can be changed
// there, and returns the place and its directory. Nothing that shows is changed.
func (v *View) copyUp(path string) (parent, n *node, err error) {
	parent, n, err = v.walk(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			parent.close(v.layer)
			n.close(v.layer)
			parent, n = nil, nil
		}
	}()
	switch {
	case n.bad != nil:
		err = n.bad
	case n.kind() == 0:
		err = syscall.ENOENT
	case n.up.Kind == 0:
		err = v.copyIn(parent, n)
	}
	if err != nil || n.up.Kind != 0 {
		return parent, n, err
	}
	parent.close(v.layer)
	n.close(v.layer)
	return v.walk(path)
}

// copyIn puts what the tree shows at n into the layer.
func (v *View) copyIn(parent, n *node) error {
	switch n.kind() {
	case Dir:
		return v.putDir(parent, n, false, v.LowerTime)
	case Symlink:
		target, err := v.lowerTarget(n.lower.OID)
		if err != nil {
			return err
		}
		return v.putSymlink(parent, n, target, v.LowerTime)
	}
	blob, _, err := v.openBlob(n.lower.OID)
	if err != nil {
		return err
	}
	defer blob.Close()
	return v.putFile(parent, n, blob, lowerMode(n.lower.Mode), v.LowerTime)
}

// holdParent makes sure that the layer has the directory parent, and opens it.
func (v *View) holdParent(parent *node) error {
	if parent.dir != nil {
		return nil
	}
	_, n, err := v.copyUpDirs(parent.path)
	if err == nil {
		parent.dir = n.dir
		parent.up = n.up
	}
	return err
}

// copyUpDirs is copyUp of a directory and of all above it.
func (v *View) copyUpDirs(path string) (parent, n *node, err error) {
	for end := range len(path) + 1 {
		if end == 0 || end < len(path) && path[end] != '/' {
			continue
		}
		parent.close(v.layer)
		n.close(v.layer)
		if parent, n, err = v.copyUp(path[:end]); err != nil {
			return nil, nil, err
		}
	}
	parent.close(v.layer)
	return nil, n, nil
}

// putFile puts a new regular file at n, where no directory is. A zero mtime is
// the present.
func (v *View) putFile(parent, n *node, data io.Reader, mode fs.FileMode, mtime time.Time) error {
	return v.put(parent, n, File, mtime, func(stage *dir, temp string) error {
		f, err := stage.create(temp)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, data)
		if err == nil {
			err = f.Chmod(mode.Perm())
		}
		return errors.Join(err, f.Close())
	})
}

// putSymlink is putFile for a symbolic link.
func (v *View) putSymlink(parent, n *node, target string, mtime time.Time) error {
	return v.put(parent, n, Symlink, mtime, func(stage *dir, temp string) error {
		return stage.symlink(target, temp)
	})
}

// putDir puts a new directory at n, where nothing shows or only the tree's
// directory does, with which it merges unless it is made opaque.
func (v *View) putDir(parent, n *node, opaque bool, mtime time.Time) error {
	return v.put(parent, n, Dir, mtime, func(stage *dir, temp string) error {
		err := stage.mkdir(temp)
		if err == nil {
			err = stage.chmod(temp, lowerMode(gitstore.ModeTree))
		}
		if err == nil && opaque {
			err = stage.setxattr(temp, v.layer.ns.xattr(markOpaque), []byte("y"))
		}
		return err
	})
}

// put has something made in the staging directory and then moves it to n.
func (v *View) put(parent, n *node, kind Kind, mtime time.Time, prepare func(stage *dir, temp string) error) error {
	if err := v.holdParent(parent); err != nil {
		return err
	}
	stage, err := v.layer.staging()
	if err != nil {
		return err
	}
	temp := tempName()
	err = prepare(stage, temp)
	if err == nil && !mtime.IsZero() {
		err = stage.setMtime(temp, mtime)
	}
	if err == nil {
		err = moveIn(stage, temp, parent.dir, n, kind)
	}
	if err != nil {
		_ = discard(stage, temp) // the first error counts; Recover tries again
		return err
	}
	v.layer.touched(n.path, n.up.Kind, kind)
	return nil
}

// moveIn renames temp to n in one step. If one of the two is a directory and the
// other, at most a whiteout, is not, they change places and the old one goes.
func moveIn(stage *dir, temp string, d *dir, n *node, kind Kind) error {
	if n.up.Kind == 0 || kind != Dir && n.up.Kind != Dir {
		return stage.rename(temp, d, n.name, 0)
	}
	if err := stage.rename(temp, d, n.name, renameExchange); err != nil {
		return err
	}
	// The edit is done; what cannot be discarded now, Recover will.
	_ = discard(stage, temp)
	return nil
}

// takeOut removes what the layer has at n, with all below it, and hides what the
// tree has of this name.
func (v *View) takeOut(parent, n *node) error {
	hides, err := v.hides(parent, n.name)
	if err != nil {
		return err
	}
	if hides {
		return v.put(parent, n, Whiteout, time.Time{}, func(stage *dir, temp string) error {
			return stage.makeWhiteout(temp)
		})
	}
	stage, err := v.layer.staging()
	if err != nil {
		return err
	}
	temp := tempName()
	if err := parent.dir.rename(n.name, stage, temp, renameNoReplace); err != nil {
		return err
	}
	v.layer.touched(n.path, n.up.Kind, 0)
	_ = discard(stage, temp) // as in moveIn
	return nil
}
