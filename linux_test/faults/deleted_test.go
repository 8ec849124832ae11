//go:build linux

package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/linux_test/harness"
)

// written makes a workspace with a revision and something an ignored path holds.
func written(t *testing.T, w *harness.World) *harness.Agent {
	t.Helper()
	a := w.Repository(harness.Sample).Create("a")
	a.Shell("echo one >new; rm README.md; mkdir build; echo out >build/out; mv src moved")
	a.WantRevision(1)
	return a
}

func wantWritten(a *harness.Agent) {
	a.T.Helper()
	a.WantFile("new", "one\n")
	a.WantNone("README.md")
	a.WantFile("moved/deep/b.go", "package deep\n")
	wantChain(a.T, a)
}

func TestDeletedStateDatabaseCostsNothing(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"removed": os.Remove,
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"garbage": func(path string) error { return os.WriteFile(path, []byte(noise(40000)), 0o600) },
		"cut":     func(path string) error { return os.Truncate(path, 5000) },
	} {
		t.Run(name, func(t *testing.T) {
			w := harness.New(t)
			a := written(t, w)
			w.Run("/", "daemon", "stop")
			must(t, change(filepath.Join(a.Dir, ".git/relo/state.db")))
			w.Run(a.Dir, "mount", "a")
			wantWritten(a)
			a.WantFile("build/out", "out\n")
			a.WantRevision(1)
			a.Write("new", "two\n")
			a.WantRevision(2)
		})
	}
}

func TestDeletedStateDirectoryLeavesTheRevisions(t *testing.T) {
	w := harness.New(t)
	a := written(t, w)
	w.Run("/", "daemon", "stop")
	must(t, os.RemoveAll(filepath.Join(a.Dir, ".git/relo")))
	w.Run(a.Dir, "mount", "a")
	wantWritten(a)
	a.WantRevision(1)
	a.Write("new", "two\n")
	a.WantRevision(2)
	w.Run(a.Dir, "undo", "a")
	wantWritten(a)
}

func TestDeletedUpperIsMadeGoodFromTheRevision(t *testing.T) {
	w := harness.New(t)
	a := written(t, w)
	w.Run("/", "daemon", "stop")
	must(t, os.RemoveAll(filepath.Join(a.Dir, ".git/relo/upper/a")))
	w.Run(a.Dir, "mount", "a")
	wantWritten(a)
	a.WantRevision(1)
}

func TestRefsDeletedUnderTheDaemonAreNotOverwritten(t *testing.T) {
	w := harness.New(t)
	a := written(t, w)
	ref := a.Ref()
	a.Git("update-ref", "-d", "refs/relo/vws/a/overlay")
	a.Write("new", "two\n")
	w.WantRefusal(a.Dir, 3, "ref_changed", "sync", "a")
	a.WantFile("new", "two\n")
	// What the user deleted can be brought back from the reflog or by hand.
	a.Git("update-ref", "refs/relo/vws/a/overlay", ref)
	a.Sync()
	if got := w.Run(a.Dir, "show", "a:new"); got != "two\n" {
		t.Errorf("published %q", got)
	}
	wantChain(t, a)
}

func TestRefMovedBySomebodyElseIsNotOverwritten(t *testing.T) {
	w := harness.New(t)
	a := written(t, w)
	ref := a.Ref()
	a.Git("update-ref", "refs/relo/vws/a/overlay", ref+"~")
	a.Write("new", "two\n")
	w.WantRefusal(a.Dir, 3, "ref_changed", "sync", "a")
	if now := a.Ref(); now == ref {
		t.Error("the ref was overwritten")
	}
	w.Run(a.Dir, "recover")
	a.Sync()
	if got := w.Run(a.Dir, "show", "a:new"); got != "two\n" {
		t.Errorf("published %q", got)
	}
	wantChain(t, a)
}

func TestMountPointsParentCanGoWhileNoDaemonLives(t *testing.T) {
	w := harness.New(t)
	a := written(t, w)
	w.Run("/", "daemon", "stop")
	must(t, os.RemoveAll(filepath.Dir(a.Root)))
	w.Run(a.Dir, "mount", "a")
	wantWritten(a)
	// A mounted directory cannot be removed by accident, nor its parents.
	if err := os.RemoveAll(filepath.Dir(a.Root)); err == nil {
		t.Error("a mounted directory was removed")
	}
	wantMounts(t, w, 1)
}

func TestTamperedUpperIsContained(t *testing.T) {
	w := harness.New(t)
	a := written(t, w)
	other := a.Repository.Create("other")
	w.Run(a.Dir, "unmount", "a")
	upper := filepath.Join(a.Dir, ".git/relo/upper/a/upper")
	must(t, os.WriteFile(filepath.Join(upper, "planted"), []byte("planted\n"), 0o644))
	must(t, os.Symlink("/etc/passwd", filepath.Join(upper, "outside")))
	must(t, os.Mkdir(filepath.Join(upper, ".git"), 0o755))
	must(t, os.WriteFile(filepath.Join(upper, ".git", "config"), []byte("[core]\n"), 0o644))
	must(t, os.Mkdir(filepath.Join(upper, "strange"), 0o755))
	must(t, unix.Setxattr(filepath.Join(upper, "strange"), "trusted.overlay.redirect", []byte("/../../../etc"), 0))

	// Whether it is refused or shown, nothing outside is read and the other
	// workspace does not notice.
	s := w.Try(a.Dir, "--json", "sync", "a")
	if s.Code != 0 && !strings.Contains(s.Stdout, `"code"`) {
		t.Errorf("sync: %+v", s)
	}
	if s := w.Try(a.Dir, "mount", "a"); s.Code == 0 {
		if _, err := os.Stat(filepath.Join(a.Root, "strange", "passwd")); err == nil {
			t.Error("a redirect leads out of the lower")
		}
	}
	out := a.Git("ls-tree", "-r", "refs/relo/vws/a/overlay")
	if strings.Contains(out, ".git/") || strings.Contains(out, "passwd") || strings.Contains(out, "outside") {
		t.Errorf("the revision holds:\n%s", out)
	}
	other.Write("x", "1\n")
	other.WantRevision(1)

	os.RemoveAll(filepath.Join(upper, "strange"))
	w.Run(a.Dir, "list")
	w.Run(a.Dir, "remove", "a", "--force")
	wantMounts(t, w, 1)
}

// A workspace whose upper is gone under its mount is beyond help, the daemon
// and the other workspaces are not.
func TestUpperRemovedUnderAMountHarmsNobodyElse(t *testing.T) {
	w := harness.New(t)
	a := written(t, w)
	other := a.Repository.Create("other")
	must(t, os.RemoveAll(filepath.Join(a.Dir, ".git/relo/upper/a")))
	time.Sleep(300 * time.Millisecond)
	if s := w.Try(a.Dir, "--json", "sync", "a"); s.Code != 0 && !strings.Contains(s.Stdout, `"code"`) {
		t.Errorf("sync: %+v", s)
	}
	other.Write("x", "1\n")
	other.WantRevision(1)
	w.Run("/", "daemon", "stop")
	w.Run(a.Dir, "list")
	w.Run(a.Dir, "mount", "a")
	wantMounts(t, w, 2)
	a.WantFile("new", "one\n")
	wantChain(t, a)
}
