package upper

import (
	"strings"
	"syscall"
)

// Rename moves old to path with all below it, as rename(2): a file or link
// replaces what is no directory, a directory replaces an empty one. A directory
// that stands on one in the tree is not copied: the layer's part of it is given a
// redirect, whatever is below.
//
// The move is one step of the file system, with one exception: an empty directory
// at path goes first.
func (v *View) Rename(old, path string) error {
	v.layer.edits.Lock()
	defer v.layer.edits.Unlock()
	err := v.rename(old, path)
	return pathError("rename", old, err)
}

func (v *View) rename(old, path string) error {
	if old == "" || path == "" {
		return syscall.EBUSY
	}
	if err := v.checkRename(old, path); err != nil || old == path {
		return err
	}

	// Both places must be in the layer. This shows nothing yet.
	dirOf, _ := split(path)
	if _, d, err := v.copyUpDirs(dirOf); err != nil {
		return err
	} else if d != nil {
		d.close(v.layer)
	}
	oldDirOf, _ := split(old)
	if _, d, err := v.copyUpDirs(oldDirOf); err != nil {
		return err
	} else if d != nil {
		d.close(v.layer)
	}
	from, n, err := v.copyUp(old)
	if err != nil {
		return err
	}
	defer from.close(v.layer)
	defer n.close(v.layer)
	to, target, err := v.walk(path)
	if err != nil {
		return err
	}
	defer to.close(v.layer)
	defer func() { target.close(v.layer) }()

	if n.up.Kind != Dir && n.up.Kind == target.up.Kind &&
		n.up.Stat.Ino == target.up.Stat.Ino && n.up.Stat.Dev == target.up.Stat.Dev {
		return nil // two links to one file: POSIX rename does nothing
	}
	if n.up.Kind == Dir {
		if target.kind() == Dir {
			if err := v.takeOut(to, target); err != nil {
				return err
			}
			target.close(v.layer)
			if target, err = v.child(to, target.name); err != nil {
				return err
			}
		}
		if err := v.markMove(n, to); err != nil {
			return err
		}
	}
	return v.move(from, n, to, target)
}

// checkRename returns the error that rename(2) has for these two places.
func (v *View) checkRename(old, path string) error {
	from, n, err := v.walk(old)
	if err != nil {
		return err
	}
	defer from.close(v.layer)
	defer n.close(v.layer)
	to, target, err := v.walk(path)
	if err != nil {
		return pathError("rename", path, err)
	}
	defer to.close(v.layer)
	defer target.close(v.layer)
	switch {
	case n.bad != nil:
		return n.bad
	case n.kind() == 0:
		return syscall.ENOENT
	case path == old:
		return nil
	case strings.HasPrefix(path, old+"/"):
		return syscall.EINVAL
	case strings.HasPrefix(old, path+"/"):
		return syscall.ENOTEMPTY
	case target.bad != nil:
		return pathError("rename", path, target.bad)
	case target.kind() == 0:
		return nil
	case n.kind() == Dir && target.kind() != Dir:
		return pathError("rename", path, syscall.ENOTDIR)
	case n.kind() != Dir && target.kind() == Dir:
		return pathError("rename", path, syscall.EISDIR)
	}
	return pathError("rename", path, v.checkEmpty(target))
}

// markMove gives the directory n, still at its old place, the mark it needs in
// the directory to. Where n is now, neither mark changes what shows.
func (v *View) markMove(n, to *node) error {
	var mark, value string
	switch {
	case n.hasLower:
		// Always absolute: it holds wherever the directory goes next.
		mark, value = markRedirect, "/"+n.lowerPath
	case to.hasLower && !n.up.Opaque:
		// It stands on nothing and must not come to stand on a directory of its
		// new name, or of the name in a redirect that led nowhere.
		mark, value = markOpaque, "y"
	default:
		return nil
	}
	return n.dir.setxattr(".", v.layer.ns.xattr(mark), []byte(value))
}

// move renames in the layer. A whiteout stays at the old place if the tree has
// that name (ovl_rename does it in the same ways).
func (v *View) move(from, n, to, target *node) error {
	hides, err := v.hides(from, n.name)
	if err != nil {
		return err
	}
	// rename(2) puts no directory over a whiteout: they change places.
	swap := n.up.Kind == Dir && target.up.Kind == Whiteout
	var flags uint
	switch {
	case swap:
		flags = renameExchange
	case hides:
		flags = renameWhiteout
	}
	err = from.dir.rename(n.name, to.dir, target.name, flags)
	if err != nil {
		return err
	}
	if swap && !hides {
		// The whiteout hides nothing at its new place; it is litter.
		err = from.dir.unlink(n.name)
	}
	v.layer.moved(n.path, target.path, n.up.Kind)
	return err
}
