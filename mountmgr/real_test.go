//go:build linux

package mountmgr

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/cache"
	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/gitstore"
)

// newRealWorld is a world whose lowers are the product's, over one commit.
func newRealWorld(t testing.TB) (*world, func(name string) Spec) {
	t.Helper()
	needMounts(t)
	w := newWorldIn(t, t.TempDir(), func(cfg fusefs.Config) (lowerView, error) { return fusefs.NewLower(cfg) })
	work := filepath.Join(w.dir, "repo")
	writeFile(t, filepath.Join(work, "hello.txt"), "hello\n")
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", work, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("add", ".")
	git("commit", "-qm", "first")
	tree, err := gitstore.ParseOID(git("rev-parse", "HEAD^{tree}"))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := cache.NewBlobs(16 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return w, func(name string) Spec {
		s := w.spec(name)
		s.Lower = fusefs.Config{
			Store: w.store, Tree: tree, Time: time.Unix(1e9, 0), Blobs: blobs,
			Report: func(path string, err error) { t.Errorf("%s: %v", path, err) },
		}
		return s
	}
}

func TestWorkspaceOverTheLowerOfACommit(t *testing.T) {
	w, spec := newRealWorld(t)
	s := spec("alice")
	w.mount(s)
	wantFile(t, s.Target+"/hello.txt", "hello\n")
	writeFile(t, s.Target+"/hello.txt", "changed\n")
	b := spec("bob")
	w.mount(b)
	wantFile(t, b.Target+"/hello.txt", "hello\n")
	if n := w.views.Load(); n != 1 {
		t.Errorf("%d lowers were made for one tree", n)
	}
	// A program stays in a detached workspace; the lower serves it on.
	sh := inDir(t, b.Target, "sleep 0.3 && cat hello.txt >seen && exec sleep 60")
	if err := w.m.Unmount(context.Background(), b.Target, true); err != nil {
		t.Fatal(err)
	}
	w.unmount(s.Target)
	waitFor(t, func() bool { return fileHolds(b.Upper+"/seen", "hello\n") })
	if err := sh.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkMount is a mount on a lower that is there, with n others mounted.
func BenchmarkMount(b *testing.B) {
	for _, others := range []int{0, 100} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			w, spec := newRealWorld(b)
			for i := range others {
				w.mount(spec(fmt.Sprintf("other%d", i)))
			}
			s := spec("alice")
			w.mount(s)
			w.unmount(s.Target)
			for b.Loop() {
				w.mount(s)
				b.StopTimer()
				w.unmount(s.Target)
				b.StartTimer()
			}
		})
	}
}
