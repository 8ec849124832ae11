package upper_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/upper"
)

// tb is what testing.T and rapid.T share and the helpers need.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// workspace is a tree, a layer, and the place where the kernel unites them.
type workspace struct {
	objects *memory
	tree    files
	dir     string // holds lower, upper, work and mnt
	layer   *upper.Layer
	view    *upper.View
}

// newWorkspace lays out f with an empty layer in a new directory below parent.
func newWorkspace(t testing.TB, parent string, f files) *workspace {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "ws")
	must(t, err)
	for _, d := range []string{"lower", "upper", "work", "mnt"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	f.checkout(t, filepath.Join(dir, "lower"))
	ws := &workspace{objects: newMemory(), tree: f, dir: dir}
	ws.open(t)
	return ws
}

// open gives ws a new Layer and View on what is on disk.
func (ws *workspace) open(t tb) {
	t.Helper()
	ws.close()
	layer, err := upper.Open(ws.path("upper"), upper.Trusted)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	ws.layer = layer
	ws.view = upper.NewView(ws.objects, ws.objects.tree(ws.tree), layer)
}

func (ws *workspace) close() {
	if ws.layer != nil {
		ws.layer.Close()
		ws.layer = nil
	}
}

func (ws *workspace) path(elem ...string) string {
	return filepath.Join(append([]string{ws.dir}, elem...)...)
}

// mounted runs fn while the kernel's overlay of ws is mounted at the path it is
// given.
func (ws *workspace) mounted(t tb, fn func(mnt string)) {
	t.Helper()
	mnt := ws.path("mnt")
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,xino=on,redirect_dir=on,metacopy=off,index=off",
		ws.path("lower"), ws.path("upper"), ws.path("work"))
	if err := unix.Mount("upper-test", mnt, "overlay", 0, opts); err != nil {
		t.Fatalf("mount: %v", err)
	}
	defer func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			_ = unix.Unmount(mnt, unix.MNT_DETACH)
			t.Fatalf("unmount: %v", err)
		}
	}()
	fn(mnt)
}

// needOverlay skips the test, or fails it where mounts are required, if this
// process cannot mount an overlay in the test's directory.
func needOverlay(t *testing.T) string {
	t.Helper()
	parent := t.TempDir()
	lower, up, work, mnt := filepath.Join(parent, "l"), filepath.Join(parent, "u"), filepath.Join(parent, "w"), filepath.Join(parent, "m")
	for _, d := range []string{lower, up, work, mnt} {
		must(t, os.Mkdir(d, 0o755))
	}
	err := unix.Mount("upper-test", mnt, "overlay", 0, "lowerdir="+lower+",upperdir="+up+",workdir="+work+",redirect_dir=on")
	if err == nil {
		err = unix.Unmount(mnt, 0)
	}
	if err != nil && os.Getenv("RELOFS_REQUIRE_FUSE") == "1" {
		t.Fatalf("RELOFS_REQUIRE_FUSE=1, but an overlay cannot be mounted: %v", err)
	}
	if err != nil {
		t.Skipf("needs to mount an overlay: %v", err)
	}
	return parent
}

// shown is a tree as somebody sees it: a line by path.
type shown map[string]string

func describe(kind upper.Kind, mode fs.FileMode, content string) string {
	switch kind {
	case upper.Dir:
		return fmt.Sprintf("dir %o", mode.Perm())
	case upper.File:
		return fmt.Sprintf("file %o %q", mode.Perm(), content)
	case upper.Symlink:
		return fmt.Sprintf("link %q", content)
	}
	return "special " + mode.String()
}

// onMount is what the kernel shows below root.
func onMount(t tb, root string) shown {
	t.Helper()
	s := shown{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		var kind upper.Kind
		var content string
		switch info.Mode().Type() {
		case 0:
			kind = upper.File
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
			if int64(len(content)) != info.Size() {
				return fmt.Errorf("%s: size %d, content %d", path, info.Size(), len(content))
			}
		case fs.ModeDir:
			kind = upper.Dir
		case fs.ModeSymlink:
			kind = upper.Symlink
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		default:
			kind = upper.Special
		}
		rel, err := filepath.Rel(root, path)
		s[rel] = describe(kind, info.Mode(), content)
		return err
	})
	if err != nil {
		t.Fatalf("walk the mount: %v", err)
	}
	return s
}

// inView is what the View shows; what its ways of asking say must agree.
func inView(t tb, v *upper.View) shown {
	t.Helper()
	s := shown{}
	root, err := v.Stat("")
	if err != nil {
		t.Fatalf("stat the root: %v", err)
	}
	s["."] = describe(root.Kind, root.Mode, "")
	var walk func(dir string)
	walk = func(dir string) {
		infos, err := v.ReadDir(dir)
		if err != nil {
			t.Fatalf("view: %v", err)
		}
		for _, info := range infos {
			stat, err := v.Stat(info.Path)
			if err != nil {
				t.Fatalf("listed, but: %v", err)
			}
			if stat != info {
				t.Fatalf("listed as %+v, stat says %+v", info, stat)
			}
			var content string
			switch info.Kind {
			case upper.File:
				r, opened, err := v.Open(info.Path)
				if err != nil {
					t.Fatalf("view: %v", err)
				}
				data, err := io.ReadAll(r)
				if err = errors.Join(err, r.Close()); err != nil {
					t.Fatalf("view: read %s: %v", info.Path, err)
				}
				if opened != info || int64(len(data)) != info.Size {
					t.Fatalf("%s: listed as %+v, opened as %+v, %d bytes", info.Path, info, opened, len(data))
				}
				content = string(data)
			case upper.Symlink:
				if content, err = v.Readlink(info.Path); err != nil {
					t.Fatalf("view: %v", err)
				}
				if int64(len(content)) != info.Size {
					t.Fatalf("%s: size %d, target %q", info.Path, info.Size, content)
				}
			}
			s[info.Path] = describe(info.Kind, info.Mode, content)
			if info.Kind == upper.Dir {
				walk(info.Path)
			}
		}
	}
	walk("")
	return s
}

// onDisk is the raw content of a directory, devices and marks included, for
// messages.
func onDisk(root string) string {
	var out string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		info, _ := os.Lstat(path)
		out += fmt.Sprintf("  %s %v", rel, info.Mode())
		for _, x := range []string{"opaque", "redirect", "whiteout"} {
			buf := make([]byte, 300)
			if n, err := unix.Lgetxattr(path, "trusted.overlay."+x, buf); err == nil {
				out += fmt.Sprintf(" %s=%q", x, buf[:n])
			}
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 && !info.IsDir() {
			out += fmt.Sprintf(" links=%d", st.Nlink)
		}
		out += "\n"
		return nil
	})
	return out
}
