//go:build !windows

package overlay_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/relofs/relofs/overlay"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		crashChild()
	}
	os.Exit(m.Run())
}

// crashEnv makes the test binary run one change of the workspace in the named
// repository and die by SIGKILL at the n-th step: "<dir> <n> <change>".
const crashEnv = "RELOFS_TEST_CRASH"

var changes = map[string]func(context.Context, *overlay.Engine, *overlay.Workspace) error{
	"create": func(ctx context.Context, e *overlay.Engine, _ *overlay.Workspace) error {
		_, err := e.Create(ctx, "fresh", overlay.CreateOptions{})
		return err
	},
	"sync": func(ctx context.Context, _ *overlay.Engine, w *overlay.Workspace) error {
		_, err := w.Sync(ctx)
		return err
	},
	"undo": func(ctx context.Context, _ *overlay.Engine, w *overlay.Workspace) error {
		_, err := w.Undo(ctx, nil)
		return err
	},
	"restore": func(ctx context.Context, _ *overlay.Engine, w *overlay.Workspace) error {
		_, err := w.Restore(ctx, "1", []string{"src", "main.go"}, nil)
		return err
	},
	"settle": func(ctx context.Context, _ *overlay.Engine, w *overlay.Workspace) error {
		_, err := w.Settle(ctx)
		return err
	},
	"remove": func(ctx context.Context, _ *overlay.Engine, w *overlay.Workspace) error {
		return w.Remove(ctx, true)
	},
}

func crashChild() {
	fields := strings.SplitN(os.Getenv(crashEnv), " ", 3)
	left, _ := strconv.Atoi(fields[0])
	e, err := overlay.Open(fields[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	w, err := e.Workspace("a")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	overlay.SetFailpoint(func(string) {
		if left--; left < 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if err := changes[fields[1]](context.Background(), e, w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	os.Exit(0)
}

func TestDyingAtAnyStepLosesNothing(t *testing.T) {
	for change := range changes {
		t.Run(change, func(t *testing.T) {
			for step := 0; ; step++ {
				if step > 100 {
					t.Fatal("the change never ends")
				}
				if survivedWithoutDying := crashAt(t, change, step); survivedWithoutDying {
					if step == 0 && change != "sync" {
						t.Error("there is no step to die at")
					}
					return
				}
			}
		})
	}
}

// crashAt lets a process die at a step of change, recovers, and checks that the
// workspace shows what it showed before or what the change leads to, with
// nothing half done. It reports whether the change ended before the step.
func crashAt(t *testing.T, change string, step int) (ended bool) {
	t.Helper()
	r := newRepo(t, sample)
	r.git("config", "relo.capture.maxFileSize", "1k")
	e := r.open()
	w := create(t, e, "a")
	w.write("main.go", "one\n")
	w.write("src/a.go", "one\n")
	w.sync()
	w.write("main.go", "two\n")
	w.remove("src")
	w.write("src/deep/new", "two\n")
	w.write("build/out", "built")
	w.write("huge", strings.Repeat("h", 2000))
	w.sync()
	w.write("pending", "three\n")
	want := w.walk("")
	e.Close()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", crashEnv, step, change, r.dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() {
			t.Fatalf("%s: %v: %s", change, err, out)
		}
	}
	r.fsck()
	r.git("gc", "-q", "--prune=now")

	e = r.open()
	defer e.Close()
	report, err := e.Recover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) > 0 {
		t.Errorf("%s at step %d: problems %q", change, step, report.Problems)
	}
	if entries, _ := filepath.Glob(filepath.Join(r.dir, ".git/relo/upper/*/*.tmp")); len(entries) > 0 {
		t.Logf("left: %v", entries)
	}
	ws, err := e.Workspace("a")
	if change == "remove" && err != nil {
		if refs := r.git("for-each-ref", "refs/relo"); refs != "" {
			t.Errorf("removed, but refs are left: %s", refs)
		}
		return cmd.ProcessState.Success()
	}
	if err != nil {
		t.Fatalf("%s at step %d: %v", change, step, err)
	}
	w = space{ws, t}
	got := w.walk("")
	if !maps.Equal(got, want) {
		// A rewind that had begun is completed; undoing it leads back.
		switch change {
		case "undo":
			w.redo()
		case "restore":
			w.undo()
		}
		if got := w.walk(""); !maps.Equal(got, want) {
			t.Errorf("%s at step %d: the workspace shows %v, want %v", change, step, got, want)
		}
	}
	w.sync()
	if w.sync().Published {
		t.Error("publishing does not settle down")
	}
	return cmd.ProcessState.Success()
}
