//go:build linux

// Package harness is what the end-to-end tests share: the built program, a
// private daemon, repositories, and verbs that read like the domain.
//
// Every test gets runtime and state directories of its own, so it never meets
// the user's daemon or another test's. When it ends, the daemon must stop
// cleanly, no mount may be left, and `git fsck --strict` must be clean in every
// repository it made.
package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programVariable names a program that is built already, a release for example,
// to be tested instead of this source tree's.
const programVariable = "RELOFS_PROGRAM"

var build = sync.OnceValues(func() (string, error) {
	if program := os.Getenv(programVariable); program != "" {
		return program, nil
	}
	dir, err := os.MkdirTemp("", "relofs-program")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "relofs")
	cmd := exec.Command("go", "build", "-o", program, "github.com/relofs/relofs/cmd/relofs")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
})

// Main runs a package's tests in a temporary directory of their own, which
// must hold no mount at the end: packages are tested at the same time.
func Main(m *testing.M) {
	root, err := os.MkdirTemp("", "rle")
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err == nil {
		err = os.Setenv("TMPDIR", root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if left := mountsBelow(root); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "mounts are left:", left)
		code = 1
	} else {
		os.RemoveAll(root)
	}
	os.Exit(code)
}

// World is a machine's view of one user: a place for the daemon and its state.
type World struct {
	T       testing.TB
	Program string
	Runtime string // XDG_RUNTIME_DIR
	State   string // XDG_STATE_HOME
	Home    string
	env     []string
}

// New makes a world, or skips the test where nothing can be mounted (fails, if
// RELOFS_REQUIRE_FUSE=1).
func New(t testing.TB) *World {
	t.Helper()
	requireMounts(t)
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	// Short, for the socket's path has a limit.
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	w := &World{T: t, Program: program, Runtime: dir + "/run", State: dir + "/state", Home: dir + "/home"}
	for _, d := range []string{w.Runtime, w.State, w.Home} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "XDG_") && !strings.HasPrefix(v, "GIT_") && !strings.HasPrefix(v, "HOME=") {
			w.env = append(w.env, v)
		}
	}
	gocache, _ := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	dirs := strings.Fields(string(gocache))
	w.env = append(w.env, "XDG_RUNTIME_DIR="+w.Runtime, "XDG_STATE_HOME="+w.State, "HOME="+w.Home,
		"GOCACHE="+dirs[0], "GOMODCACHE="+dirs[1], "GOFLAGS=-buildvcs=false", "NO_COLOR=1",
		"GIT_CONFIG_NOSYSTEM=1")
	t.Cleanup(func() {
		w.stop()
		if left := mountsBelow(dir); len(left) > 0 {
			t.Errorf("mounts are left: %v", left)
			for i := len(left) - 1; i >= 0; i-- {
				syscall.Unmount(left[i], syscall.MNT_DETACH)
			}
		}
		os.RemoveAll(dir)
	})
	return w
}

func requireMounts(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
	if err == nil && os.Geteuid() == 0 {
		return
	}
	if os.Getenv("RELOFS_REQUIRE_FUSE") == "1" {
		t.Fatalf("mounts are required here, but /dev/fuse: %v, uid %d", err, os.Geteuid())
	}
	t.Skip("needs root and /dev/fuse")
}

// stop ends the daemon, if one runs.
func (w *World) stop() {
	w.T.Helper()
	if pid := w.DaemonPID(); pid != 0 {
		if r := w.Try("/", "daemon", "stop"); r.Code != 0 {
			w.T.Errorf("daemon stop: %s", r.Stderr)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if w.T.Failed() {
		if data, err := os.ReadFile(filepath.Join(w.State, "relofs", "daemon.log")); err == nil {
			w.T.Logf("daemon.log:\n%s", tail(data, 8000))
		}
	}
}

func tail(data []byte, n int) []byte {
	if len(data) > n {
		data = data[len(data)-n:]
	}
	return data
}

// DaemonPID is the running daemon's process, 0 for none. It starts none.
func (w *World) DaemonPID() int {
	r := w.Try("/", "--json", "daemon", "status")
	var status struct {
		PID     int  `json:"pid"`
		Running bool `json:"running"`
	}
	if json.Unmarshal([]byte(r.Stdout), &status) != nil {
		return 0
	}
	return status.PID
}

// Kill ends the daemon by SIGKILL, as a crash would, and waits until it is gone.
func (w *World) Kill() {
	w.T.Helper()
	pid := w.DaemonPID()
	if pid == 0 {
		w.T.Fatal("no daemon to kill")
	}
	syscall.Kill(pid, syscall.SIGKILL)
	for range 500 {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) || isZombie(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.T.Fatalf("process %d does not end", pid)
}

func isZombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(rest, "Z")
}

// Result is what a command printed and how it ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Command is the program with args, to be run in dir.
func (w *World) Command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(w.Program, args...)
	cmd.Dir, cmd.Env = dir, w.env
	return cmd
}

// Env is the environment of the world's processes, a copy to append to.
func (w *World) Env() []string { return slices.Clone(w.env) }

// Try runs the program in dir, however it ends.
func (w *World) Try(dir string, args ...string) Result {
	w.T.Helper()
	return w.Finish(w.Command(dir, args...))
}

// Finish runs a command, however it ends.
func (w *World) Finish(cmd *exec.Cmd) Result {
	w.T.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.T.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// Run runs the program in dir; it must succeed.
func (w *World) Run(dir string, args ...string) string {
	w.T.Helper()
	r := w.Try(dir, args...)
	if r.Code != 0 {
		w.T.Fatalf("relofs %s: exit status %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// JSON runs the program with --json and decodes what it prints into v.
func (w *World) JSON(dir string, v any, args ...string) {
	w.T.Helper()
	out := w.Run(dir, append([]string{"--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		w.T.Fatalf("relofs %s prints %q: %v", strings.Join(args, " "), out, err)
	}
}

// WantRefusal runs the program, which must fail with the exit status and the
// code, say what happened on stderr and give a hint.
func (w *World) WantRefusal(dir string, exit int, code string, args ...string) {
	w.T.Helper()
	w.WantRefusalOf(w.Command(dir, append([]string{"--json"}, args...)...), exit, code)
}

// WantRefusalOf is WantRefusal for a command that runs the program with --json.
func (w *World) WantRefusalOf(cmd *exec.Cmd, exit int, code string) {
	w.T.Helper()
	args := cmd.Args[1:]
	r := w.Finish(cmd)
	var got struct {
		Error struct{ Code, Message, Remedy string } `json:"error"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
		w.T.Errorf("relofs %s prints %q, %q: %v", strings.Join(args, " "), r.Stdout, r.Stderr, err)
		return
	}
	if r.Code != exit || got.Error.Code != code || got.Error.Message == "" || got.Error.Remedy == "" {
		w.T.Errorf("relofs %s: exit status %d, %+v; want %d, %s", strings.Join(args, " "), r.Code, got.Error, exit, code)
	}
}

// mountsBelow lists the mount points below dir, in the order of mounting.
func mountsBelow(dir string) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") && (strings.Contains(line, "relofs")) {
			out = append(out, fields[4])
		}
	}
	return out
}

// Mounts lists the world's mount points.
func (w *World) Mounts() []string { return mountsBelow(filepath.Dir(w.State)) }
