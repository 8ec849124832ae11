package upper_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/upper"
)

// disk makes things in a layer the way nobody's View or mount would.
type disk struct {
	t    testing.TB
	root string
	ns   upper.Namespace
}

func (d disk) at(path string) string { return filepath.Join(d.root, path) }

func (d disk) dir(path string)           { must(d.t, os.MkdirAll(d.at(path), 0o755)) }
func (d disk) file(path, content string) { must(d.t, os.WriteFile(d.at(path), []byte(content), 0o644)) }
func (d disk) device(path string, mode uint32, dev uint64) {
	must(d.t, unix.Mknod(d.at(path), mode, int(dev)))
}
func (d disk) mark(path, mark, value string) {
	d.t.Helper()
	must(d.t, unix.Lsetxattr(d.at(path), string(d.ns)+".overlay."+mark, []byte(value), 0))
}

// redirected makes a directory with a redirect, and a file in it.
func (d disk) redirected(path, to string) {
	d.dir(path)
	d.file(path+"/own", "own")
	d.mark(path, "redirect", to)
}

// TestMarksMeanWhatTheyMeanToTheKernel makes layers by hand, sound and absurd,
// and asks the kernel and the View the same questions about them.
func TestMarksMeanWhatTheyMeanToTheKernel(t *testing.T) {
	parent := needOverlay(t)
	tree := files{"d/x": "x", "d/sub/y": "y", "e/z": "z", "e/deep/w": "w", "f": "f", "g": "gitlink", "l": "link:e"}
	redirect := func(to string) func(disk) { return func(d disk) { d.redirected("d", to) } }
	cases := []struct {
		name string
		make func(disk)
	}{
		{"nothing", func(disk) {}},
		{"merged directory", func(d disk) { d.dir("d"); d.file("d/new", "") }},
		{"opaque y", func(d disk) { d.dir("d"); d.mark("d", "opaque", "y") }},
		{"opaque yes", func(d disk) { d.dir("d"); d.mark("d", "opaque", "yes") }},
		{"opaque Y", func(d disk) { d.dir("d"); d.mark("d", "opaque", "Y") }},
		{"opaque x", func(d disk) { d.dir("d"); d.mark("d", "opaque", "x") }},
		{"opaque, empty", func(d disk) { d.dir("d"); d.mark("d", "opaque", "") }},
		{"opaque of 3,000 bytes", func(d disk) { d.dir("d"); d.mark("d", "opaque", strings.Repeat("y", 3000)) }},
		{"opaque root", func(d disk) { d.mark(".", "opaque", "y") }},
		{"redirected root", func(d disk) { d.mark(".", "redirect", "/e") }},
		{"opaque file", func(d disk) { d.file("f", "new"); d.mark("f", "opaque", "y") }},
		{"opaque with a bad redirect", func(d disk) { d.dir("d"); d.mark("d", "opaque", "y"); d.mark("d", "redirect", "..") }},
		{"opaque inside merged", func(d disk) { d.dir("d/sub"); d.mark("d/sub", "opaque", "y") }},

		{"whiteout of a file", func(d disk) { d.device("f", unix.S_IFCHR, 0) }},
		{"whiteout of a directory", func(d disk) { d.device("d", unix.S_IFCHR, 0) }},
		{"whiteout of nothing", func(d disk) { d.device("new", unix.S_IFCHR, 0) }},
		{"whiteout in a new directory", func(d disk) { d.dir("new"); d.device("new/x", unix.S_IFCHR, 0) }},
		{"character device 0/1", func(d disk) { d.device("f", unix.S_IFCHR, unix.Mkdev(0, 1)) }},
		{"block device 0/0", func(d disk) { d.device("f", unix.S_IFBLK, 0) }},
		{"xattr whiteout", func(d disk) { d.file("f", ""); d.mark("f", "whiteout", "y") }},
		{"xattr whiteout, empty value", func(d disk) { d.file("f", ""); d.mark("f", "whiteout", "") }},
		{"xattr whiteout in an x directory", func(d disk) {
			d.dir("d")
			d.mark("d", "opaque", "x")
			d.file("d/x", "")
			d.mark("d/x", "whiteout", "y")
		}},
		{"xattr whiteout with content", func(d disk) { d.file("f", "more"); d.mark("f", "whiteout", "y") }},
		{"xattr whiteout on a directory", func(d disk) { d.dir("d"); d.mark("d", "whiteout", "y") }},

		{"redirect, absolute", redirect("/e")},
		{"redirect, absolute and deep", redirect("/e/deep")},
		{"redirect, relative", redirect("e")},
		{"redirect to itself", redirect("/d")},
		{"redirect to a gitlink", redirect("/g")},
		{"redirect to a file", redirect("/f")},
		{"redirect to a link", redirect("/l")},
		{"redirect through a file", redirect("/f/x")},
		{"redirect through a link", redirect("/l/deep")},
		{"redirect to nothing", redirect("/missing")},
		{"redirect through nothing", redirect("/missing/e")},
		{"redirect to a name of 300 bytes", redirect("/" + strings.Repeat("n", 300))},
		{"redirect of 3,000 bytes", redirect(strings.Repeat("/e", 1500))},
		{"redirect, empty", redirect("")},
		{"redirect /", redirect("/")},
		{"redirect //e", redirect("//e")},
		{"redirect /e/", redirect("/e/")},
		{"redirect /e//deep", redirect("/e//deep")},
		{"redirect e/deep", redirect("e/deep")},
		{"redirect .", redirect(".")},
		{"redirect ..", redirect("..")},
		{"redirect /..", redirect("/..")},
		{"redirect /../..", redirect("/../..")},
		{"redirect /e/../f", redirect("/e/../f")},
		{"redirect /e/.", redirect("/e/.")},
		{"redirect in a new directory, absolute", func(d disk) { d.redirected("new/d", "/e") }},
		{"redirect in a new directory, relative", func(d disk) { d.redirected("new/d", "e") }},
		{"redirect in an opaque directory", func(d disk) { d.redirected("d/sub", "/e"); d.mark("d", "opaque", "y") }},
		{"redirect below a redirect, relative", func(d disk) { d.redirected("d", "/e"); d.redirected("d/sub", "deep") }},
		{"redirect below a redirect, absolute", func(d disk) { d.redirected("d", "/e"); d.redirected("d/sub", "/d/sub") }},
		{"redirect to its own parent", func(d disk) { d.redirected("d/sub", "/d") }},
		{"redirects in a circle", func(d disk) { d.redirected("d", "/e"); d.redirected("e", "/d"); d.redirected("d/deep", "/e") }},
		{"two directories on one", func(d disk) { d.redirected("new", "/d"); d.redirected("other", "/d") }},
		{"redirect on a file", func(d disk) { d.file("f", "new"); d.mark("f", "redirect", "/e/z") }},

		{"metacopy", func(d disk) { d.file("f", "1"); d.mark("f", "metacopy", "") }},
		{"metacopy of another file", func(d disk) {
			d.file("new", "1")
			d.mark("new", "metacopy", "")
			d.mark("new", "redirect", "/f")
		}},
		{"metacopy of nothing", func(d disk) { d.file("new", "1"); d.mark("new", "metacopy", "") }},
		{"metacopy on a directory", func(d disk) { d.dir("d"); d.mark("d", "metacopy", "") }},

		{"marks of no meaning", func(d disk) {
			d.dir("d")
			for _, m := range []string{"impure", "nlink", "uuid", "upper", "protattr", "unheard-of"} {
				d.mark("d", m, "?")
			}
		}},
	}
	questions := []string{
		"d", "d/x", "d/own", "d/new", "d/z", "d/w", "d/y", "d/deep", "d/deep/w", "d/deep/own", "d/deep/z", "d/sub", "d/sub/y", "d/sub/w", "d/sub/own", "d/sub/x", "d/sub/sub", "d/sub/sub/y", "d/sub/sub/x",
		"e", "e/z", "e/x", "e/own", "e/deep", "e/deep/w", "e/sub/y", "f", "f/x", "g", "g/x", "l", "l/z",
		"new", "new/x", "new/own", "new/sub", "new/d", "new/d/z", "new/d/own", "new/d/deep/w", "other", "other/x", "other/sub/y",
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ws := newWorkspace(t, parent, tree)
			defer ws.close()
			c.make(disk{t, ws.path("upper"), upper.Trusted})
			ws.mounted(t, func(mnt string) {
				refused := "-"
				for _, q := range questions {
					if strings.HasPrefix(q, "l/") || strings.HasPrefix(q, refused+"/") {
						continue // the kernel follows the link; neither gets there
					}
					info, err := os.Lstat(filepath.Join(mnt, q))
					if errors.Is(err, unix.ESTALE) {
						continue // it has shown the same lower directory elsewhere
					}
					kernel := answer(err)
					if err == nil {
						kernel = info.Mode().Type().String()
					}
					seen, err := ws.view.Stat(q)
					view := answer(err)
					if err == nil {
						view = seen.Mode.Type().String()
					}
					if kernel == "error" && view == "error" {
						refused = q
					}
					if kernel != view {
						t.Errorf("%s: the kernel says %s, the view %s (%v)", q, kernel, view, err)
					}
				}
			})
		})
	}
}

// answer sorts errors into "nothing there" and "cannot say", where the kernel's
// errnos and this package's errors differ in words.
func answer(err error) string {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG) {
		return "nothing"
	}
	return "error"
}
