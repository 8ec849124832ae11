package capture_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/capture"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// workspace is a repository, a checkout of a tree as lower, and the kernel's
// overlay of an upper on it.
type workspace struct {
	t     testing.TB
	dir   string // holds repo, lower, upper, work, mnt and index
	store *gitstore.Store
	layer *upper.Layer

	lower, previous gitstore.OID
	head            gitstore.OID // the commit of previous, once published
	rules           capture.Rules
	cache           *capture.StatCache
}

// files are a checkout's: content by path; "-> x" is a link to x, and a content
// that begins with "#!" is executable.
type files map[string]string

// newWorkspace commits f and mounts a workspace on it. Without the right to
// mount the test is skipped, or fails where RELOFS_REQUIRE_FUSE=1.
func newWorkspace(t testing.TB, f files) *workspace {
	t.Helper()
	// Not t.TempDir: the test's name is in it, and a comma ends a mount option.
	dir, err := os.MkdirTemp("", "capture")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &workspace{t: t, dir: dir, cache: capture.NewStatCache()}
	for _, d := range []string{"lower", "upper", "work", "mnt"} {
		must(t, os.Mkdir(w.path(d), 0o755))
	}
	for path, content := range f {
		w.put("lower", path, content)
	}
	w.git("init", "-q", "--bare", w.path("repo"))
	w.git("config", "core.bare", "false")
	w.git("config", "core.excludesFile", os.DevNull)
	w.git("config", "user.name", "T")
	w.git("config", "user.email", "t@example.org")
	w.git("--work-tree="+w.path("lower"), "add", "-A", "-f", ".")
	w.lower = oid(t, w.git("write-tree"))
	w.previous = w.lower
	w.head = oid(t, w.git("commit-tree", "-m", "base", w.lower.String()))
	w.git("update-ref", "refs/heads/main", w.head.String())

	w.store, err = gitstore.Open(w.path("repo"))
	must(t, err)
	w.layer, err = upper.Open(w.path("upper"), upper.Trusted)
	must(t, err)
	w.mount()
	t.Cleanup(func() {
		w.unmount()
		w.layer.Close()
		w.store.Close()
	})
	return w
}

func (w *workspace) mount() {
	w.t.Helper()
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,xino=on,redirect_dir=on,metacopy=off,index=off",
		w.path("lower"), w.path("upper"), w.path("work"))
	err := unix.Mount("capture-test", w.path("mnt"), "overlay", 0, opts)
	if err == nil {
		return
	}
	if os.Getenv("RELOFS_REQUIRE_FUSE") == "1" {
		w.t.Fatalf("mount: %v", err)
	}
	w.t.Skipf("cannot mount an overlay: %v", err)
}

func (w *workspace) unmount() { _ = unix.Unmount(w.path("mnt"), 0) }

func (w *workspace) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

func (w *workspace) put(under, path, content string) {
	w.t.Helper()
	full := w.path(under, path)
	must(w.t, os.MkdirAll(filepath.Dir(full), 0o755))
	if target, ok := strings.CutPrefix(content, "-> "); ok {
		must(w.t, os.Symlink(target, full))
		return
	}
	mode := fs.FileMode(0o644)
	if strings.HasPrefix(content, "#!") {
		mode = 0o755
	}
	must(w.t, os.WriteFile(full, []byte(content), mode))
}

// write, remove and so on act through the mount, as tools do.
func (w *workspace) write(path, content string) { w.t.Helper(); w.put("mnt", path, content) }
func (w *workspace) mkdir(path string) {
	w.t.Helper()
	must(w.t, os.MkdirAll(w.path("mnt", path), 0o755))
}
func (w *workspace) remove(path string) { w.t.Helper(); must(w.t, os.RemoveAll(w.path("mnt", path))) }
func (w *workspace) rename(from, to string) {
	w.t.Helper()
	must(w.t, os.Rename(w.path("mnt", from), w.path("mnt", to)))
}

// git runs Git on the repository with an index of the test's own.
func (w *workspace) git(args ...string) string {
	w.t.Helper()
	return w.gitInput("", args...)
}

