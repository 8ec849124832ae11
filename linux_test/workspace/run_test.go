//go:build linux

package workspace_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestRunExitsAsTheCommandDoes(t *testing.T) {
	r := sample(t)
	for _, test := range []struct {
		argv []string
		code int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 7"}, 7},
		{[]string{"sh", "-c", "exit 255"}, 255},
		{[]string{"sh", "-c", "kill -9 $$"}, 128 + 9},
		{[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15},
		{[]string{"no-such-program-here"}, 127},
		{[]string{"./README.md"}, 126},
		{[]string{"./tool.sh"}, 0},
	} {
		got := r.Try(r.Dir, append([]string{"run", "alice", "--"}, test.argv...)...)
		if got.Code != test.code {
			t.Errorf("run -- %q exits with %d, want %d\n%s", test.argv, got.Code, test.code, got.Stderr)
		}
	}
}

func TestRunPublishesWhatTheCommandWroteWhateverItsStatus(t *testing.T) {
	r := sample(t)
	got := r.Try(r.Dir, "run", "alice", "--", "sh", "-c", "echo out; echo err >&2; echo x >x; exit 3")
	if got.Code != 3 || got.Stdout != "out\n" || !strings.HasPrefix(got.Stderr, "err\n") {
		t.Errorf("run: %+v", got)
	}
	if got := r.Git("show", "refs/relo/vws/alice/overlay:x"); got != "x" {
		t.Errorf("the revision's x holds %q", got)
	}
}

func TestRunGivesTheCommandItsPlaceAndInput(t *testing.T) {
	r := sample(t)
	const script = `printf '%s\n' "$RELOFS_AGENT" "$RELOFS_WORKSPACE" "$PWD" "$(pwd -P)" "${GIT_DIR-none}"; cat`
	for sub, where := range map[string]string{"": "", "src/deep": "/src/deep", "made-by-user": ""} {
		dir := filepath.Join(r.Dir, sub)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := r.Command(dir, "run", "alice", "--", "sh", "-c", script)
		cmd.Env = append(cmd.Env, "GIT_DIR="+r.Dir+"/.git")
		cmd.Stdin = strings.NewReader("from stdin")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		root := strings.TrimSpace(r.Run(r.Dir, "path", "alice"))
		want := fmt.Sprintf("alice\n%s\n%s%s\n%s%s\nnone\nfrom stdin", root, root, where, root, where)
		if string(out) != want {
			t.Errorf("in %q the command sees\n%s\nwant\n%s", sub, out, want)
		}
	}
	// From inside the mount the agent's own directory is meant as well.
	root := strings.TrimSpace(r.Run(r.Dir, "path", "alice"))
	if got := r.Run(r.Dir, "-C", "src", "run", "alice", "--", "pwd"); got != root+"/src\n" {
		t.Errorf("with -C src the command runs in %q", got)
	}
}

func TestRunPassesSignalsOn(t *testing.T) {
	r := sample(t)
	r.Create("alice")
	for _, sig := range []struct {
		name string
		num  syscall.Signal
	}{{"TERM", syscall.SIGTERM}, {"INT", syscall.SIGINT}, {"HUP", syscall.SIGHUP}, {"USR1", syscall.SIGUSR1}} {
		cmd := r.Command(r.Dir, "run", "alice", "--", "sh", "-c",
			"trap 'echo "+sig.name+" >got; exit 9' "+sig.name+"; echo ready; while :; do sleep 0.05; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("the command says %q, %v", line, err)
		}
		if err := cmd.Process.Signal(sig.num); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 9 {
			t.Errorf("after SIG%s run exits with %d, want 9", sig.name, code)
		}
		if got := r.Git("show", "refs/relo/vws/alice/overlay:got"); got != sig.name {
			t.Errorf("after SIG%s the revision's file says %q", sig.name, got)
		}
	}
}

func TestRunTakesAnExistingWorkspaceOnlyIfItIsTheWantedOne(t *testing.T) {
	r := sample(t)
	first := r.Git("rev-parse", "HEAD")
	r.Run(r.Dir, "run", "alice", "--", "sh", "-c", "echo 1 >one")
	harness.WriteFile(t, filepath.Join(r.Dir, "README.md"), "second\n")
	r.Git("commit", "-qam", "second")

	if got := r.Run(r.Dir, "run", "alice", "--", "cat", "one", "README.md"); got != "1\nhello\n" {
		t.Errorf("the second run sees %q", got)
	}
	r.Run(r.Dir, "run", "alice", "--base", first, "--", "true")
	r.WantRefusal(r.Dir, 3, "workspace_exists", "run", "alice", "--base", "main", "--", "true")
	r.WantRefusal(r.Dir, 3, "workspace_exists", "run", "alice", "--read-only", "--", "true")
	r.WantRefusal(r.Dir, 1, "unknown_revision", "run", "alice", "--base", "nothing", "--", "true")
	r.WantRefusal(r.Dir, 2, "usage", "run", "alice")
	r.WantRefusal(r.Dir, 2, "usage", "run", "alice", "--")
	r.WantRefusal(r.Dir, 2, "usage", "run", "--", "true")

	r.Run(r.Dir, "unmount", "alice")
	if got := r.Run(r.Dir, "run", "alice", "--", "cat", "one"); got != "1\n" {
		t.Errorf("after unmount, run sees %q", got)
	}
}
