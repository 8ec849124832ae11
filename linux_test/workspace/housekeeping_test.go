//go:build linux

package workspace_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

// TestTheUsersHousekeepingLosesNothing lets the user's Git drop and repack all
// it may, between any two steps of a workspace's life.
func TestTheUsersHousekeepingLosesNothing(t *testing.T) {
	r := sample(t)
	turn := 0
	clean := func() {
		t.Helper()
		for range 2 {
			switch turn++; turn % 4 {
			case 0:
				r.Git("pack-refs", "--all")
			case 1:
				r.Git("repack", "-adq")
			case 2:
				r.Git("gc", "-q", "--prune=now")
			case 3:
				r.Git("reflog", "expire", "--expire=now", "--all")
				r.Git("prune", "--expire=now")
			}
		}
	}
	clean()
	a, idle := r.Create("alice"), r.Create("idle")
	clean()
	want := with(harness.Sample, nil)
	for i := range 6 {
		content := fmt.Sprintf("content %d\n", i)
		a.Write(fmt.Sprintf("file%d", i), content)
		want[fmt.Sprintf("file%d", i)] = content
		if i%2 == 0 {
			clean() // before it is published
		}
		wantTree(a, want)
		clean()
	}
	for n := range mustRevision(a) {
		r.Run(r.Dir, "undo", "alice")
		clean()
		if n == 3 {
			r.Kill()
		}
	}
	wantTree(a, harness.Sample)
	clean()
	for range 6 {
		r.Run(r.Dir, "redo", "alice")
		clean()
	}
	wantTree(a, want)
	r.Run(r.Dir, "unmount", "alice")
	clean()
	r.Run(r.Dir, "settle", "alice")
	clean()
	r.Run(r.Dir, "mount", "alice")
	clean()
	wantTree(a, want)
	// What was never read before is still there after all of it.
	idle.WantFile("src/deep/c/d.txt", "d\n")
	r.Run(r.Dir, "restore", "alice", "--to", "base")
	clean()
	wantTree(a, harness.Sample)
	r.Run(r.Dir, "remove", "--force", "alice")
	clean()
	r.Run(r.Dir, "remove", "idle")
	clean()
	if left := r.Git("for-each-ref", "refs/relo"); left != "" {
		t.Errorf("refs are left: %s", left)
	}
}

func TestManyRevisionsMakeFewPacks(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	n := 80
	if testing.Short() {
		n = 40
	}
	for i := range n {
		a.Write("README.md", fmt.Sprintln(i))
		a.Sync()
	}
	packs, err := filepath.Glob(filepath.Join(r.Dir, ".git/objects/pack/*.pack"))
	if err != nil || len(packs) > 40 {
		t.Errorf("%d revisions made %d packs (%v)", n, len(packs), err)
	}
	if kept, _ := filepath.Glob(filepath.Join(r.Dir, ".git/objects/pack/*.keep")); len(kept) > 0 {
		t.Errorf("keep files are left: %v", kept)
	}
}

// TestTheUsersGitWorksBesideABusyAgent commits, packs and fetches while a tool
// writes without pause.
func TestTheUsersGitWorksBesideABusyAgent(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	done := make(chan string)
	stop := filepath.Join(r.Home, "stop")
	go func() {
		out, _ := sh(r.World, a.Root, `i=0; while [ ! -e '`+stop+`' ]; do i=$((i+1)); echo $i >src/f$((i%50)); echo $i >last; sleep 0.01; done; cat last`)
		done <- out
	}()
	for i := range 5 {
		harness.WriteFile(t, filepath.Join(r.Dir, "user.txt"), fmt.Sprintln(i))
		r.Git("add", "user.txt")
		r.Git("commit", "-qm", fmt.Sprint(i))
		r.Git("gc", "-q", "--prune=now")
		r.Git("pack-refs", "--all")
		a.Sync()
	}
	harness.WriteFile(t, stop, "")
	last := <-done
	a.Sync()
	if got := r.Git("show", "refs/relo/vws/alice/overlay:last"); got+"\n" != last {
		t.Errorf("the revision's last is %q, the file's %q", got, last)
	}
	if got := r.Git("log", "--oneline", "HEAD"); len(lines(got)) != 6 {
		t.Errorf("the user's history is\n%s", got)
	}
}
