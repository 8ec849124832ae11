package upper

import "syscall"

// CopyUpAll makes the layer hold all that shows at path and below it, and cuts
// it off the tree: what the tree is or becomes no longer matters there. Nothing
// that shows is changed.
func (v *View) CopyUpAll(path string) error {
	v.layer.edits.Lock()
	defer v.layer.edits.Unlock()
	return pathError("copy up", path, v.copyUpAll(path))
}

func (v *View) copyUpAll(path string) error {
	parent, n, err := v.copyUp(path)
	if err != nil {
		return err
	}
	defer parent.close(v.layer)
	defer n.close(v.layer)
	if parent == nil {
		return syscall.EBUSY // the root always merges with the tree's
	}
	if n.kind() != Dir {
		return nil
	}
	var below []string
	err = v.each(n, func(c *node) error {
		if c.up.Kind == 0 || c.up.Kind == Dir {
			below = append(below, c.path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range below {
		if err := v.copyUpAll(p); err != nil {
			return err
		}
	}
	if !n.hasLower && n.up.Redirect == "" {
		return nil
	}
	// From here on the directory's redirect, if it has one, is not read.
	if err := n.dir.setxattr(".", v.layer.ns.xattr(markOpaque), []byte("y")); err != nil {
		return err
	}
	v.layer.touched(path, Dir, Dir)
	return nil
}

// ClearMarks removes the opaque and redirect marks of the directory path, so
// that it merges with the tree's directory of its own place.
func (l *Layer) ClearMarks(path string) error {
	if path == "" {
		return nil // the root's are not looked at
	}
	d, err := l.openDir(path)
	if err != nil {
		return pathError("clear marks", path, err)
	}
	defer d.close()
	for _, mark := range []string{markOpaque, markRedirect} {
		if err := d.removexattr(".", l.ns.xattr(mark)); err != nil {
			return pathError("clear marks", path, err)
		}
	}
	l.touched(path, Dir, Dir)
	return nil
}
