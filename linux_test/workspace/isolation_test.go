//go:build linux

package workspace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestTwoAgentsAndTheUserEditOneFileApart(t *testing.T) {
	r := sample(t)
	r.Git("branch", "other")
	harness.WriteFile(t, filepath.Join(r.Dir, "stashed"), "s\n")
	r.Git("stash", "-u", "-q")
	alice, bob := r.Create("alice"), r.Create("bob")

	// All three write the same file and the same new names, over and over, at once.
	var wg sync.WaitGroup
	for who, dir := range map[string]string{"user": r.Dir, "alice": alice.Root, "bob": bob.Root} {
		wg.Go(func() {
			for i := range 200 {
				for _, name := range []string{"README.md", "src/new.go"} {
					if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "%s %d\n", who, i), 0o644); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for who, dir := range map[string]string{"user": r.Dir, "alice": alice.Root, "bob": bob.Root} {
		for _, name := range []string{"README.md", "src/new.go"} {
			if got, want := mustRead(t, dir, name), who+" 199\n"; got != want {
				t.Errorf("%s's %s holds %q, want %q", who, name, got, want)
			}
		}
	}
	for _, a := range []*harness.Agent{alice, bob} {
		wantTree(a, with(harness.Sample, map[string]string{"README.md": a.Name + " 199\n", "src/new.go": a.Name + " 199\n"}))
	}
	if got, want := r.Git("status", "--porcelain"), " M README.md\n?? src/new.go"; got != want {
		t.Errorf("the user's status is %q, want %q", got, want)
	}
}

func TestTheUsersRepositoryStaysByteForByteTheSame(t *testing.T) {
	r := sample(t)
	r.Git("branch", "other")
	r.Git("tag", "v1")
	harness.WriteFile(t, filepath.Join(r.Dir, "stashed"), "s\n")
	r.Git("stash", "-u", "-q")
	harness.WriteFile(t, filepath.Join(r.Dir, "README.md"), "staged\n")
	r.Git("add", "README.md")
	harness.WriteFile(t, filepath.Join(r.Dir, "main.go"), "unstaged\n")
	harness.WriteFile(t, filepath.Join(r.Dir, "untracked"), "u\n")
	r.Git("status") // refreshes the index once
	listing := func() string {
		out, _ := sh(r.World, r.Dir, `find . -path ./.git -prune -o -printf '%p %y %m %s %T@ %C@ %i %l\n' | sort;
			find .git -maxdepth 1 ! -name .git ! -name relo -printf '%f\n' | sort; cat .git/logs/HEAD`)
		return out
	}
	state, files := r.UserState(), listing()

	a := r.Create("alice")
	b := r.Create("bob", "--base", "other", "--read-only")
	a.WantFile("README.md", "hello\n") // the commit's, not the user's
	b.WantNone("untracked")
	a.Shell(`echo x >README.md; rm main.go; mv src lib; ln -s README.md l2; mkdir d; echo y >d/y; rm -rf lib/deep`)
	a.WantRevision(1)
	r.Run(r.Dir, "status", "alice")
	r.Run(r.Dir, "diff", "alice")
	r.Run(r.Dir, "undo", "alice")
	r.Run(r.Dir, "redo", "alice")
	r.Run(r.Dir, "restore", "alice", "--to", "base", "--", "src/a.go")
	r.Run(r.Dir, "unmount", "alice")
	r.Run(r.Dir, "settle", "alice")
	r.Run(r.Dir, "mount", "alice")
	r.Kill()
	r.Run(r.Dir, "recover")
	r.Run(r.Dir, "remove", "--force", "alice")

	if got := r.UserState(); got != state {
		t.Errorf("the user's state is\n%s\nand was\n%s", got, state)
	}
	if got := listing(); got != files {
		t.Errorf("the user's files are\n%s\nand were\n%s", got, files)
	}
}

func TestBranchesAndStashesOfTheUserDoNotReachAWorkspace(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Write("README.md", "alice\n")
	base := r.Git("rev-parse", "HEAD")
	harness.WriteFile(t, filepath.Join(r.Dir, "README.md"), "second\n")
	r.Git("commit", "-qam", "second")
	r.Git("checkout", "-q", "-b", "topic")
	r.Git("rm", "-rq", "src")
	r.Git("commit", "-qm", "third")
	r.Git("branch", "-D", "main")
	a.WantFile("README.md", "alice\n")
	a.WantFile("src/a.go", "package src\n")
	wantTree(a, with(harness.Sample, map[string]string{"README.md": "alice\n"}))
	var status struct{ Workspace struct{ Base string } }
	r.JSON(r.Dir, &status, "status", "alice")
	if status.Workspace.Base != base {
		t.Errorf("alice's base is %s, was %s", status.Workspace.Base, base)
	}
	// The base stays though nothing of the user's refers to it any more.
	r.Git("update-ref", "-d", "refs/heads/main")
	r.Git("reflog", "expire", "--expire=now", "--all")
	r.Git("gc", "-q", "--prune=now")
	a.WantFile("src/deep/c/d.txt", "d\n")
	if got := r.Run(r.Dir, "show", "alice@base:src/a.go"); !strings.Contains(got, "package src") {
		t.Errorf("the base's src/a.go is %q", got)
	}
}