func (w *workspace) gitInput(stdin string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") }),
		"GIT_DIR="+w.path("repo"), "GIT_INDEX_FILE="+w.path("index"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C")
	cmd.Dir = w.dir
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("git %q: %v: %s", args, err, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

func (w *workspace) input() capture.Input {
	return capture.Input{
		Store: w.store, Lower: w.lower, Previous: w.previous,
		Upper: w.layer, Rules: w.rules, Cache: w.cache,
	}
}

// capture captures and publishes.
func (w *workspace) capture() capture.Result {
	w.t.Helper()
	batch := w.store.NewBatch()
	r, err := capture.Capture(context.Background(), w.input(), batch)
	if err != nil {
		batch.Discard()
		w.t.Fatalf("Capture: %v", err)
	}
	w.publish(batch, r.Tree)
	return r
}

// dryCapture captures and publishes nothing.
func (w *workspace) dryCapture() capture.Result {
	w.t.Helper()
	batch := w.store.NewBatch()
	defer batch.Discard()
	r, err := capture.Capture(context.Background(), w.input(), batch)
	if err != nil {
		w.t.Fatalf("Capture: %v", err)
	}
	return r
}

func (w *workspace) publish(batch *gitstore.Batch, tree gitstore.OID) {
	w.t.Helper()
	who := gitstore.Signature{Name: "T", Email: "t@example.org", When: time.Unix(1e9, 0)}
	commit, err := batch.Commit(&gitstore.Commit{Tree: tree, Parents: []gitstore.OID{w.head}, Author: who, Committer: who, Message: "x\n"})
	must(w.t, err)
	must(w.t, batch.Publish(gitstore.RefUpdate{Name: "refs/heads/main", Old: w.head, New: commit}))
	w.previous, w.head = tree, commit
}

// asGit returns the tree that `git add -A` makes of what the mount shows, where
// tracked is what the lower or the previous revision has.
func (w *workspace) asGit() gitstore.OID {
	w.t.Helper()
	w.git("read-tree", w.previous.String())
	var extra strings.Builder
	for _, path := range strings.Split(w.git("diff-tree", "-r", "-z", "--name-only", "--diff-filter=A", w.previous.String(), w.lower.String()), "\x00") {
		info, err := os.Lstat(w.path("mnt", path))
		if path != "" && err == nil && !info.IsDir() && !w.throughLink(path) {
			extra.WriteString(path + "\x00")
		}
	}
	tree := "--work-tree=" + w.path("mnt")
	if extra.Len() > 0 {
		w.gitInput(extra.String(), tree, "--literal-pathspecs", "add", "-f", "--pathspec-from-file=-", "--pathspec-file-nul")
	}
	w.git(tree, "add", "-A", ".")
	return oid(w.t, w.git("write-tree"))
}

// throughLink reports whether a directory of path is a link.
func (w *workspace) throughLink(path string) bool {
	for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(w.path("mnt", dir)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// list returns "mode path" of everything in a tree.
func (w *workspace) list(tree gitstore.OID) []string {
	w.t.Helper()
	var out []string
	for _, line := range strings.Split(w.git("ls-tree", "-r", "--full-tree", tree.String()), "\n") {
		if line != "" {
			head, path, _ := strings.Cut(line, "\t")
			mode, _, _ := strings.Cut(head, " ")
			out = append(out, mode+" "+path)
		}
	}
	return out
}

// content is what a revision has at path.
func (w *workspace) content(tree gitstore.OID, path string) string {
	w.t.Helper()
	return w.git("cat-file", "blob", tree.String()+":"+path)
}

// excluded renders exclusions as "reason path".
func excluded(r capture.Result) []string {
	var out []string
	for _, x := range r.Excluded {
		out = append(out, string(x.Reason)+" "+x.Path)
	}
	return out
}

func oid(t testing.TB, s string) gitstore.OID {
	t.Helper()
	o, err := gitstore.ParseOID(strings.TrimSpace(s))
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return o
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
