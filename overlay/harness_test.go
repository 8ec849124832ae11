package overlay_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/overlay"
)

// repo is a Git repository of a user, with a checkout.
type repo struct {
	t   *testing.T
	dir string
}

// newRepo makes a repository with one commit of the given files (path to
// content; a content "-> x" makes a symlink, one that begins with "#!" an
// executable). At the end of the test `git fsck --strict` must be clean.
func newRepo(t *testing.T, files map[string]string) *repo {
	t.Helper()
	r := &repo{t: t, dir: t.TempDir()}
	r.git("init", "-q", "-b", "main")
	r.git("config", "user.name", "User")
	r.git("config", "user.email", "user@example.com")
	writeFiles(t, r.dir, files)
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "base")
	t.Cleanup(func() { r.fsck() })
	return r
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		writeFile(t, filepath.Join(dir, path), files[path])
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	var err error
	if to, ok := strings.CutPrefix(content, "-> "); ok {
		err = os.Symlink(to, path)
	} else if strings.HasPrefix(content, "#!") {
		err = os.WriteFile(path, []byte(content), 0o755)
	} else {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	return gitIn(r.t, r.dir, args...)
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (r *repo) fsck() {
	r.t.Helper()
	if out := r.git("fsck", "--strict", "--no-dangling", "--no-progress"); out != "" {
		r.t.Errorf("git fsck --strict: %s", out)
	}
}

// userState is what an agent must never change, byte for byte.
func (r *repo) userState() string {
	r.t.Helper()
	var b strings.Builder
	for _, f := range []string{"HEAD", "index", "config", "packed-refs", "refs/heads/main", "refs/stash", "logs/HEAD"} {
		data, _ := os.ReadFile(filepath.Join(r.dir, ".git", f))
		b.WriteString(f + ": " + string(data) + "\n")
	}
	b.WriteString(r.git("for-each-ref", "refs/heads", "refs/tags", "refs/remotes", "refs/stash"))
	b.WriteString(r.git("status", "--porcelain=v2", "--branch"))
	return b.String()
}

func (r *repo) open() *overlay.Engine {
	r.t.Helper()
	e, err := overlay.Open(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { e.Close() })
	return e
}

// space is a workspace with test verbs.
type space struct {
	*overlay.Workspace
	t *testing.T
}

func create(t *testing.T, e *overlay.Engine, agent string) space {
	t.Helper()
	w, err := e.Create(context.Background(), agent, overlay.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return space{w, t}
}

func (s space) write(path, content string) {
	s.t.Helper()
	if err := s.WriteFile(path, strings.NewReader(content), strings.HasPrefix(content, "#!")); err != nil {
		s.t.Fatalf("write %s: %v", path, err)
	}
}

func (s space) remove(path string) {
	s.t.Helper()
	if err := s.Delete(path); err != nil {
		s.t.Fatalf("delete %s: %v", path, err)
	}
}

func (s space) sync() overlay.SyncResult {
	s.t.Helper()
	r, err := s.Sync(context.Background())
	if err != nil {
		s.t.Fatalf("sync: %v", err)
	}
	return r
}

func (s space) wantRevision(n int) {
	s.t.Helper()
	s.sync()
	if got := s.Info().Revision; got != n {
		s.t.Errorf("revision is %d, want %d", got, n)
	}
}

func (s space) read(path string) string {
	s.t.Helper()
	f, err := s.ReadFile(path)
	if err != nil {
		s.t.Fatalf("read %s: %v", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		s.t.Fatalf("read %s: %v", path, err)
	}
	return string(data)
}

func (s space) wantFile(path, content string) {
	s.t.Helper()
	if got := s.read(path); got != content {
		s.t.Errorf("%s holds %q, want %q", path, got, content)
	}
}

func (s space) wantNone(path string) {
	s.t.Helper()
	if _, err := s.Stat(path); errcode.Of(err) != errcode.PathNotFound {
		s.t.Errorf("stat %s: %v, want path_not_found", path, err)
	}
}

func wantCode(t *testing.T, err error, code errcode.Code) {
	t.Helper()
	if errcode.Of(err) != code {
		t.Errorf("error is %q (%v), want %q", errcode.Of(err), err, code)
	}
}

// files reads every file of a tree: path to content, with the mode.
func (r *repo) files(tree string) map[string]string {
	r.t.Helper()
	out := map[string]string{}
	listing := r.git("ls-tree", "-r", "-z", tree)
	for _, line := range strings.Split(strings.TrimSuffix(listing, "\x00"), "\x00") {
		if line == "" {
			continue
		}
		meta, path, _ := strings.Cut(line, "\t")
		fields := strings.Fields(meta)
		out[path] = fields[0] + " " + r.git("cat-file", "-p", fields[2])
	}
	return out
}
