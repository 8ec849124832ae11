package upper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// The marks' names after the namespace's prefix (fs/overlayfs/overlayfs.h).
const (
	markOpaque   = "opaque"
	markRedirect = "redirect"
	markWhiteout = "whiteout"
	markMetacopy = "metacopy"
)

func (ns Namespace) xattr(mark string) string { return string(ns) + ".overlay." + mark }

// dirMarks reads the marks of an open directory.
func (l *Layer) dirMarks(d *dir) (opaque bool, redirect string, err error) {
	value, err := d.getxattr(".", l.ns.xattr(markOpaque))
	if err != nil {
		return false, "", err
	}
	if isOpaque(value) {
		return true, "", nil
	}
	value, err = d.getxattr(".", l.ns.xattr(markRedirect))
	if err != nil || value == nil {
		return false, "", err
	}
	redirect, err = parseRedirect(value)
	return false, redirect, err
}

// hasFileMark says whether the regular file name has a mark. Reading a "user."
// xattr needs permission to read the file; without it the file has none, as for
// the kernel (ovl_check_metacopy_xattr).
func (l *Layer) hasFileMark(d *dir, name, mark string) (bool, error) {
	value, err := d.getxattr(name, l.ns.xattr(mark))
	if errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	return value != nil, err
}

func (l *Layer) refuseMetacopy(f *os.File) error {
	has, err := hasXattr(f, l.ns.xattr(markMetacopy))
	if err == nil && has {
		err = ErrMetacopy
	}
	return err
}

// isOpaque judges the value of the opaque mark: the kernel reads it into one
// byte, so that a longer value counts as none (ovl_get_dir_xattr_val).
func isOpaque(value []byte) bool { return len(value) == 1 && value[0] == 'y' }

// parseRedirect checks the value of a redirect mark and returns it. The form is
// the one ovl_get_redirect_xattr demands; "." and ".." are refused here already
// (the kernel's lookup of them fails), and so is a NUL (where the kernel would
// stop reading).
func parseRedirect(value []byte) (string, error) {
	if len(value) == 0 {
		return "", badRedirect(value, "is empty")
	}
	if bytes.IndexByte(value, 0) >= 0 {
		return "", badRedirect(value, "contains a NUL")
	}
	names := value
	if value[0] == '/' {
		names = value[1:]
	} else if bytes.IndexByte(value, '/') >= 0 {
		return "", badRedirect(value, "is neither absolute nor a single name")
	}
	for name := range bytes.SplitSeq(names, []byte("/")) {
		switch string(name) {
		case "":
			return "", badRedirect(value, "has an empty name")
		case ".", "..":
			return "", badRedirect(value, "has a dot name")
		}
	}
	return string(value), nil
}

func badRedirect(value []byte, why string) error {
	const shown = 64
	ellipsis := ""
	if len(value) > shown {
		value, ellipsis = value[:shown], "…"
	}
	return fmt.Errorf("%w: redirect %q%s %s", ErrBadMark, value, ellipsis, why)
}

// isBadMark reports whether err is about a mark rather than about reading it.
func isBadMark(err error) bool { return errors.Is(err, ErrBadMark) }
