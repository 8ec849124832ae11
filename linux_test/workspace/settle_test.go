//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestSettleKeepsWhatToolsSee(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Shell(`echo changed >README.md; touch -d 2001-02-03T04:05:06.123456789Z README.md
		rm main.go; mv src lib; chmod +x go.mod; ln -s lib l; mkdir -p lib/build build
		echo o >lib/build/x; echo o >build/y; echo o >lib/z.o; echo n >lib/new; echo p >plain`)
	_, tree := a.Sync()
	listing := func() string {
		out, _ := sh(r.World, a.Root, `find . -type d -printf '%p/ %m\n' -o -printf '%p %y %m %s %T@ %l\n' | sort`)
		return out
	}
	before := listing()
	for round := range 3 {
		r.Run(r.Dir, "unmount", "alice")
		var settled struct {
			Tree string
			Kept []struct{ Path string }
		}
		r.JSON(r.Dir, &settled, "settle", "alice")
		if settled.Tree != tree || len(settled.Kept) != 3 {
			t.Errorf("round %d: settle gives %+v; the tree was %s", round, settled, tree)
		}
		// Nothing but the ignored files is left on the disk beside Git.
		var files []string
		upper := filepath.Join(r.Dir, ".git/relo/upper/alice/upper")
		filepath.Walk(upper, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() {
				files = append(files, path)
			}
			return nil
		})
		if len(files) != 3 {
			t.Errorf("round %d: the upper holds %v", round, files)
		}
		r.Run(r.Dir, "mount", "alice")
		if got := listing(); got != before {
			t.Errorf("round %d:\n%s", round, difference(before, got))
		}
		if _, got := a.Sync(); got != tree {
			t.Errorf("round %d: the tree is %s, was %s", round, got, tree)
		}
	}
	// The history reaches behind the settle.
	if got := r.Run(r.Dir, "show", "alice@base:main.go"); got != harness.Sample["main.go"] {
		t.Errorf("the base's main.go is %q", got)
	}
	r.Run(r.Dir, "restore", "alice", "--to", "base")
	wantTree(a, harness.Sample)
	a.WantFile("lib/build/x", "o\n")
	a.WantFile("lib/z.o", "o\n")
}

func TestADirectoryRenamedToAnIgnoredNameIsKept(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Shell("mv src build")
	for _, step := range [][]string{nil, {"settle", "alice"}, nil, {"settle", "alice"}} {
		_, tree := a.Sync()
		a.WantNone("src")
		a.WantFile("build/a.go", "package src\n")
		a.WantFile("build/deep/c/d.txt", "d\n")
		r.Run(r.Dir, "unmount", "alice")
		if step != nil {
			r.Run(r.Dir, step...)
		}
		r.Run(r.Dir, "mount", "alice")
		if _, got := a.Sync(); got != tree {
			t.Errorf("after %v the tree is %s, was %s", step, got, tree)
		}
	}
	r.Run(r.Dir, "restore", "alice", "--to", "base")
	a.WantFile("src/deep/b.go", "package deep\n")
	wantTree(a, harness.Sample)
}

func TestSettleOfAMountedWorkspaceIsRefused(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Write("x", "x\n")
	r.WantRefusal(r.Dir, 3, "workspace_mounted", "settle", "alice")
	a.WantFile("x", "x\n")
}

func TestUndoOfAnUnmountedWorkspaceShowsAtTheNextMount(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	publish(a, "echo one >README.md")
	publish(a, "mv src lib")
	r.Run(r.Dir, "unmount", "alice")
	r.Run(r.Dir, "undo", "alice")
	r.Run(r.Dir, "mount", "alice")
	a.WantNone("lib")
	a.WantFile("src/deep/c/d.txt", "d\n")
	a.WantFile("README.md", "one\n")
	r.Run(r.Dir, "unmount", "alice")
	r.Run(r.Dir, "redo", "alice")
	r.Run(r.Dir, "restore", "alice", "--to", "base", "--", "README.md")
	r.Run(r.Dir, "mount", "alice")
	a.WantFile("README.md", "hello\n")
	a.WantFile("lib/deep/b.go", "package deep\n")
	a.WantNone("src")
}
