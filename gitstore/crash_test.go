//go:build unix

package gitstore_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/relofs/relofs/gitstore"
)

// TestPublishThatIsKilled is the process that TestKilledAtAnyStep kills: it
// publishes a revision and ends by SIGKILL where it is told to.
func TestPublishThatIsKilled(t *testing.T) {
	step, dir := os.Getenv("RELOFS_TEST_KILL_AT"), os.Getenv("RELOFS_TEST_REPOSITORY")
	if step == "" {
		t.Skip("only run by TestKilledAtAnyStep")
	}
	var nth int
	fmt.Sscan(os.Getenv("RELOFS_TEST_KILL_NTH"), &nth)
	gitstore.StopAt(func(at string) error {
		if at == step {
			if nth--; nth == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		return nil
	})
	s, err := gitstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Ref("refs/relo/vws/x/overlay")
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	commit := mustAddRevision(t, b, "new", old)
	if err := b.Publish(
		gitstore.RefUpdate{Name: "refs/relo/vws/x/snap/2", New: commit},
		gitstore.RefUpdate{Name: "refs/relo/vws/x/overlay", Old: old, New: commit}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("published")
}

func TestKilledAtAnyStep(t *testing.T) {
	twice := map[string]bool{"ref write": true, "lock": true, "ref rename": true}
	for _, step := range gitstore.Steps {
		for nth := 1; nth == 1 || nth == 2 && twice[step]; nth++ {
			t.Run(fmt.Sprintf("%s %d", step, nth), func(t *testing.T) {
				r := newRepository(t)
				r.git("update-ref", "refs/relo/vws/x/overlay", "HEAD")
				old := r.oid("HEAD")

				cmd := exec.Command(os.Args[0], "-test.run=^TestPublishThatIsKilled$")
				cmd.Env = append(os.Environ(), "RELOFS_TEST_KILL_AT="+step, fmt.Sprint("RELOFS_TEST_KILL_NTH=", nth), "RELOFS_TEST_REPOSITORY="+r.path)
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("not killed: %v\n%s", err, out)
				}

				r.wantSound() // before anybody has repaired anything
				now := r.ref("refs/relo/vws/x/overlay")
				if pinned := r.ref("refs/relo/vws/x/snap/2"); now != old && pinned != now {
					t.Errorf("overlay is at %s but its pin at %s", now, pinned)
				}
				if now != old {
					r.git("rev-list", "--objects", now.String())
				}

				s := r.open()
				if left := r.leftovers(); len(left) > 0 {
					t.Errorf("left after the next Open: %v", left)
				}
				b := s.NewBatch()
				next := mustAddRevision(t, b, "next", now)
				if err := b.Publish(gitstore.RefUpdate{Name: "refs/relo/vws/x/overlay", Old: now, New: next}); err != nil {
					t.Errorf("publish after the crash: %v", err)
				}
				r.git("gc", "-q", "--prune=now")
				r.wantSound()
			})
		}
	}
}

func TestSweepLeavesOthersAlone(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	commit := r.oid("HEAD")
	// A batch, and a ref update, of a living process: this one.
	b := s.NewBatch()
	if _, err := b.AddStream(gitstore.KindBlob, 2<<20, zeros{}); !errors.Is(err, gitstore.ErrSizeMismatch) {
		t.Fatal(err)
	}
	mine := mustAddRevision(t, b, "x", commit)
	// Locks and .keep files that are not ours.
	others := []string{"refs/relo/y.lock", "refs/heads/z.lock", "objects/pack/pack-72656c6f00000000000000000000000000000000.keep", "objects/pack/pack-0000000000000000000000000000000000000000.keep"}
	for _, path := range others {
		r.write(".git/"+path, "kept by the user\n")
	}
	opened := 0
	restore := gitstore.StopAt(func(step string) error {
		other, err := gitstore.Open(r.path)
		if err != nil {
			return err
		}
		opened++
		return other.Close()
	})
	err := b.Publish(gitstore.RefUpdate{Name: "refs/relo/x", New: mine})
	restore()
	if err != nil || opened < 10 {
		t.Errorf("publish with %d other Opens between its steps: %v", opened, err)
	}
	for _, path := range others {
		if _, err := os.Stat(filepath.Join(r.path, ".git", path)); err != nil {
			t.Errorf("%s was swept", path)
		}
		os.Remove(filepath.Join(r.path, ".git", path))
	}
	r.git("gc", "-q", "--prune=now")
	r.git("rev-list", "--objects", mine.String())
	r.wantSound()
}

func TestLocksExcludeGitAndGitsExcludeUs(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	at := r.oid("HEAD")
	r.git("update-ref", "refs/relo/a", at.String())
	r.git("commit", "-q", "--allow-empty", "-m", "second")
	next := r.oid("HEAD")

	tried := ""
	restore := gitstore.StopAt(func(step string) error {
		if step == gitstore.StepRefRename && tried == "" {
			out, err := r.command("-c", "core.filesRefLockTimeout=0", "update-ref", "refs/relo/a", next.String()).CombinedOutput()
			tried = fmt.Sprint(string(out), err)
		}
		return nil
	})
	err := s.UpdateRefs(gitstore.RefUpdate{Name: "refs/relo/a", Old: at, New: next})
	restore()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(tried, "File exists") {
		t.Errorf("Git in the middle of our update: %q", tried)
	}

	hold := r.command("update-ref", "--stdin")
	in, _ := hold.StdinPipe()
	out, _ := hold.StdoutPipe()
	if err := hold.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(in, "start\nupdate refs/relo/a %s\nprepare\n", at)
	buf := make([]byte, 64)
	for got := ""; !strings.Contains(got, "prepare: ok"); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	if err := s.UpdateRefs(gitstore.RefUpdate{Name: "refs/relo/a", Old: next, New: at}); !errors.Is(err, gitstore.ErrRefLocked) {
		t.Errorf("%v, want ErrRefLocked", err)
	}
	in.Close()
	hold.Wait()
	if got := r.ref("refs/relo/a"); got != next {
		t.Errorf("ref is at %s", got)
	}
	if err := s.UpdateRefs(gitstore.RefUpdate{Name: "refs/relo/a", Old: next, New: at}); err != nil {
		t.Errorf("once Git has let go: %v", err)
	}
}
