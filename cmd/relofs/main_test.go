package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

// TestMain lets the test binary be relofs, also for the daemon it starts.
func TestMain(m *testing.M) {
	if os.Getenv("RELOFS_TEST_MAIN") == "1" {
		t := &tool{out: os.Stdout, errOut: os.Stderr}
		os.Exit(t.main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// outcome is what one command line came to.
type outcome struct {
	status   int
	out, err string
}

// run runs relofs in dir, in this process.
func run(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	t.Chdir(dir)
	var out, errOut bytes.Buffer
	status := (&tool{out: &out, errOut: &errOut}).main(args)
	return outcome{status, out.String(), errOut.String()}
}

// runProgram runs relofs in dir as a program of its own.
func runProgram(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// place gives the test's commands directories of their own; no daemon runs there
// unless the test starts one.
func place(t *testing.T) {
	t.Helper()
	t.Setenv("RELOFS_TEST_MAIN", "1") // for the programs of this test
	dir, err := os.MkdirTemp("", "relofs")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("XDG_STATE_HOME", dir+"/state")
	t.Cleanup(func() {
		if r := run(t, "/", "daemon", "stop"); r.status != 0 {
			t.Errorf("daemon stop: %+v", r)
			return // what is mounted must not be deleted
		}
		if left, err := mountsBelow(dir); err != nil || left != "" {
			t.Errorf("left: %s (%v)", left, err)
			return
		}
		os.RemoveAll(dir)
	})
}

func TestMisuseEndsWithTwoAndSaysHow(t *testing.T) {
	place(t)
	dir := t.TempDir()
	for _, line := range []string{
		"frobnicate",
		"help frobnicate",
		"--frob",
		"create",
		"create a b",
		"create a --frob",
		"create a --base",
		"create a -- b",
		"run",
		"run a",
		"run a true",
		"run -- true",
		"mount",
		"mount a b c",
		"unmount",
		"path",
		"list a",
		"status",
		"status a b",
		"log",
		"log a -n 0",
		"log a -n x",
		"diff",
		"diff a 1 2",
		"diff a ..",
		"diff a --",
		"show",
		"show a",
		"show @1:x",
		"show a@:x",
		"sync",
		"undo",
		"redo a b",
		"restore a",
		"restore a --to",
		"restore a --to -- x",
		"list -C",
		"restore a --to 1 --",
		"settle",
		"remove",
		"recover a",
		"doctor a",
		"daemon",
		"daemon frobnicate",
		"daemon start now",
		"try a",
		"completion",
		"completion csh",
	} {
		r := run(t, dir, strings.Fields(line)...)
		if r.status != 2 || r.out != "" || !strings.HasPrefix(r.err, "relofs: ") || !strings.Contains(r.err, "\n  hint: ") {
			t.Errorf("relofs %s: status %d\nout: %s\nerr: %s", line, r.status, r.out, r.err)
		}
	}
	if r := run(t, "/", "daemon", "status"); r.status != 1 {
		t.Errorf("one of these started a daemon: %+v", r)
	}
}

func TestHintsNameTheCommandAndTheAgent(t *testing.T) {
	tool := &tool{}
	for _, c := range []struct{ line, err string }{
		{"create a --frob", "relofs: create: flag provided but not defined: --frob\n  hint: See `relofs help create`.\n"},
		{"create a --base", "relofs: create: flag needs an argument: --base\n  hint: See `relofs help create`.\n"},
		{"daemon start now", "relofs: usage: relofs daemon start\n  hint: See `relofs help daemon start`.\n"},
		{"list -C", "relofs: flag needs an argument: -C\n  hint: See `relofs help COMMAND`.\n"},
	} {
		if r := run(t, "/", strings.Fields(c.line)...); r.err != c.err {
			t.Errorf("relofs %s: %s", c.line, r.err)
		}
	}
	for operand, want := range map[string]string{
		"ada": "`relofs log ada`", "ada@2:x": "`relofs log ada`", "no name": "`relofs log AGENT`", "": "`relofs log AGENT`",
	} {
		tool.agent = agentIn(operand)
		if got := tool.concrete("`relofs log AGENT`"); got != want {
			t.Errorf("%q: %s", operand, got)
		}
	}
}

func TestErrorsAreJSONWhenAskedFor(t *testing.T) {
	place(t)
	for _, args := range [][]string{
		{"frobnicate", "--json"},
		{"--json", "create"},
		{"create", "--json", "a", "b"},
		{"create", "--frob", "--json"},
	} {
		r := run(t, "/", args...)
		var body api.ErrorBody
		if err := json.Unmarshal([]byte(r.out), &body); err != nil || body.Error == nil {
			t.Errorf("%q: %v: %s", args, err, r.out)
			continue
		}
		if body.Error.Code != errcode.Usage || body.Error.Message == "" || body.Error.Remedy == "" || r.status != 2 || r.err != "" {
			t.Errorf("%q: %+v, %+v", args, r, body.Error)
		}
	}
}

func TestWhatNeedsNoDaemonStartsNone(t *testing.T) {
	place(t)
	dir := t.TempDir()
	for _, c := range []struct {
		line   string
		status int
		out    string
	}{
		{"", 0, "Commands:"},
		{"help", 0, "Commands:"},
		{"--help", 0, "Commands:"},
		{"help create", 0, "--base REF"},
		{"create --help", 0, "--base REF"},
		{"help daemon", 0, "status"},
		{"--version", 0, "relofs "},
		{"daemon stop", 0, "No daemon runs"},
		{"daemon status", 1, ""},
		{"completion bash", 0, "complete -o"},
		{"completion zsh", 0, "compdef"},
		{"completion fish", 0, "complete -c relofs"},
		{"complete -- st", 0, "status\n"},
		{"complete -- daemon st", 0, "start\nstop\nstatus\n"},
		{"complete -- create a --b", 0, "--base\n"},
		{"complete -- status alice ", 0, ""},
		{"complete -- -C ", 0, ""},
	} {
		args := strings.Fields(c.line)
		if strings.HasSuffix(c.line, " ") {
			args = append(args, "")
		}
		r := run(t, dir, args...)
		if r.status != c.status || !strings.Contains(r.out, c.out) || c.out == "" && r.out != "" {
			t.Errorf("relofs %s: %+v", c.line, r)
		}
	}
	if r := run(t, dir, "doctor", "--json"); !json.Valid([]byte(r.out)) || strings.Contains(r.out, `"running": true`) {
		t.Errorf("doctor: %+v", r)
	}
}

func TestRepositoryErrorsReachTheUser(t *testing.T) {
	place(t)
	empty := t.TempDir()
	if r := run(t, empty, "list"); r.status != 1 || !strings.Contains(r.err, "not inside a Git repository") {
		t.Errorf("outside a repository: %+v", r)
	}
	if r := run(t, "/", "-C", filepath.Join(empty, "gone"), "list"); r.status != 1 {
		t.Errorf("missing directory: %+v", r)
	}
	if out, err := exec.Command("git", "init", "-q", empty).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		args   []string
		code   errcode.Code
		status int
	}{
		{[]string{"create", "a"}, errcode.UnbornHead, 1},
		{[]string{"create", "no/slash"}, errcode.BadAgentName, 2},
		{[]string{"status", "nobody"}, errcode.WorkspaceNotFound, 1},
		{[]string{"run", "a", "--base", "gone", "--", "true"}, errcode.UnknownRevision, 1},
	} {
		r := run(t, "/", append(c.args[:len(c.args):len(c.args)], "-C", empty, "--json")...)
		if slices.Contains(c.args, "--") {
			r = run(t, empty, append([]string{"--json"}, c.args...)...)
		}
		var body api.ErrorBody
		if err := json.Unmarshal([]byte(r.out), &body); err != nil || body.Error == nil || body.Error.Code != c.code || r.status != c.status {
			t.Errorf("%q: %+v, want %s", c.args, r, c.code)
		}
	}
	if r := run(t, filepath.Dir(empty), "-C", filepath.Base(empty), "-C", ".git", "list"); r.status != 0 {
		t.Errorf("-C twice: %+v", r)
	}
}

func TestOptionsMayStandAnywhereBeforeTheDashes(t *testing.T) {
	app := (&tool{}).app()
	for _, c := range []struct{ given, want string }{
		{"create alice --base main --json", "--json create --base main -- alice"},
		{"create --base=main alice -C /x", "-C /x create --base=main -- alice"},
		{"-json list", "--json list"},
		{"run alice --read-only -- ls -l --json", "run --read-only -- alice -- ls -l --json"},
		{"diff alice --stat 1..2 -- -C", "diff --stat -- alice 1..2 -- -C"},
		{"restore --to 1 alice -- run", "restore --to 1 -- alice -- run"},
		{"create run", "create -- run"},
		{"create help --help", "create --help -- help"},
		{"daemon status --json", "--json daemon status"},
		{"create -", "create -- -"},
		{"--version", "--version"},
		{"help create", "-- help create"},
	} {
		got := strings.Join(arrange(app, strings.Fields(c.given)), " ")
		if got != c.want {
			t.Errorf("%q became %q, want %q", c.given, got, c.want)
		}
	}
}
