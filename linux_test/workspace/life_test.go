//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestCreatePrintsADirectoryThatShowsTheCommit(t *testing.T) {
	r := sample(t)
	dir := strings.TrimSuffix(r.Run(r.Dir, "create", "alice"), "\n")
	if !strings.HasPrefix(dir, r.State+"/relofs/") || filepath.Base(dir) != "alice" {
		t.Errorf("the directory is %s", dir)
	}
	if got := strings.TrimSuffix(r.Run(r.Dir, "path", "alice"), "\n"); got != dir {
		t.Errorf("path prints %s, create printed %s", got, dir)
	}
	a := &harness.Agent{Repository: r, Name: "alice", Root: dir}
	for path, content := range harness.Sample {
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			if got, err := os.Readlink(filepath.Join(dir, path)); err != nil || got != to {
				t.Errorf("%s leads to %q, %v", path, got, err)
			}
			continue
		}
		a.WantFile(path, content)
	}
	out, code := sh(r.World, "/", "diff -r --no-dereference --exclude=.git '"+r.Dir+"' '"+dir+"'")
	if code != 0 {
		t.Errorf("the directory differs from the checkout:\n%s", out)
	}
	a.WantRevision(0)
	wantTree(a, harness.Sample)
}

func TestCreateStartsFromTheNamedCommit(t *testing.T) {
	r := sample(t)
	r.Git("tag", "-a", "-m", "one", "v1")
	harness.WriteFile(t, filepath.Join(r.Dir, "README.md"), "second\n")
	r.Git("commit", "-qam", "second")
	r.Git("branch", "topic")
	first := r.Git("rev-parse", "HEAD~")
	for name, test := range map[string]struct{ base, content string }{
		"head":   {"", "second\n"},
		"branch": {"topic", "second\n"},
		"tag":    {"v1", "hello\n"},
		"parent": {"main~1", "hello\n"},
		"id":     {first, "hello\n"},
		"short":  {first[:10], "hello\n"},
		"full":   {"refs/heads/main", "second\n"},
	} {
		args := []string{}
		if test.base != "" {
			args = append(args, "--base", test.base)
		}
		r.Create(name, args...).WantFile("README.md", test.content)
	}
}

func TestWhatWasWrittenSurvivesUnmountAndMountElsewhere(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Shell(`
		echo changed >README.md; echo new >new.txt; rm src/a.go
		mkdir build; echo object >build/x.o; mv src lib; chmod +x main.go`)
	first := a.Root
	stamp := statOf(t, a.Root, "README.md")

	r.Run(r.Dir, "unmount", "alice")
	if entries, err := os.ReadDir(first); err == nil && len(entries) > 0 {
		t.Errorf("after unmount %s holds %v", first, entries)
	}
	r.WantRefusal(r.Dir, 3, "not_mounted", "path", "alice")
	r.WantRefusal(r.Dir, 3, "not_mounted", "unmount", "alice")

	for _, dir := range []string{filepath.Join(r.Home, "a new", "else where"), filepath.Join(r.Home, "second")} {
		if got := strings.TrimSuffix(r.Run(r.Dir, "mount", "alice", dir), "\n"); got != dir {
			t.Errorf("mount prints %q, want %q", got, dir)
		}
		a.Root = dir
		a.WantFile("README.md", "changed\n")
		a.WantFile("build/x.o", "object\n")
		a.WantFile("lib/deep/b.go", "package deep\n")
		a.WantNone("src")
		if after := statOf(t, a.Root, "README.md"); after.Mtim != stamp.Mtim {
			t.Errorf("README.md has mtime %v after a remount, had %v", after.Mtim, stamp.Mtim)
		}
		r.Run(r.Dir, "unmount", "alice")
	}
	// Without DIR: where it was last.
	last := a.Root
	if got := strings.TrimSuffix(r.Run(r.Dir, "mount", "alice"), "\n"); got != last {
		t.Errorf("mount without DIR prints %q, want %q", got, last)
	}
	// Mounting what is mounted is no error and changes nothing.
	if got := strings.TrimSuffix(r.Run(r.Dir, "mount", "alice"), "\n"); got != last {
		t.Errorf("the second mount prints %q, want %q", got, last)
	}
}

