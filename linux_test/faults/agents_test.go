//go:build linux

package faults_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestFiftyAgentsAtOnceLoseNothingAndLeaveNothing(t *testing.T) {
	const agents = 50
	w := harness.New(t)
	r := w.Repository(harness.Sample)
	before := r.UserState()
	name := func(i int) string { return fmt.Sprintf("agent%02d", i) }
	// All begin together: no daemon runs, nothing is mounted.
	all := func(script string) {
		t.Helper()
		var wg sync.WaitGroup
		results := make([]harness.Result, agents)
		for i := range agents {
			wg.Go(func() {
				cmd := exec.Command("sh", "-ec", script)
				cmd.Dir, cmd.Env = r.Dir, append(w.Env(), "RELOFS="+w.Program, "AGENT="+name(i))
				results[i] = w.Finish(cmd)
			})
		}
		wg.Wait()
		for i, s := range results {
			if s.Code != 0 {
				t.Errorf("%s: exit status %d: %s%s", name(i), s.Code, s.Stdout, s.Stderr)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	all(`dir=$("$RELOFS" create "$AGENT")
		echo "$AGENT" >"$dir/own"; echo "$AGENT" >>"$dir/README.md"; rm "$dir/src/a.go"
		"$RELOFS" sync "$AGENT"
		echo again >>"$dir/own"
		"$RELOFS" unmount "$AGENT"`)
	for i := range agents {
		ref := "refs/relo/vws/" + name(i) + "/overlay"
		if got := r.Git("show", ref+":own"); got != name(i)+"\nagain" {
			t.Errorf("%s: own holds %q", name(i), got)
		}
		if got := r.Git("show", ref+":README.md"); got != "hello\n"+name(i) {
			t.Errorf("%s: README.md holds %q", name(i), got)
		}
		if got := r.Git("show", ref+"~:own"); got != name(i) && got != "" {
			t.Errorf("%s: the revision before holds %q", name(i), got)
		}
	}
	wantChain(t, &harness.Agent{Repository: r, Name: name(7)})
	all(`"$RELOFS" remove "$AGENT" --force`)
	if refs := r.Git("for-each-ref", "refs/relo"); refs != "" {
		t.Errorf("refs are left: %s", refs)
	}
	if left, _ := filepath.Glob(filepath.Join(r.Dir, ".git/relo/upper/*")); len(left) > 0 {
		t.Errorf("directories are left: %v", left)
	}
	wantMounts(t, w, 0)
	if after := r.UserState(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// The user keeps house with no grace period while agents publish and the daemon
// is killed.
func TestHousekeepingByTheUserLosesNothing(t *testing.T) {
	w := harness.New(t)
	r := w.Repository(harness.Sample)
	agents := []*harness.Agent{r.Create("a"), r.Create("b")}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for _, args := range [][]string{{"gc", "-q", "--prune=now"}, {"repack", "-adq"}, {"pack-refs", "--all", "--prune"}, {"prune", "--expire=now"}} {
				select {
				case <-stop:
					return
				default:
				}
				cmd := exec.Command("git", args...)
				cmd.Dir, cmd.Env = r.Dir, w.Env()
				// A ref that is locked at the moment or a pack that just went
				// is reported by Git and no harm.
				if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "lock") {
					t.Errorf("git %v: %v %s", args, err, out)
				}
			}
		}
	})
	want := map[string]string{}
	for round := range killRounds() {
		for _, a := range agents {
			for i := range 3 {
				path := fmt.Sprintf("r%d-%d", round, i)
				want[path] = fmt.Sprintf("%s in %s\n", a.Name, path)
				a.Write(path, want[path])
			}
			if round%2 == 0 {
				w.Run(r.Dir, "sync", a.Name)
			}
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		killDaemon(t, w.DaemonPID())
		w.Run(r.Dir, "list")
		for _, a := range agents {
			a.WantFile("src/deep/b.go", "package deep\n")
			for path := range want {
				a.WantFile(path, fmt.Sprintf("%s in %s\n", a.Name, path))
			}
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	wg.Wait()
	for _, a := range agents {
		a.Sync()
		for path := range want {
			if got := r.Git("show", a.Ref()+":"+path); got != fmt.Sprintf("%s in %s", a.Name, path) {
				t.Errorf("%s: the revision holds %q in %s", a.Name, got, path)
			}
		}
		wantChain(t, a)
	}
}

func TestKilledClientsLeaveEverythingInOrder(t *testing.T) {
	w := harness.New(t)
	r := w.Repository(harness.Sample)
	a := r.Create("a")
	many := func(text string) {
		a.Shell(fmt.Sprintf("mkdir -p many; for i in $(seq 200); do echo %s $i >many/$i; done", text))
	}
	many("one")
	a.Sync()
	for round := range killRounds() {
		many(fmt.Sprintf("round%d", round))
		a.Sync()
		trees := map[string]bool{}
		for _, rev := range strings.Fields(a.Git("log", "--format=%T", a.Ref())) {
			trees[rev] = true
		}
		args := [][]string{
			{"undo", "a"}, {"create", fmt.Sprintf("new%d", round)}, {"sync", "a"},
			{"run", fmt.Sprintf("new%d", round), "--", "sh", "-c", "while :; do echo x >>file; done"},
		}[round%4]
		cmd := w.Command(r.Dir, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, cmd.Start())
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()

		w.Run(r.Dir, "status", "a")
		// An undo is there as a whole or not at all.
		if _, tree := a.Sync(); !trees[tree] {
			t.Errorf("after a killed %v the workspace holds a mixture: %s", args, r.Git("diff", "--stat", a.Ref()+"~", a.Ref()))
		}
		wantChain(t, a)
		for _, extra := range strings.Fields(r.Git("for-each-ref", "--format=%(refname)", "refs/relo/vws/new*/overlay")) {
			w.Run(r.Dir, "remove", strings.Split(extra, "/")[3], "--force")
		}
		wantMounts(t, w, 1)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// A daemon killed while a child process carries out an undo through the mount:
// what the child still does must not mix with what the next daemon completes.
func TestKillDuringUndoEndsWithOneSide(t *testing.T) {
	w := harness.New(t)
	r := w.Repository(harness.Sample)
	a := r.Create("a")
	for round := range killRounds() {
		a.Shell(fmt.Sprintf("mkdir -p many; for i in $(seq 300); do echo round%d $i >many/$i; done", round))
		a.Sync()
		trees := map[string]bool{}
		for _, rev := range strings.Fields(a.Git("log", "--format=%T", a.Ref())) {
			trees[rev] = true
		}
		pid := w.DaemonPID()
		cmd := w.Command(r.Dir, "undo", "a")
		must(t, cmd.Start())
		time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
		killDaemon(t, pid)
		cmd.Wait()
		w.Run(r.Dir, "list")
		time.Sleep(50 * time.Millisecond) // for a child that lives on
		if _, tree := a.Sync(); !trees[tree] {
			t.Fatalf("round %d: a mixture: %s", round, r.Git("diff", "--stat", a.Ref()+"~", a.Ref()))
		}
		wantChain(t, a)
		wantMounts(t, w, 1)
	}
}

func TestTerminatedDaemonLosesNothingOfActiveWriters(t *testing.T) {
	w := harness.New(t)
	base := map[string]string{"d/keep": "kept\n"}
	for round := range 2 {
		for i := range 3 {
			name := fmt.Sprintf("t%d-%d", round, i)
			base[seedPath(name)] = seedContent(name)
		}
	}
	a := w.Repository(base).Create("a")
	for round, end := range []func(pid int){
		func(pid int) { syscall.Kill(pid, syscall.SIGTERM) },
		func(int) { w.Run("/", "daemon", "stop") },
	} {
		pid := w.DaemonPID()
		var sessions []*session
		for i := range 3 {
			sessions = append(sessions, startWriter(a, fmt.Sprintf("t%d-%d", round, i)))
		}
		for _, s := range sessions {
			within(t, 20*time.Second, s.name+" writes", func() bool {
				_, _, acks, _ := s.acknowledged(t)
				return acks > 50
			})
		}
		end(pid)
		waitGone(t, pid)
		wantMounts(t, w, 0)
		for _, s := range sessions {
			s.stop()
		}
		if names, err := os.ReadDir(a.Root); err == nil && len(names) > 0 {
			t.Errorf("files below the mount point: %v", names)
		}
		w.Run(a.Dir, "list")
		wantMounts(t, w, 1)
		for _, s := range sessions {
			s.check(t)
		}
		a.Sync()
		wantChain(t, a)
	}
}

// Tools make the directories they need. One that does so while no daemon lives
// and the next one replaces the mount must not write below the mount point,
// where nobody would find it and which would no longer be empty.
func TestDirectoriesMadeDuringARestartAreInTheWorkspace(t *testing.T) {
	w := harness.New(t)
	a := w.Repository(harness.Sample).Create("a")
	for round := range killRounds() {
		acks := filepath.Join(w.Home, fmt.Sprint("acks", round))
		tool := exec.Command("sh", "-c", `n=0; while :; do n=$((n+1))
			mkdir -p "$ROOT/out/$ROUND/$n" 2>/dev/null && echo $n >"$ROOT/out/$ROUND/$n/file" 2>/dev/null && echo $n >>"$ACKS"
		done`)
		tool.Env = append(w.Env(), "ROOT="+a.Root, "ACKS="+acks, fmt.Sprint("ROUND=", round))
		tool.Dir = "/"
		must(t, tool.Start())
		time.Sleep(20 * time.Millisecond)
		killDaemon(t, w.DaemonPID())
		s := w.Try(a.Dir, "sync", "a")
		time.Sleep(20 * time.Millisecond)
		tool.Process.Kill()
		tool.Wait()
		if s.Code != 0 {
			t.Fatalf("round %d: %s", round, s.Stderr)
		}
		wantMounts(t, w, 1)
		data, _ := os.ReadFile(acks)
		for _, n := range strings.Fields(string(data)) {
			a.WantFile(filepath.Join("out", fmt.Sprint(round), n, "file"), n+"\n")
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}
