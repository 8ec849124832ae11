//go:build linux

package mountmgr

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
)

func TestRefusedMountPoints(t *testing.T) {
	w := newWorld(t)
	w.mount(w.spec("alice"))
	d := w.dir
	at := func(name string) string { return filepath.Join(d, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(at("full/sub"), 0o700))
	must(os.Mkdir(at("empty"), 0o700))
	must(os.Mkdir(at("tmpfs"), 0o700))
	must(unix.Mount("t", at("tmpfs"), "tmpfs", 0, ""))
	t.Cleanup(func() { unix.Unmount(at("tmpfs"), unix.MNT_DETACH) })
	writeFile(t, at("file"), "")
	must(os.Symlink(at("empty"), at("link")))
	must(os.Symlink(at("mounts/alice"), at("link-to-mount")))
	must(os.Symlink(at("repo/.git"), at("link-to-git")))
	must(os.Symlink("loop", at("loop")))

	for _, c := range []struct {
		name, target string
		code         errcode.Code
		says         string
	}{
		{"relative", "mounts/x", errcode.MountPointBad, "not an absolute path"},
		{"empty path", "", errcode.MountPointBad, "not an absolute path"},
		{"NUL", at("a\x00b"), errcode.MountPointBad, "not an absolute path"},
		{"not empty", at("full"), errcode.MountPointNotEmpty, `"sub"`},
		{"file", at("file"), errcode.MountPointBad, "is not a directory"},
		{"below a file", at("file/x"), errcode.MountPointBad, "is not a directory"},
		{"symlink", at("link"), errcode.MountPointBad, "is a symbolic link"},
		{"symlink with a slash", d + "/link/", errcode.MountPointBad, "is a symbolic link"},
		{"loop", at("loop/x"), errcode.MountPointBad, "too many levels"},
		{"a workspace's", at("mounts/alice"), errcode.MountPointInUse, "relofs:alice"},
		{"inside a workspace", at("mounts/alice/dir"), errcode.MountPointBad, "inside a mount of relofs"},
		{"new inside a workspace", at("mounts/alice/new/deep"), errcode.MountPointBad, "inside a mount of relofs"},
		{"inside a workspace by a link", at("link-to-mount/dir"), errcode.MountPointBad, "inside a mount of relofs"},
		{"inside a workspace by dots", d + "/empty/../mounts/alice/dir", errcode.MountPointBad, "inside a mount of relofs"},
		{"the lowers' directory", at("lowers/x"), errcode.MountPointBad, "lower mounts"},
		{"inside a lower", filepath.Join(w.m.instance.dir, "1/x"), errcode.MountPointBad, "inside a mount of relofs"},
		{"foreign mount", at("tmpfs"), errcode.MountPointInUse, "tmpfs"},
		{".git", at("repo/.git/x"), errcode.MountPointBad, "Git directory"},
		{"relo directory", at("repo/.git/relo/x"), errcode.MountPointBad, "Git directory"},
		{".git by a link", at("link-to-git/x"), errcode.MountPointBad, "Git directory"},
		{"another .git", at("empty/.GIT/x"), errcode.MountPointBad, "inside a .git"},
		{"dots after nothing", d + "/nothing/../x", errcode.MountPointBad, "'..'"},
		{"proc", "/proc/x", errcode.MountPointBad, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := w.spec("bob")
			s.Target = c.target
			err := w.m.Mount(context.Background(), s)
			wantCode(t, err, c.code)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
	for _, name := range []string{"empty/.GIT", "nothing", "x", "mounts/bob"} {
		absent(t, at(name))
	}
	if got := w.m.Mounts(); len(got) != 1 {
		t.Errorf("Mounts() = %+v", got)
	}
}

func TestMountPointBelowALinkIsResolved(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(w.dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := w.spec("alice")
	s.Target = filepath.Join(w.dir, "link/ws")
	w.mount(s)
	if got := w.m.Mounts()[0].Target; got != filepath.Join(w.dir, "real/ws") {
		t.Errorf("mounted at %s", got)
	}
	w.unmount(s.Target)
	absent(t, filepath.Join(w.dir, "real/ws"))
}
