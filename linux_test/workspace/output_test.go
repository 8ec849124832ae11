//go:build linux

package workspace_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/linux_test/harness"
)

// shape lists the keys of a JSON value, "a.b" for nested ones and "a[].b" for
// those of an array's elements.
func shape(v any, prefix string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			name := strings.TrimPrefix(prefix+"."+key, ".")
			into[name] = true
			shape(value, name, into)
		}
	case []any:
		for _, value := range v {
			shape(value, prefix+"[]", into)
		}
	}
}

func TestJSONShapesAreStable(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	publish(a, "echo one >README.md")
	a.Shell("mv src/a.go b.go; echo x >x.o")
	const workspace = "agent base changed commit created directory read_only repository revision state tree updated"
	of := func(prefix, keys string) string {
		out := []string{prefix}
		for key := range strings.FieldsSeq(keys) {
			out = append(out, strings.TrimSuffix(prefix, "[]")+suffix(prefix)+key)
		}
		return strings.Join(out, " ")
	}
	const revision = "revision commit tree kind time at"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"create", "bob"}, of("workspace", workspace) + " prefix created already_mounted engine_us create_us mount_us"},
		{[]string{"path", "alice"}, "agent directory"},
		{[]string{"sync", "alice"}, revision + " published unsettled newly_excluded newly_excluded[].path newly_excluded[].reason newly_excluded[].size engine_us"},
		{[]string{"list"}, "workspaces " + of("workspaces[]", workspace)},
		{[]string{"status", "alice"}, of("workspace", workspace) + " changes changes[].status changes[].path changes[].old_path changes[].old_mode changes[].new_mode changes[].old_oid changes[].new_oid excluded excluded[].path excluded[].reason excluded[].size"},
		{[]string{"log", "alice"}, "revisions " + of("revisions[]", revision)},
		{[]string{"diff", "alice"}, "diff"},
		{[]string{"show", "alice:README.md"}, "path mode size oid content"},
		{[]string{"show", "alice:src"}, "path mode size oid entries"},
		{[]string{"undo", "alice"}, revision},
		{[]string{"redo", "alice"}, revision},
		{[]string{"restore", "alice", "--to", "base"}, revision},
		{[]string{"unmount", "alice"}, of("workspace", workspace) + " problems"},
		{[]string{"settle", "alice"}, revision + " kept kept[].path kept[].reason kept[].size freed"},
		{[]string{"mount", "alice"}, of("workspace", workspace) + " prefix created already_mounted engine_us mount_us"},
		{[]string{"recover"}, "workspaces " + of("workspaces[]", workspace) + " repaired problems"},
		{[]string{"daemon", "status"}, "pid version socket log started repositories mounts mounts[].agent mounts[].repository mounts[].directory mounts[].read_only problems"},
		{[]string{"remove", "bob"}, "commit removed revision"},
		{[]string{"path", "nobody"}, "error error.code error.message error.remedy"},
	} {
		out := r.Try(r.Dir, append([]string{"--json"}, test.args...)...).Stdout
		var v any
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("%v prints %q: %v", test.args, out, err)
			continue
		}
		have, want := map[string]bool{}, map[string]bool{}
		shape(v, "", have)
		for key := range strings.FieldsSeq(test.want) {
			if key = strings.TrimSuffix(key, "[]"); key != "" {
				want[key] = true
			}
		}
		// The newly excluded may have been reported by the daemon's own capture.
		if test.args[0] == "sync" {
			for key := range want {
				if strings.Contains(key, "[]") && !have[key] {
					delete(want, key)
				}
			}
		}
		if !maps.Equal(have, want) {
			t.Errorf("--json %v has the keys\n%v\nwant\n%v", test.args, slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(want)))
		}
		if test.args[0] == "settle" && strings.Contains(out, "null") {
			t.Errorf("%v prints null: %s", test.args, out)
		}
	}
}

func suffix(prefix string) string {
	if strings.HasSuffix(prefix, "[]") {
		return "[]."
	}
	return "."
}

func TestJSONMayStandAnywhereAndErrorsAreJSONToo(t *testing.T) {
	r := sample(t)
	r.Create("alice")
	for _, args := range [][]string{{"--json", "list"}, {"list", "--json"}} {
		if out := r.Run(r.Dir, args...); !json.Valid([]byte(out)) {
			t.Errorf("%v prints %q", args, out)
		}
	}
	got := r.Try(r.Dir, "run", "--json", "alice", "--", "echo", "--json")
	if got.Stdout != "--json\n" {
		t.Errorf("what follows -- is the command's: %+v", got)
	}
	human := r.Try(r.Dir, "path", "nobody")
	if human.Code != 1 || human.Stdout != "" || !strings.Contains(human.Stderr, "hint:") {
		t.Errorf("an error for people: %+v", human)
	}
	if out := r.Run("/", "--version"); !strings.Contains(out, "relofs") {
		t.Errorf("--version prints %q", out)
	}
}

func TestCompletionScriptsLoadAndComplete(t *testing.T) {
	r := sample(t)
	r.Create("alice")
	r.Create("alfred")
	bin := filepath.Join(r.Home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(r.Program, filepath.Join(bin, "relofs")); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := r.Run("/", "completion", shell)
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		flags := map[string][]string{"bash": {"-n"}, "zsh": {"-n"}, "fish": {"--no-execute"}}[shell]
		cmd := exec.Command(shell, flags...)
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s does not take the script: %v %s", shell, err, out)
		}
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash")
	}
	for words, want := range map[string]string{
		"status al": "alfred alice", "unm": "unmount", "completion z": "zsh", "create x --read": "--read-only", "show no": "",
	} {
		fields := strings.Fields(words)
		script := `set -eu; PATH=` + bin + `:$PATH; source <(relofs completion bash)
			COMP_WORDS=(relofs ` + words + `); COMP_CWORD=` + string(rune('0'+len(fields))) + `; COMPREPLY=(); _relofs; echo "${COMPREPLY[*]-}"`
		cmd := exec.Command("bash", "-c", script)
		cmd.Dir, cmd.Env = r.Dir, r.Env()
		out, err := cmd.CombinedOutput()
		got := strings.Fields(string(out))
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("relofs %s<TAB> offers %q, %v; want %q", words, out, err, want)
		}
	}
}

func TestTryTellsTheWholeStoryAndLeavesNothing(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	tmp := filepath.Join(w.Home, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := w.Command(w.Home, "try")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("try: %v\n%s", err, out)
	}
	t.Logf("try took %v", time.Since(start))
	for _, part := range []string{"status", "diff", "log", "undo"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the story has no %q:\n%s", part, out)
		}
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("try leaves %v", left)
	}
	if left := w.Mounts(); len(left) > 0 {
		t.Errorf("try leaves the mounts %v", left)
	}
	if pid := w.DaemonPID(); pid != 0 {
		t.Errorf("try met or started the user's daemon, %d", pid)
	}
}

func TestDoctorSaysThisMachineCan(t *testing.T) {
	r := sample(t)
	var report struct {
		Checks []struct{ Name, Status, Detail string }
	}
	r.JSON(r.Dir, &report, "doctor")
	for _, c := range report.Checks {
		if c.Status == "fail" || c.Name == "" || c.Detail == "" {
			t.Errorf("doctor: %+v", c)
		}
	}
	if len(report.Checks) == 0 {
		t.Error("doctor checks nothing")
	}
	if out := r.Run(r.Dir, "doctor"); !strings.Contains(out, "/dev/fuse") {
		t.Errorf("doctor says\n%s", out)
	}
}
