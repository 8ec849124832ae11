package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/mountmgr"
)

// needMounts skips a test on a machine that cannot mount, except where that is
// not accepted.
func needMounts(t *testing.T) {
	t.Helper()
	report := mountmgr.Probe("")
	if report.OK() {
		return
	}
	if os.Getenv("RELOFS_REQUIRE_FUSE") == "1" {
		t.Fatalf("mounts are required and not possible: %+v", report)
	}
	t.Skipf("mounts are not possible: %+v", report)
}

func newRepository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `git init -q -b main . && mkdir sub && echo one > a.txt && echo two > sub/b.txt &&
		git add -A && git -c user.name=T -c user.email=t@example.com commit -qm first`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func TestRunIsTheCommandInTheAgentsDirectory(t *testing.T) {
	needMounts(t)
	place(t)
	repo := newRepository(t)
	t.Setenv("GIT_DIR", "/somewhere/.git") // as in a hook
	r := run(t, repo, "create", "ada")
	workspace := strings.TrimSpace(r.out)
	if r.status != 0 || !filepath.IsAbs(workspace) {
		t.Fatalf("create: %+v", r)
	}
	for _, c := range []struct {
		script string
		status int
		out    string
	}{
		{"exit 0", 0, ""},
		{"exit 3", 3, ""},
		{"kill -TERM $$", 143, ""},
		{"pwd; echo $PWD", 0, workspace + "/sub\n" + workspace + "/sub\n"},
		{"echo $RELOFS_AGENT $RELOFS_WORKSPACE", 0, "ada " + workspace + "\n"},
		{"echo ${GIT_DIR-none}", 0, "none\n"},
		{"cat b.txt ../a.txt", 0, "two\none\n"},
	} {
		r := runProgram(t, filepath.Join(repo, "sub"), "run", "ada", "--", "sh", "-c", c.script)
		if r.status != c.status || r.out != c.out || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "no changes") {
			t.Errorf("%s: %+v", c.script, r)
		}
	}
	if r := runProgram(t, repo, "run", "ada", "--", "no-such-program"); r.status != 127 {
		t.Errorf("no such program: %+v", r)
	}
	if r := runProgram(t, repo, "run", "ada", "--", "./a.txt"); r.status != 126 {
		t.Errorf("no program: %+v", r)
	}
	if r := runProgram(t, repo, "run", "ada", "--", "sh", "-c", "echo more >> a.txt"); r.status != 0 || !strings.Contains(r.err, "revision 1 ") {
		t.Errorf("a change: %+v", r)
	}
	// The subdirectory is not there in the workspace.
	if err := os.Mkdir(filepath.Join(repo, "mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := runProgram(t, filepath.Join(repo, "mine"), "run", "ada", "--", "pwd"); r.out != workspace+"\n" {
		t.Errorf("in a directory of the checkout alone: %+v", r)
	}
}

func TestACommandsDataIsJSON(t *testing.T) {
	needMounts(t)
	place(t)
	repo := newRepository(t)
	var mounted api.MountResponse
	for _, c := range []struct {
		line string
		into any
	}{
		{"create ada", &mounted},
		{"mount ada", new(api.MountResponse)},
		{"path ada", new(map[string]string)},
		{"list", new(api.ListResponse)},
		{"status ada", new(api.StatusResponse)},
		{"log ada", new(api.LogResponse)},
		{"diff ada", new(map[string]string)},
		{"show ada:a.txt", new(api.File)},
		{"sync ada", new(api.SyncResponse)},
		{"recover", new(api.RecoverResponse)},
		{"doctor", new(diagnosis)},
		{"daemon status", new(api.DaemonStatus)},
		{"daemon start", new(api.DaemonStatus)},
		{"unmount ada", new(api.UnmountResponse)},
		{"settle ada", new(api.SettleResponse)},
		{"remove ada", new(api.RemoveResponse)},
		{"daemon stop", new(api.StopResponse)},
	} {
		r := run(t, repo, append(strings.Fields(c.line), "--json")...)
		if err := json.Unmarshal([]byte(r.out), c.into); err != nil || r.status != 0 || r.err != "" {
			t.Errorf("relofs %s: %v, %+v", c.line, err, r)
		}
	}
	if !mounted.Created || mounted.EngineUS <= 0 || mounted.Workspace.State != api.Mounted {
		t.Errorf("create said %+v", mounted)
	}
}

func TestTryTellsItsStoryAndLeavesNothing(t *testing.T) {
	needMounts(t)
	place(t)
	room := t.TempDir()
	t.Setenv("TMPDIR", room)
	r := runProgram(t, room, "try")
	if r.status != 0 || !strings.Contains(r.out, "Nothing is mounted") {
		t.Fatalf("%+v", r)
	}
	if left, err := os.ReadDir(room); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if left, err := mountsBelow(room); err != nil || left != "" {
		t.Errorf("left: %s, %v", left, err)
	}
}
