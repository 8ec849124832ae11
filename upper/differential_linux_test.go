package upper_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/relofs/relofs/upper"
)

// Few names, so that what is deleted, renamed and made anew meets the old.
var names = []string{"a", "b", "c", "d", "e"}

func drawName(t *rapid.T) string { return rapid.SampledFrom(names).Draw(t, "name") }

// drawFiles draws a tree of a few dozen entries, with every kind of them.
func drawFiles(t *rapid.T) files {
	f := files{}
	var fill func(dir string, depth int)
	fill = func(dir string, depth int) {
		for _, name := range names {
			path := strings.TrimPrefix(dir+"/"+name, "/")
			switch kind := rapid.IntRange(0, 9).Draw(t, "kind of "+path); {
			case kind == 0:
			case kind <= 3:
				f[path] = "content of " + path
			case kind == 4:
				f[path] = "#!/bin/sh " + path
			case kind == 5:
				f[path] = "link:" + drawName(t)
			case kind == 6:
				f[path] = "gitlink"
			case depth < 3:
				f[path+"/keep"] = "kept in " + path
				if kind > 7 || depth == 0 {
					fill(path, depth+1)
				}
			default:
				f[path] = ""
			}
		}
	}
	fill("", 0)
	return f
}

// drawPath draws a path that exists, mostly, or a new one in a directory that
// exists, mostly.
func drawPath(t *rapid.T, s shown, label string) string {
	paths := slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(p string) bool { return p == "." })
	if len(paths) > 0 && rapid.IntRange(0, 2).Draw(t, label+": existing") > 0 {
		return rapid.SampledFrom(paths).Draw(t, label)
	}
	dirs := []string{"."}
	for _, p := range paths {
		if strings.HasPrefix(s[p], "dir") {
			dirs = append(dirs, p)
		}
	}
	if len(paths) > 0 && rapid.IntRange(0, 9).Draw(t, label+": below no directory") == 0 {
		dirs = paths
	}
	return filepath.Join(rapid.SampledFrom(dirs).Draw(t, label+": in"), drawName(t))
}

