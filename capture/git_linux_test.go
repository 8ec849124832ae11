package capture_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/upper"
)

// base has something of everything that the random edits can hit.
var base = files{
	"README": "hello\n", "run.sh": "#!/bin/sh\n", "link": "-> README", ".gitignore": "*.log\n/out/\n",
	"a/x": "ax", "a/y": "ay", "a/b/x": "abx", "a/b/c/y": "abcy", "a/b/c/z": "abcz",
	"d/x": "dx", "d/e/x": "dex", "d/e/.gitignore": "!keep.log\ntmp\n", "d/up": "-> e/x",
	"out/tracked": "in an ignored directory", "out/sub/tracked": "too", "old.log": "tracked though ignored",
}

// TestTreesAreGitsOwn edits a mounted workspace at random and compares each
// capture with what Git makes of the same directory.
func TestTreesAreGitsOwn(t *testing.T) {
	seeds, steps := 2, 25
	if testing.Short() {
		seeds, steps = 1, 15
	}
	first := uint64(1)
	if s := os.Getenv("RELOFS_TEST_SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
	}
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := newWorkspace(t, base)
			e := &editor{w: w, rnd: rand.New(rand.NewPCG(seed, 6))}
			for step := range steps {
				var log []string
				for edits := 1 + e.rnd.IntN(6); edits > 0; edits-- {
					log = append(log, e.edit())
					if e.movedDir {
						break // before the rules change for what it holds
					}
				}
				want := w.asGit()
				got := w.capture()
				if got.Tree != want {
					t.Fatalf("step %d: after\n  %s\nthe trees differ (< Git, > Capture):\n%s\nexcluded %q, unsettled %q", step, strings.Join(log, "\n  "),
						w.git("diff-tree", "-r", want.String(), got.Tree.String()), excluded(got), got.Unsettled)
				}
				if again := w.dryCapture(); again.Tree != want {
					t.Fatalf("step %d: a second capture gives another tree", step)
				}
				if e.rnd.IntN(15) == 0 {
					w.settle()
				}
			}
			w.git("fsck", "--strict", "--no-dangling")
		})
	}
}

// settle lays the last revision out as a new lower, under an upper that keeps
// what is in no revision only by accident: none of it.
func (w *workspace) settle() {
	w.t.Helper()
	w.unmount()
	must(w.t, w.layer.Close())
	for _, d := range []string{"lower", "upper", "work"} {
		must(w.t, os.RemoveAll(w.path(d)))
		must(w.t, os.Mkdir(w.path(d), 0o755))
	}
	w.git("read-tree", w.previous.String())
	w.git("--work-tree="+w.path("lower"), "checkout-index", "-a", "-f")
	w.lower = w.previous
	var err error
	w.layer, err = upper.Open(w.path("upper"), upper.Trusted)
	must(w.t, err)
	w.mount()
}

// editor edits a workspace through its mount.
type editor struct {
	w   *workspace
	rnd *rand.Rand
	// movedDir: the last edit moved a directory. Capture keeps what that brings
	// along, ignored or not, where Git does not; so nothing in it is ignored.
	movedDir bool
}

var (
	names    = []string{"a", "b", "c", "d", "e", "x", "y", "new", "out", "tmp", "sub", "run.sh", "keep.log", "old.log", "k.log", "link", "README"}
	contents = []string{"", "1", "22", "hello\n", "abx", "ay", strings.Repeat("long ", 3000)}
)

func (e *editor) pick(from []string) string { return from[e.rnd.IntN(len(from))] }

// place returns a path: one that exists, or one with a new name.
func (e *editor) place(existing bool) string {
	dir := ""
	for {
		entries, _ := os.ReadDir(e.w.path("mnt", dir))
		if existing && len(entries) > 0 {
			d := entries[e.rnd.IntN(len(entries))]
			path := filepath.Join(dir, d.Name())
			if !d.IsDir() || e.rnd.IntN(3) == 0 {
				return path
			}
			dir = path
			continue
		}
		name := e.pick(names)
		if info, err := os.Lstat(e.w.path("mnt", dir, name)); err == nil && info.IsDir() && e.rnd.IntN(3) > 0 {
			dir = filepath.Join(dir, name)
			continue
		}
		return filepath.Join(dir, name)
	}
}

// edit makes one edit, which may fail as it would for a tool, and describes it.
func (e *editor) edit() string {
	path := e.place(e.rnd.IntN(2) == 0)
	full := e.w.path("mnt", path)
	var what string
	var err error
	e.movedDir = false
	switch e.rnd.IntN(13) {
	case 0, 1, 2:
		what = "write"
		err = os.WriteFile(full, []byte(e.pick(contents)), 0o644)
	case 3:
		what = "append"
		var f *os.File
		if f, err = os.OpenFile(full, os.O_APPEND|os.O_WRONLY, 0); err == nil {
			_, err = f.WriteString("more")
			f.Close()
		}
	case 4:
		what = "remove"
		err = os.Remove(full)
	case 5:
		what = "remove all"
		if e.rnd.IntN(2) == 0 {
			err = os.RemoveAll(full)
		}
	case 6:
		what = "mkdir"
		err = os.Mkdir(full, 0o755)
	case 7:
		to := e.place(false)
		what = "rename to " + to
		if err = os.Rename(full, e.w.path("mnt", to)); err == nil {
			e.movedDir = e.w.isDir(to)
			if e.movedDir && e.w.ignoresSomethingIn(to) {
				e.w.rename(to, path)
				what += " and back"
			}
		}
	case 8:
		what = "chmod"
		err = os.Chmod(full, []fs.FileMode{0o755, 0o644, 0o700, 0o744}[e.rnd.IntN(4)])
	case 9:
		target := e.pick([]string{"x", "link", "a/b", "./new/x", "a"})
		what = "link to " + target
		err = os.Symlink(target, full)
	case 10:
		to := e.place(false)
		what = "hard link at " + to
		if info, lerr := os.Lstat(full); lerr == nil && info.Mode().IsRegular() {
			err = os.Link(full, e.w.path("mnt", to))
		}
	case 11:
		what = "touch"
		if info, lerr := os.Lstat(full); lerr == nil && info.Mode().IsRegular() {
			err = os.Chtimes(full, time.Now(), time.Unix(1e9, 0))
		}
	case 12:
		rules := e.pick([]string{"*.log\n", "x\n!a/x\n", "/out\nsub/\n", "", "*\n!*/\n!y\n", "tmp\nnew/*\n!new/y\n"})
		what = fmt.Sprintf("rules %q", rules)
		dir := filepath.Dir(path)
		err = os.WriteFile(e.w.path("mnt", dir, ".gitignore"), []byte(rules), 0o644)
	}
	if err != nil {
		return fmt.Sprintf("%s %s (%v)", path, what, err)
	}
	return path + " " + what
}

func (w *workspace) isDir(path string) bool {
	info, err := os.Lstat(w.path("mnt", path))
	return err == nil && info.IsDir()
}

// ignoresSomethingIn reports whether Git's rules exclude anything below dir.
func (w *workspace) ignoresSomethingIn(dir string) bool {
	w.t.Helper()
	w.git("read-tree", "--empty")
	return w.git("--work-tree="+w.path("mnt"), "--literal-pathspecs", "ls-files", "--others", "--ignored", "--exclude-standard", "--", dir) != ""
}
