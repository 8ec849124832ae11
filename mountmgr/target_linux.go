package mountmgr

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
)

// maxLinks is how many symbolic links a path may go through; the kernel's own
// limit (MAXSYMLINKS, include/linux/namei.h).
const maxLinks = 40

// forbidden are directories no mount point may lie in, and why.
type forbidden struct{ dir, what string }

// resolveTarget turns a mount point's path into one without symbolic links and
// decides by path alone whether something may be mounted there. Components are
// looked at one by one and checked against mounts first, so that no mount of
// relofs is ever entered. Those at the end may not exist.
//
// Errors: MountPointBad, MountPointInUse.
func resolveTarget(path string, mounts []mountEntry, never []forbidden) (string, error) {
	bad := func(cause error, format string, args ...any) error {
		return errcode.New(errcode.MountPointBad, cause, "mount point %s %s", path, fmt.Sprintf(format, args...))
	}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", errcode.New(errcode.MountPointBad, nil, "mount point %q is not an absolute path", path)
	}
	relofs := make(map[string]*mountEntry)
	for i := range mounts {
		if mounts[i].isOverlay() || mounts[i].isLower() {
			relofs[mounts[i].point] = &mounts[i]
		}
	}

	rest := components(path)
	cur, exists, links := "/", true, 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			if !exists {
				return "", bad(nil, "has '..' after a directory that does not exist")
			}
			cur = filepath.Dir(cur)
			continue
		}
		next := filepath.Join(cur, name)
		if m := relofs[next]; m != nil {
			if len(rest) == 0 {
				return "", errcode.New(errcode.MountPointInUse, nil, "%s is mounted at %s", m.source, next)
			}
			return "", bad(nil, "lies inside a mount of relofs, %s", next)
		}
		if !exists {
			cur = next
			continue
		}
		var st unix.Stat_t
		err := unix.Lstat(next, &st)
		switch {
		case errors.Is(err, unix.ENOENT):
			exists = false
		case err != nil:
			return "", bad(err, "cannot be looked at")
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			if len(rest) == 0 {
				return "", bad(nil, "is a symbolic link")
			}
			if links++; links > maxLinks {
				return "", bad(unix.ELOOP, "cannot be looked at")
			}
			link, err := os.Readlink(next)
			if err != nil {
				return "", bad(err, "cannot be looked at")
			}
			if filepath.IsAbs(link) {
				cur = "/"
			}
			rest = append(components(link), rest...)
			continue
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			if len(rest) == 0 {
				return "", bad(nil, "is not a directory")
			}
			return "", bad(nil, "goes through %s, which is not a directory", next)
		}
		cur = next
	}

	for _, f := range never {
		if f.dir != "" && within(cur, f.dir) {
			return "", bad(nil, "lies inside %s", f.what)
		}
	}
	for _, name := range components(cur) {
		if strings.EqualFold(name, ".git") {
			return "", bad(nil, "lies inside a .git directory")
		}
	}
	if m := topmost(mounts, cur); m != nil {
		return "", errcode.New(errcode.MountPointInUse, nil, "%s (%s) is mounted at %s", m.source, m.fsType, cur)
	}
	return cur, nil
}

// components splits a path, leaving out what means nothing.
func components(path string) []string {
	var out []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			out = append(out, name)
		}
	}
	return out
}

// target is a mount point that is open and empty.
type target struct {
	path string
	dir  *os.File
	made []string // directories that were made for it, outermost first
}

// openTarget makes the directory of a resolved path if it is absent, parents
// with mode 0700, and opens it. What is mounted on the open descriptor lands on
// the directory that was checked, even if the path is exchanged meanwhile.
//
// Errors: MountPointBad, MountPointNotEmpty.
func openTarget(path string) (*target, error) {
	t := &target{path: path}
	if err := t.open(); err != nil {
		t.discard()
		var coded *errcode.Error
		if errors.As(err, &coded) {
			return nil, err
		}
		return nil, errcode.New(errcode.MountPointBad, err, "mount point %s", path)
	}
	return t, nil
}

func (t *target) open() error {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	}
	fd := -1
	for try := 0; ; try++ {
		err := t.makeDirs()
		if err == nil {
			fd, err = unix.Openat2(unix.AT_FDCWD, t.path, how)
		}
		if err == nil {
			break
		}
		// A workspace unmounted at the same time may take a parent away.
		if !errors.Is(err, unix.ENOENT) || try == 5 {
			return err
		}
	}
	t.dir = os.NewFile(uintptr(fd), t.path)
	names, err := t.dir.Readdirnames(1)
	if len(names) > 0 {
		return errcode.New(errcode.MountPointNotEmpty, nil, "mount point %s has files in it, such as %q", t.path, names[0])
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (t *target) makeDirs() error {
	var missing []string
	for dir := t.path; ; dir = filepath.Dir(dir) {
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			t.made = append(t.made, dir)
			break
		}
		if errors.Is(err, os.ErrExist) {
			break
		}
		if !errors.Is(err, os.ErrNotExist) || dir == "/" {
			return err
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		err := os.Mkdir(missing[i], 0o700)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err == nil {
			t.made = append(t.made, missing[i])
		}
	}
	return nil
}

// link names the open directory for mount(2).
func (t *target) link() string { return fmt.Sprintf("/proc/self/fd/%d", t.dir.Fd()) }

// discard closes the directory and removes what was made for it.
func (t *target) discard() {
	if t.dir != nil {
		t.dir.Close()
	}
	removeDirs(t.made)
}

// removeDirs removes empty directories, the innermost first, until one is in
// use.
func removeDirs(dirs []string) {
	for i := len(dirs) - 1; i >= 0; i-- {
		if os.Remove(dirs[i]) != nil {
			return
		}
	}
}