func TestRelativeMountPointIsSeenFromC(t *testing.T) {
	r := sample(t)
	r.Run(r.Dir, "create", "alice")
	r.Run(r.Dir, "unmount", "alice")
	got := strings.TrimSuffix(r.Run(r.Home, "-C", r.Dir, "mount", "alice", "../"+filepath.Base(r.Dir)+"-mount"), "\n")
	if want := r.Dir + "-mount"; got != want {
		t.Errorf("mount prints %q, want %q", got, want)
	}
	r.Run(r.Dir, "remove", "alice")
	os.Remove(r.Dir + "-mount")
}

func TestListShowsEveryWorkspaceOfTheRepositoryAlone(t *testing.T) {
	r := sample(t)
	other := r.World.Repository(map[string]string{"x": "x\n"})
	other.Create("zed")
	for _, name := range []string{"bob", "alice", "carol.2"} {
		r.Create(name)
	}
	r.Run(r.Dir, "unmount", "bob")
	var list struct {
		Workspaces []struct{ Agent, State, Directory string }
	}
	r.JSON(filepath.Join(r.Dir, "src"), &list, "list")
	var got []string
	for _, w := range list.Workspaces {
		got = append(got, w.Agent+" "+w.State)
		if w.Directory == "" {
			t.Errorf("%s has no directory", w.Agent)
		}
	}
	if want := []string{"alice mounted", "bob unmounted", "carol.2 mounted"}; !slices.Equal(got, want) {
		t.Errorf("list gives %v, want %v", got, want)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	r := sample(t)
	before := r.UserState()
	refs := r.Git("for-each-ref")
	a := r.Create("alice")
	r.Create("untouched")
	a.Write("README.md", "changed\n")
	a.Shell("mkdir build && echo x >build/x")

	r.WantRefusal(r.Dir, 3, "undecided_changes", "remove", "alice")
	a.WantFile("README.md", "changed\n") // it is mounted as before
	r.Run(r.Dir, "remove", "--force", "alice")
	r.Run(r.Dir, "remove", "untouched")
	if _, err := os.Lstat(a.Root); !os.IsNotExist(err) {
		t.Errorf("%s is left (%v)", a.Root, err)
	}
	if got := r.Git("for-each-ref"); got != refs {
		t.Errorf("refs are left:\n%s", got)
	}
	if left, _ := filepath.Glob(filepath.Join(r.Dir, ".git/relo/upper/*")); len(left) > 0 {
		t.Errorf("uppers are left: %v", left)
	}
	if got := r.UserState(); got != before {
		t.Errorf("the user's state changed:\n%s\nwas\n%s", got, before)
	}
	r.WantRefusal(r.Dir, 1, "workspace_not_found", "path", "alice")
	// The name is free again, and starts clean.
	r.Create("alice").WantFile("README.md", "hello\n")
	r.Create("untouched").WantNone("build")
}

func TestDaemonKilledAndStoppedMountsComeBack(t *testing.T) {
	r := sample(t)
	a, b := r.Create("alice"), r.Create("bob")
	r.Run(r.Dir, "unmount", "bob")
	a.Write("README.md", "written\n")
	a.Write("build/keep", "ignored\n")
	for _, end := range []func(){r.Kill, func() { r.Run("/", "daemon", "stop") }} {
		end()
		if got := strings.TrimSpace(r.Run(r.Dir, "path", "alice")); got != a.Root {
			t.Errorf("alice is at %q, was at %q", got, a.Root)
		}
		a.WantFile("README.md", "written\n")
		a.WantFile("build/keep", "ignored\n")
		a.WantFile("src/a.go", "package src\n")
		r.WantRefusal(r.Dir, 3, "not_mounted", "path", "bob")
	}
	if entries, _ := os.ReadDir(b.Root); len(entries) > 0 {
		t.Errorf("bob's directory holds %v", entries)
	}
	wantTree(a, with(harness.Sample, map[string]string{"README.md": "written\n"}))
}
