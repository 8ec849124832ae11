//go:build linux

package harness

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Repository is a user's repository with a checkout.
type Repository struct {
	*World
	Dir string
}

// Sample is a small repository's content.
var Sample = map[string]string{
	".gitignore":       "*.o\nbuild/\n",
	"README.md":        "hello\n",
	"main.go":          "package main\n\nfunc main() {}\n",
	"go.mod":           "module sample\n\ngo 1.21\n",
	"tool.sh":          "#!/bin/sh\necho tool\n",
	"link":             "-> README.md",
	"src/a.go":         "package src\n",
	"src/deep/b.go":    "package deep\n",
	"src/deep/c/d.txt": "d\n",
}

// Repository makes a repository with one commit of files (path to content; "-> x"
// makes a symlink, what begins with "#!" is executable).
func (w *World) Repository(files map[string]string) *Repository {
	w.T.Helper()
	return w.RepositoryIn("", files)
}

// RepositoryIn is Repository in a new directory of parent, "" for the usual
// place.
func (w *World) RepositoryIn(parent string, files map[string]string) *Repository {
	w.T.Helper()
	dir, err := os.MkdirTemp(parent, "repo")
	if err != nil {
		w.T.Fatal(err)
	}
	r := &Repository{World: w, Dir: dir}
	w.T.Cleanup(func() {
		if out := r.Git("fsck", "--strict", "--no-dangling", "--no-progress"); out != "" {
			w.T.Errorf("git fsck --strict: %s", out)
		}
		w.stop()
		os.RemoveAll(dir)
	})
	r.Git("init", "-q", "-b", "main")
	r.Git("config", "user.name", "User")
	r.Git("config", "user.email", "user@example.com")
	for _, path := range slices.Sorted(maps.Keys(files)) {
		WriteFile(w.T, filepath.Join(dir, path), files[path])
	}
	r.Git("add", "-A")
	r.Git("commit", "-q", "-m", "base")
	return r
}

// WriteFile writes a file as Repository describes, with the directories above it.
func WriteFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
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

// Git runs git in the checkout; it must succeed.
func (r *Repository) Git(args ...string) string {
	r.T.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.Dir, r.env
	res := r.Finish(cmd)
	if res.Code != 0 {
		r.T.Fatalf("git %s: %s", strings.Join(args, " "), res.Stderr)
	}
	return strings.TrimSuffix(res.Stdout, "\n")
}

// UserState is what nothing but an accept may change, byte for byte.
func (r *Repository) UserState() string {
	r.T.Helper()
	var b strings.Builder
	for _, f := range []string{"HEAD", "index", "config", "packed-refs", "refs/heads/main", "refs/stash", "logs/HEAD", "logs/refs/stash"} {
		data, _ := os.ReadFile(filepath.Join(r.Dir, ".git", f))
		b.WriteString(f + ": " + string(data) + "\n")
	}
	b.WriteString(r.Git("for-each-ref", "refs/heads", "refs/tags", "refs/remotes", "refs/stash"))
	b.WriteString(r.Git("--no-optional-locks", "status", "--porcelain=v2", "--branch"))
	return b.String()
}

// Agent is a workspace that has been created and mounted.
type Agent struct {
	*Repository
	Name string
	Root string // the mounted directory
}

// Create makes and mounts a workspace.
func (r *Repository) Create(name string, args ...string) *Agent {
	r.T.Helper()
	var created struct {
		Workspace struct {
			Directory string `json:"directory"`
		} `json:"workspace"`
	}
	r.JSON(r.Dir, &created, append([]string{"create", name}, args...)...)
	return &Agent{Repository: r, Name: name, Root: created.Workspace.Directory}
}

// Write writes a file through the mount.
func (a *Agent) Write(path, content string) {
	a.T.Helper()
	WriteFile(a.T, filepath.Join(a.Root, path), content)
}

// Read reads a file through the mount.
func (a *Agent) Read(path string) string {
	a.T.Helper()
	data, err := os.ReadFile(filepath.Join(a.Root, path))
	if err != nil {
		a.T.Fatal(err)
	}
	return string(data)
}

// WantFile checks a file's content through the mount.
func (a *Agent) WantFile(path, content string) {
	a.T.Helper()
	if got := a.Read(path); got != content {
		a.T.Errorf("%s: %s holds %q, want %q", a.Name, path, got, content)
	}
}

// WantNone checks that nothing is at path in the mount.
func (a *Agent) WantNone(path string) {
	a.T.Helper()
	if _, err := os.Lstat(filepath.Join(a.Root, path)); !os.IsNotExist(err) {
		a.T.Errorf("%s: %s is there (%v)", a.Name, path, err)
	}
}

// Shell runs a script of ordinary tools in the mounted directory; it must succeed.
func (a *Agent) Shell(script string) string {
	a.T.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env = a.Root, a.env
	res := a.Finish(cmd)
	if res.Code != 0 {
		a.T.Fatalf("sh -c %q: exit status %d\n%s%s", script, res.Code, res.Stdout, res.Stderr)
	}
	return res.Stdout
}

// Sync publishes and returns the newest revision's number and tree.
func (a *Agent) Sync() (revision int, tree string) {
	a.T.Helper()
	var s struct {
		Revision int    `json:"revision"`
		Tree     string `json:"tree"`
	}
	a.JSON(a.Dir, &s, "sync", a.Name)
	return s.Revision, s.Tree
}

// WantRevision publishes and checks the number of the newest revision.
func (a *Agent) WantRevision(n int) {
	a.T.Helper()
	if got, _ := a.Sync(); got != n {
		a.T.Errorf("%s is at revision %d, want %d", a.Name, got, n)
	}
}

// Ref is the commit of the newest published revision, read without asking relofs.
func (a *Agent) Ref() string {
	a.T.Helper()
	return a.Git("rev-parse", "refs/relo/vws/"+a.Name+"/overlay")
}

// WaitRef waits until the newest published revision is another than old, and
// returns how long that took.
func (a *Agent) WaitRef(old string, limit time.Duration) time.Duration {
	a.T.Helper()
	start := time.Now()
	file := filepath.Join(a.Dir, ".git/refs/relo/vws", a.Name, "overlay")
	for time.Since(start) < limit {
		if data, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(data)) != old {
			return time.Since(start)
		}
		time.Sleep(2 * time.Millisecond)
	}
	a.T.Fatalf("%s: no new revision within %v", a.Name, limit)
	return 0
}
