//go:build linux

// Package faults_test kills, fills, corrupts and takes away what relofs stands
// on, on real mounts of the built program, and holds it to one rule: whatever
// happens, what a tool was told is written is there afterwards, the chain of
// revisions is intact, nothing stays mounted that should not, and whoever has
// to know is told by a stable code.
package faults_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relofs/relofs/linux_test/harness"
)

var kills = flag.Int("kills", 0, "how many random moments the daemon is killed at; 0 for a few, 100 in a full run")

func TestMain(m *testing.M) {
	if session := os.Getenv(writerVariable); session != "" {
		os.Exit(write(session))
	}
	harness.Main(m)
}

// killRounds is how many rounds a test with kills has.
func killRounds() int {
	switch {
	case *kills > 0:
		return *kills
	case testing.Short():
		return 3
	}
	return 8
}

// killDaemon ends the daemon as a crash would and waits until it is gone. It
// needs no answer from the daemon, so it comes at any moment.
func killDaemon(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill daemon %d: %v", pid, err)
	}
	waitGone(t, pid)
}

func waitGone(t testing.TB, pid int) {
	t.Helper()
	within(t, 20*time.Second, fmt.Sprintf("process %d ends", pid), func() bool {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return true
		}
		_, state, _ := bytes.Cut(data, []byte(") "))
		return bytes.HasPrefix(state, []byte("Z"))
	})
}

// within waits until ok holds.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// wantMounts checks that the world's mounts are n workspaces and at least one
// lower below them, and that each answers.
func wantMounts(t testing.TB, w *harness.World, n int) {
	t.Helper()
	var workspaces, lowers int
	for _, point := range w.Mounts() {
		if strings.HasPrefix(point, w.Runtime) {
			lowers++
		} else {
			workspaces++
		}
		if _, err := os.ReadDir(point); err != nil {
			t.Errorf("stale mount: %v", err)
		}
	}
	if workspaces != n || n > 0 && lowers == 0 || lowers > max(n, 5) {
		t.Errorf("%d workspaces and %d lowers are mounted, want %d workspaces: %v", workspaces, lowers, n, w.Mounts())
	}
}

var revisionSubject = regexp.MustCompile(`^relofs: revision (\d+) of `)

// wantChain checks that the published revisions are numbered without a gap,
// that the parent of each is the one before and that of the first the base, and
// returns their number.
func wantChain(t testing.TB, a *harness.Agent) int {
	t.Helper()
	base := a.Git("rev-parse", "refs/relo/vws/"+a.Name+"/base")
	var wantParent string
	lines := strings.Split(a.Git("log", "--reverse", "--topo-order", "--format=%H %P %s", base+"..refs/relo/vws/"+a.Name+"/overlay"), "\n")
	wantParent = base
	for n, line := range lines {
		commit, rest, _ := strings.Cut(line, " ")
		parents, subject, _ := strings.Cut(rest, " ")
		if parents != wantParent {
			t.Errorf("%s: parent of %s is %s, want %s", a.Name, commit, parents, wantParent)
		}
		m := revisionSubject.FindStringSubmatch(subject)
		if m == nil || m[1] != fmt.Sprint(n) {
			t.Errorf("%s: revision %d is %q", a.Name, n, subject)
		}
		wantParent = commit
	}
	if out := a.Git("fsck", "--strict", "--no-dangling", "--no-progress"); out != "" {
		t.Errorf("git fsck --strict: %s", out)
	}
	return len(lines)
}

// command runs an ordinary program, which must succeed.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// daemonLog is what the daemon has written down.
func daemonLog(w *harness.World) string {
	data, err := os.ReadFile(filepath.Join(w.State, "relofs", "daemon.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.T.Error(err)
	}
	return string(data)
}
