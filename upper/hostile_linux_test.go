package upper_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// unprivileged returns a workspace whose marks anybody may set, and what makes
// things in its layer by hand. It mounts nothing.
func unprivileged(t *testing.T, f files) (*workspace, disk) {
	t.Helper()
	dir := t.TempDir()
	ws := &workspace{objects: newMemory(), tree: f, dir: dir}
	must(t, os.Mkdir(ws.path("upper"), 0o755))
	if err := unix.Setxattr(ws.path("upper"), "user.overlay.test", nil, 0); err != nil {
		t.Skipf("%s has no user xattrs: %v", dir, err)
	}
	layer, err := upper.Open(ws.path("upper"), upper.User)
	must(t, err)
	ws.layer = layer
	ws.view = upper.NewView(ws.objects, ws.objects.tree(f), layer)
	t.Cleanup(ws.close)
	return ws, disk{t, ws.path("upper"), upper.User}
}

func (ws *workspace) want(t *testing.T, path, content string) {
	t.Helper()
	r, _, err := ws.view.Open(path)
	must(t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	must(t, err)
	if string(data) != content {
		t.Errorf("%s is %q, want %q", path, data, content)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func TestBadRedirectIsRefusedWhereItIsAndCanBeRemoved(t *testing.T) {
	for _, redirect := range []string{"", "/", "..", "/../..", "/a/../b", "a/b", "/a//b", "/a/", "\x00", "/a\x00b", "a\x00"} {
		t.Run(redirect, func(t *testing.T) {
			ws, d := unprivileged(t, files{"a/x": "x", "d/y": "y", "z": "z"})
			d.redirected("d", redirect)
			_, err := ws.view.Stat("d")
			wantErr(t, err, upper.ErrBadMark)
			_, err = ws.view.ReadDir("d")
			wantErr(t, err, upper.ErrBadMark)
			_, _, err = ws.view.Open("d/own")
			wantErr(t, err, upper.ErrBadMark)
			_, err = ws.view.ReadDir("")
			wantErr(t, err, upper.ErrBadMark)
			_, err = ws.layer.ReadDir("")
			wantErr(t, err, upper.ErrBadMark)
			var pe *fs.PathError
			if !errors.As(err, &pe) || pe.Path != "d" {
				t.Errorf("the error does not name the directory: %v", err)
			}
			wantErr(t, ws.view.WriteFile("d/new", strings.NewReader(""), 0o644), upper.ErrBadMark)
			wantErr(t, ws.view.Rename("d", "e"), upper.ErrBadMark)
			wantErr(t, ws.view.Rename("a", "d"), upper.ErrBadMark)
			wantErr(t, ws.view.Remove("d"), upper.ErrBadMark)
			ws.want(t, "z", "z")

			must(t, ws.view.RemoveAll("d"))
			infos, err := ws.view.ReadDir("")
			must(t, err)
			if len(infos) != 2 {
				t.Errorf("after the removal: %+v", infos)
			}
		})
	}
}

// A redirect is looked up in the tree alone, whatever the file system has.
func TestRedirectNeverLeavesTheTree(t *testing.T) {
	ws, d := unprivileged(t, files{"d/y": "y", "link": "link:/etc"})
	for path, to := range map[string]string{"etc": "/etc", "through": "/link/ssh", "link2": "/link", "self": "/proc/self"} {
		d.redirected(path, to)
		infos, err := ws.view.ReadDir(path)
		must(t, err)
		if len(infos) != 1 || infos[0].Path != path+"/own" {
			t.Errorf("redirect %s shows %+v", to, infos)
		}
	}
}

func TestRedirectsInACircleEnd(t *testing.T) {
	ws, d := unprivileged(t, files{"a/b/c/x": "x"})
	d.redirected("a", "/a/b")
	d.redirected("a/c", "/a")
	d.redirected("a/c/b", "/a/b/c")
	d.redirected("b", "/a")
	s := inView(t, ws.view)
	if len(s) > 40 || !strings.HasPrefix(s["a/c/b/x"], "file") {
		t.Errorf("circle shows %v", s)
	}
}

// What is no regular file is not opened: a FIFO would block, a device act.
func TestOpenFileTouchesOnlyRegularFiles(t *testing.T) {
	ws, d := unprivileged(t, files{"white": "w"})
	must(t, unix.Mkfifo(d.at("fifo"), 0o644))
	must(t, os.Symlink("/etc/passwd", d.at("link")))
	must(t, unix.Mknod(d.at("white"), unix.S_IFCHR, 0))
	d.dir("dir")
	for path, want := range map[string]error{"fifo": syscall.ENXIO, "link": syscall.ELOOP, "dir": syscall.EISDIR, "white": syscall.ENOENT, "none": syscall.ENOENT, "link/x": syscall.ENOTDIR, "../upper": syscall.EINVAL, "/etc/passwd": syscall.EINVAL, "dir//x": syscall.EINVAL, "": syscall.EISDIR} {
		_, _, err := ws.layer.OpenFile(path)
		if !errors.Is(err, want) && !(want == syscall.ENOTDIR && errors.Is(err, syscall.ELOOP)) {
			t.Errorf("Layer.OpenFile(%q): %v, want %v", path, err, want)
		}
		if _, _, err = ws.view.Open(path); !errors.Is(err, want) {
			t.Errorf("View.Open(%q): %v, want %v", path, err, want)
		}
	}
}

// While a process exchanges a directory with a link to the outside, nothing of
// the outside is read, and nothing there is written or removed.
func TestLinkSwappedInForADirectoryIsNeverFollowed(t *testing.T) {
	ws, d := unprivileged(t, files{"d/x": "inside", "e": "e"})
	outside := t.TempDir()
	secret := disk{t, outside, upper.User}
	secret.file("x", "outside")
	secret.file("only outside", "")
	secret.dir("sub")
	d.dir("d/sub")
	d.file("d/x", "inside")
	must(t, os.Symlink(outside, d.at("swap")))

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, d.at("d"), unix.AT_FDCWD, d.at("swap"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	read := func(r io.ReadCloser) {
		data, _ := io.ReadAll(r)
		r.Close()
		if string(data) == "outside" {
			t.Error("read through the link")
		}
	}
	// The errors are those of a race lost.
	for range 300 {
		if f, _, err := ws.layer.OpenFile("d/x"); err == nil {
			read(f)
		}
		if r, _, err := ws.view.Open("d/x"); err == nil {
			read(r)
		}
		if entries, err := ws.layer.ReadDir("d"); err == nil {
			for _, e := range entries {
				if e.Name == "only outside" {
					t.Error("listed through the link")
				}
			}
		}
		_, _ = ws.view.ReadDir("d")
		_, _ = ws.layer.Lookup("d/sub")
		_ = ws.view.WriteFile("d/x", strings.NewReader("inside"), 0o644)
		_ = ws.view.Chmod("d/sub", 0o700)
		_ = ws.view.Mkdir("d/new")
		_ = ws.view.RemoveAll("d/sub")
		_ = ws.view.Rename("d/new", "d/sub")
		_ = ws.layer.Sync()
	}
	close(stop)
	<-stopped
	left, err := os.ReadDir(outside)
	must(t, err)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"only outside", "sub", "x"}) {
		t.Errorf("outside holds %v", names)
	}
	data, err := os.ReadFile(filepath.Join(outside, "x"))
	must(t, err)
	info, err := os.Stat(filepath.Join(outside, "sub"))
	must(t, err)
	if string(data) != "outside" || info.Mode().Perm() != 0o755 {
		t.Errorf("outside was changed: %q, %v", data, info.Mode())
	}
}

// The kernel lets a process make paths no system call takes whole.
func TestLayerDeeperThanAPathCanBeLong(t *testing.T) {
	ws, _ := unprivileged(t, files{"x": "x"})
	name := strings.Repeat("n", 200)
	path := name
	for range 30 {
		must(t, ws.view.Mkdir(path))
		path += "/" + name
	}
	must(t, ws.view.WriteFile(path, strings.NewReader("deep"), 0o644))
	must(t, ws.layer.Sync())
	ws.want(t, path, "deep")
	f, _, err := ws.layer.OpenFile(path)
	must(t, err)
	f.Close()
	dir := path[:len(path)-len(name)-1]
	entries, err := ws.layer.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 || entries[0].Name != name {
		t.Errorf("deep listing: %+v", entries)
	}
	must(t, ws.view.RemoveAll(name))
	if s := inView(t, ws.view); len(s) != 2 {
		t.Errorf("after the removal: %v", s)
	}
	if left, err := os.ReadDir(ws.path("upper.stage")); err == nil && len(left) > 0 {
		t.Errorf("%d entries left in the staging directory", len(left))
	}
}

func TestMetacopyIsRefused(t *testing.T) {
	ws, d := unprivileged(t, files{"f": "content"})
	d.file("f", "1234567")
	d.mark("f", "metacopy", "")
	_, err := ws.view.Stat("f")
	wantErr(t, err, upper.ErrMetacopy)
	_, _, err = ws.view.Open("f")
	wantErr(t, err, upper.ErrMetacopy)
	_, _, err = ws.layer.OpenFile("f")
	wantErr(t, err, upper.ErrMetacopy)
	must(t, ws.view.WriteFile("f", strings.NewReader("new"), 0o644))
	ws.want(t, "f", "new")
}

// Missing and damaged objects are an error of the path they are at, and no
// obstacle to removing it.
func TestMissingObjectsFailOnlyTheirPath(t *testing.T) {
	ws, _ := unprivileged(t, nil)
	m := ws.objects
	root := m.nextID()
	m.trees[root] = []gitstore.TreeEntry{
		{Name: "dir", Mode: gitstore.ModeTree, OID: gitstore.OID{1}},
		{Name: "file", Mode: gitstore.ModeFile, OID: gitstore.OID{2}},
		{Name: "link", Mode: gitstore.ModeSymlink, OID: gitstore.OID{3}},
		{Name: "good", Mode: gitstore.ModeFile, OID: m.blob("good")},
		{Name: "long", Mode: gitstore.ModeSymlink, OID: m.blob(strings.Repeat("l", 5000))},
	}
	v := upper.NewView(m, root, ws.layer)
	infos, err := v.ReadDir("")
	must(t, err)
	if len(infos) != 5 || infos[1].Size != -1 || infos[2].Size != 4 {
		t.Errorf("listing: %+v", infos)
	}
	_, err = v.ReadDir("dir")
	wantErr(t, err, gitstore.ErrNotFound)
	_, err = v.Stat("file")
	wantErr(t, err, gitstore.ErrNotFound)
	_, _, err = v.Open("file")
	wantErr(t, err, gitstore.ErrNotFound)
	_, err = v.Readlink("link")
	wantErr(t, err, gitstore.ErrNotFound)
	_, err = v.Readlink("long")
	wantErr(t, err, syscall.ENAMETOOLONG)
	wantErr(t, v.Chmod("file", 0o755), gitstore.ErrNotFound)
	must(t, v.Rename("dir", "moved"))
	for _, path := range []string{"moved", "file", "link", "long"} {
		must(t, v.RemoveAll(path))
	}
	if s := inView(t, v); len(s) != 2 {
		t.Errorf("left: %v", s)
	}
}