// throughLink reports whether a component before the last of path is a link on
// the mount: the kernel follows it, a View does not.
func throughLink(mnt, path string) bool {
	for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(filepath.Join(mnt, dir)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// edit is an operation that a View has, too.
type edit struct {
	op, path, arg string
	mode          fs.FileMode
}

func (e edit) String() string { return fmt.Sprintf("%s %s %q %o", e.op, e.path, e.arg, e.mode) }

func drawEdit(t *rapid.T, s shown) edit {
	e := edit{
		// Renames are where the marks are; they come often.
		op:   rapid.SampledFrom([]string{"rename", "rename", "rename", "rename", "write", "write", "mkdir", "mkdir", "remove", "removeall", "removeall", "chmod", "symlink"}).Draw(t, "op"),
		path: drawPath(t, s, "path"),
	}
	switch e.op {
	case "rename":
		e.arg = drawPath(t, s, "to")
	case "write":
		e.arg = rapid.StringMatching(`[a-z]{0,8}`).Draw(t, "content")
		e.mode = rapid.SampledFrom([]fs.FileMode{0o644, 0o755}).Draw(t, "mode")
	case "symlink":
		e.arg = drawName(t)
	case "chmod":
		e.mode = rapid.SampledFrom([]fs.FileMode{0o644, 0o755, 0o700, 0o600}).Draw(t, "mode")
	}
	return e
}

func (e edit) inView(v *upper.View) error {
	switch e.op {
	case "write":
		return v.WriteFile(e.path, strings.NewReader(e.arg), e.mode)
	case "mkdir":
		return v.Mkdir(e.path)
	case "remove":
		return v.Remove(e.path)
	case "removeall":
		return v.RemoveAll(e.path)
	case "rename":
		return v.Rename(e.path, e.arg)
	case "chmod":
		return v.Chmod(e.path, e.mode)
	case "symlink":
		return v.Symlink(e.arg, e.path)
	}
	panic(e.op)
}

// onMount does the same through the kernel. What View makes in one step is
// renamed into place.
func (e edit) onMount(mnt string) error {
	at := filepath.Join(mnt, e.path)
	temp := filepath.Join(mnt, "temporary")
	place := func() error {
		err := unix.Rename(temp, at)
		if err != nil {
			os.Remove(temp)
		}
		return err
	}
	switch e.op {
	case "write":
		if err := errors.Join(os.WriteFile(temp, []byte(e.arg), e.mode), os.Chmod(temp, e.mode)); err != nil {
			return err
		}
		return place()
	case "symlink":
		if err := os.Symlink(e.arg, temp); err != nil {
			return err
		}
		return place()
	case "mkdir":
		return os.Mkdir(at, 0o755)
	case "remove":
		return os.Remove(at)
	case "removeall":
		return removeAll(at)
	case "rename":
		return unix.Rename(at, filepath.Join(mnt, e.arg))
	case "chmod":
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return syscall.ENOTSUP
		}
		return os.Chmod(at, e.mode)
	}
	panic(e.op)
}

// removeAll is os.RemoveAll, which would wait for a writer if path lay below a
// FIFO.
func removeAll(path string) error {
	if _, err := os.Lstat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(path)
}

// drawMountOp draws and does what only the kernel can do, or does in more ways.
func drawMountOp(t *rapid.T, mnt string, s shown) string {
	path := drawPath(t, s, "path")
	if throughLink(mnt, path) {
		return "nothing"
	}
	at := filepath.Join(mnt, path)
	write := func(flags int) {
		if fd, err := unix.Open(at, flags|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644); err == nil {
			unix.Write(fd, []byte(rapid.StringMatching(`[A-Z]{1,5}`).Draw(t, "data")))
			unix.Close(fd)
		}
	}
	op := rapid.SampledFrom([]string{"create", "append", "overwrite", "truncate", "fifo", "link", "swap", "swap", "anew", "dir to file", "file to dir", "unlink while open"}).Draw(t, "kernel's op")
	switch op {
	case "create":
		write(unix.O_CREAT | unix.O_TRUNC)
	case "append":
		write(unix.O_APPEND)
	case "overwrite":
		write(0)
	case "truncate":
		if info, err := os.Lstat(at); err == nil && info.Mode().IsRegular() {
			unix.Truncate(at, 3)
		}
	case "fifo":
		unix.Mkfifo(at, 0o644)
	case "link", "swap":
		other := drawPath(t, s, "other")
		op += " " + other
		if throughLink(mnt, other) {
			break
		}
		if strings.HasPrefix(op, "link") {
			os.Link(at, filepath.Join(mnt, other))
		} else {
			unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, filepath.Join(mnt, other), unix.RENAME_EXCHANGE)
		}
	case "anew": // an opaque directory
		removeAll(at)
		os.Mkdir(at, 0o755)
		os.WriteFile(filepath.Join(at, drawName(t)), []byte("anew"), 0o644)
	case "dir to file":
		removeAll(at)
		os.WriteFile(at, []byte("was a directory"), 0o755)
	case "file to dir":
		os.Remove(at)
		os.Mkdir(at, 0o755)
	case "unlink while open":
		if fd, err := unix.Open(at, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err == nil {
			unix.Unlink(at)
			unix.Write(fd, []byte("lost"))
			unix.Close(fd)
		}
	}
	return op + " " + path
}

// TestViewAndKernelAgree changes a workspace by turns through a mount and through
// its View; after every turn both must show the same.
func TestViewAndKernelAgree(t *testing.T) {
	parent := needOverlay(t)
	rapid.Check(t, func(rt *rapid.T) {
		ws := newWorkspace(t, parent, drawFiles(rt))
		defer os.RemoveAll(ws.dir)
		defer ws.close()
		var history []string
		agree := func(when string, kernel shown) {
			if diff := cmp.Diff(kernel, inView(rt, ws.view)); diff != "" {
				rt.Fatalf("%s (-kernel +view):\n%s\nhistory:\n  %s\nlayer:\n%s", when, diff, strings.Join(history, "\n  "), onDisk(ws.path("upper")))
			}
		}
		for range rapid.IntRange(1, 4).Draw(rt, "turns") {
			ws.mounted(rt, func(mnt string) {
				agree("after edits of the view", onMount(rt, mnt))
				for range rapid.IntRange(0, 8).Draw(rt, "operations") {
					s := onMount(rt, mnt)
					if rapid.Bool().Draw(rt, "kernel's own") {
						history = append(history, "mount: "+drawMountOp(rt, mnt, s))
						continue
					}
					e := drawEdit(rt, s)
					if !throughLink(mnt, e.path) && !(e.op == "rename" && throughLink(mnt, e.arg)) {
						history = append(history, fmt.Sprintf("mount: %v: %v", e, e.onMount(mnt)))
					}
				}
				// The view of a mounted workspace is right, too.
				agree("while mounted", onMount(rt, mnt))
			})
			if rapid.Bool().Draw(rt, "open anew") {
				ws.open(rt)
			}
			for range rapid.IntRange(0, 8).Draw(rt, "edits") {
				e := drawEdit(rt, inView(rt, ws.view))
				history = append(history, fmt.Sprintf("view: %v: %v", e, e.inView(ws.view)))
			}
			if err := ws.layer.Sync(); err != nil {
				rt.Fatalf("sync: %v", err)
			}
		}
		ws.mounted(rt, func(mnt string) { agree("at the end", onMount(rt, mnt)) })
	})
}

// TestEditsDoWhatTheKernelDoes gives the same edits to a mount and to the View of
// another workspace on the same tree: they succeed and fail alike, and in the end
// two mounts and two views show one tree.
func TestEditsDoWhatTheKernelDoes(t *testing.T) {
	parent := needOverlay(t)
	rapid.Check(t, func(rt *rapid.T) {
		f := drawFiles(rt)
		kernel, view := newWorkspace(t, parent, f), newWorkspace(t, parent, f)
		defer os.RemoveAll(kernel.dir)
		defer os.RemoveAll(view.dir)
		defer kernel.close()
		defer view.close()
		var want shown
		var history []string
		kernel.mounted(rt, func(mnt string) {
			for range rapid.IntRange(1, 25).Draw(rt, "edits") {
				e := drawEdit(rt, onMount(rt, mnt))
				if throughLink(mnt, e.path) || e.op == "rename" && throughLink(mnt, e.arg) {
					continue
				}
				errKernel, errView := e.onMount(mnt), e.inView(view.view)
				history = append(history, fmt.Sprintf("%v: %v", e, errKernel))
				if !alike(errKernel, errView) {
					rt.Fatalf("%v:\nkernel: %v\nview:   %v\nhistory:\n  %s\nthe view's layer:\n%s", e, errKernel, errView, strings.Join(history, "\n  "), onDisk(view.path("upper")))
				}
			}
			want = onMount(rt, mnt)
		})
		same := func(who string, got shown) {
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("%s (-kernel +%s):\n%s\nhistory:\n  %s\nthe view's layer:\n%s", who, who, diff, strings.Join(history, "\n  "), onDisk(view.path("upper")))
			}
		}
		same("view of the kernel's layer", inView(rt, kernel.view))
		same("view of the view's layer", inView(rt, view.view))
		view.mounted(rt, func(mnt string) { same("mount of the view's layer", onMount(rt, mnt)) })
	})
}

// alike compares errnos.
func alike(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	var x, y syscall.Errno
	return errors.As(a, &x) && errors.As(b, &y) && x == y
}
