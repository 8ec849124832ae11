//go:build linux

package workspace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestAnEditBecomesARevisionUnasked(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	for _, script := range []string{
		"echo x >>README.md", "echo new >src/deep/new", "rm main.go", "mv src lib",
		"chmod +x README.md", "ln -sf go.mod link", "mkdir -p a/b/c && echo deep >a/b/c/d",
		"echo again >>a/b/c/d", "ln README.md hard", "rm -rf lib",
	} {
		before := a.Ref()
		a.Shell(script)
		// The promise is 400 ms (bench/); a loaded machine gets more.
		a.WaitRef(before, 10*time.Second)
	}
	if got := r.Git("log", "--format=%s", "-1", "refs/relo/vws/alice/overlay"); got == "" {
		t.Error("the revision's commit has no subject")
	}
	if out := r.Git("ls-tree", "-r", "--name-only", "refs/relo/vws/alice/overlay"); strings.Contains(out, "lib/") {
		t.Errorf("the last revision has %s", out)
	}
	// No edit, no revision: reading and a rewrite of the same content are none.
	before := a.Ref()
	a.Shell("cat README.md >/dev/null; ls -R >/dev/null; printf '%s' \"$(cat go.mod)\" >t; rm t; touch README.md")
	time.Sleep(600 * time.Millisecond)
	a.Sync()
	if now := a.Git("rev-parse", a.Ref()+"^{tree}"); now != a.Git("rev-parse", before+"^{tree}") {
		t.Errorf("reading changed the tree from %s to %s", before, now)
	}
}

// publish makes one revision of a script's effect.
func publish(a *harness.Agent, script string) int {
	a.T.Helper()
	a.Shell(script)
	n, _ := a.Sync()
	return n
}

func TestUndoRedoAndRestoreShowInTheMount(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	// Each script is one write, so that no pause can make it two revisions.
	publish(a, "echo one >README.md")
	publish(a, "rm main.go")
	publish(a, "mv src lib")
	publish(a, "chmod +x README.md")
	publish(a, "ln -sfn lib/deep link")
	a.WantRevision(5)

	undo := func(check func()) {
		t.Helper()
		r.Run(r.Dir, "undo", "alice")
		check()
	}
	isExec := func(want bool) {
		t.Helper()
		if st := statOf(t, a.Root, "README.md"); st.Mode&0o111 != 0 != want {
			t.Errorf("README.md has mode %o", st.Mode)
		}
	}
	wantLink := func(want string) {
		t.Helper()
		if got, err := os.Readlink(filepath.Join(a.Root, "link")); err != nil || got != want {
			t.Errorf("link leads to %q, %v; want %q", got, err, want)
		}
	}
	undo(func() { wantLink("README.md"); isExec(true) })
	undo(func() { isExec(false); a.WantNone("src") })
	undo(func() { a.WantFile("src/deep/c/d.txt", "d\n"); a.WantNone("lib"); a.WantNone("main.go") })
	undo(func() { a.WantFile("main.go", harness.Sample["main.go"]); a.WantFile("README.md", "one\n") })
	undo(func() { a.WantFile("README.md", "hello\n") })
	wantTree(a, harness.Sample)
	r.WantRefusal(r.Dir, 3, "nothing_to_undo", "undo", "alice")
	for range 5 {
		r.Run(r.Dir, "redo", "alice")
	}
	r.WantRefusal(r.Dir, 3, "nothing_to_redo", "redo", "alice")
	wantLink("lib/deep")
	isExec(true)
	a.WantNone("src")
	a.WantFile("lib/a.go", "package src\n")

	r.Run(r.Dir, "restore", "alice", "--to", "1", "--", "src", "main.go")
	a.WantFile("src/a.go", "package src\n")
	a.WantFile("main.go", harness.Sample["main.go"])
	a.WantFile("lib/a.go", "package src\n")
	r.Run(r.Dir, "restore", "alice", "--to", "base")
	wantTree(a, harness.Sample)
	a.WantNone("lib")
	// A new edit ends what can be redone, and is the next thing undone.
	r.Run(r.Dir, "undo", "alice")
	a.WantFile("lib/a.go", "package src\n")
	a.Write("pending", "p\n")
	r.WantRefusal(r.Dir, 3, "nothing_to_redo", "redo", "alice")
	r.Run(r.Dir, "undo", "alice")
	a.WantNone("pending")
	// Nothing was ever taken out of the chain.
	var log struct{ Revisions []struct{ Revision int } }
	r.JSON(r.Dir, &log, "log", "alice")
	for i, rev := range log.Revisions {
		if rev.Revision != len(log.Revisions)-1-i {
			t.Fatalf("the log's line %d is revision %d of %d", i, rev.Revision, len(log.Revisions))
		}
	}
	if got := r.Git("rev-list", "--count", r.Git("rev-parse", "HEAD")+"..refs/relo/vws/alice/overlay"); got != strconv.Itoa(len(log.Revisions)) {
		t.Errorf("the chain has %s commits, the log %d", got, len(log.Revisions))
	}
}

func TestUndoLeavesOpenFilesAndIgnoredFilesAlone(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Write("build/out.o", "object\n")
	publish(a, "echo changed >README.md")
	f, err := os.Open(filepath.Join(a.Root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.Run(r.Dir, "undo", "alice")
	a.WantFile("README.md", "hello\n")
	a.WantFile("build/out.o", "object\n")
	buf := make([]byte, 16)
	if n, err := f.ReadAt(buf, 0); n == 0 || (string(buf[:n]) != "changed\n" && string(buf[:n]) != "hello\n") {
		t.Errorf("the open file reads %q, %v", buf[:n], err)
	}
	// An ignored file in the way is a refusal that changes nothing.
	publish(a, "mkdir data; echo 1 >data/x")
	publish(a, "rm -r data; echo file >data")
	a.Shell("rm data; mkdir data; echo o >data/keep.o")
	n, _ := a.Sync()
	if got := r.Try(r.Dir, "--json", "restore", "alice", "--to", strconv.Itoa(n-1)); got.Code == 3 {
		if !strings.Contains(got.Stdout, "path_in_the_way") {
			t.Errorf("restore over an ignored file: %s", got.Stdout)
		}
		a.WantFile("data/keep.o", "o\n")
		a.WantRevision(n)
	} else if _, err := os.Stat(filepath.Join(a.Root, "data/keep.o")); err != nil {
		t.Errorf("restore took the ignored file: %v", err)
	}
}

func TestDiffIsAPatchThatGitApplies(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Shell(`echo more >>README.md; mv src/deep deep; rm main.go; chmod +x go.mod; ln -sf go.mod link
		head -c 3000 /dev/urandom >bin; mkdir 'a b'; echo ü >"a b/ü"; : >empty; printf 'no newline' >nn; chmod -x tool.sh`)
	_, tree := a.Sync()
	out := r.Run(r.Dir, "diff", "alice")
	plain := plainCheckout(r, "HEAD")
	cmd := exec.Command("git", "apply", "--index", "-")
	cmd.Dir, cmd.Env, cmd.Stdin = plain, r.Env(), strings.NewReader(out)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v %s\n%.2000s", err, msg, out)
	}
	if got, _ := sh(r.World, plain, "git write-tree"); strings.TrimSpace(got) != tree {
		t.Errorf("the patch gives tree %s, the revision is %s", got, tree)
	}
	stat := r.Run(r.Dir, "diff", "alice", "--stat")
	if !strings.Contains(stat, "README.md") || !strings.Contains(stat, "changed") {
		t.Errorf("diff --stat: %s", stat)
	}
	if got := r.Run(r.Dir, "diff", "alice", "--", "README.md"); !strings.Contains(got, "+more") || strings.Contains(got, "main.go") {
		t.Errorf("diff of one path: %s", got)
	}
	if got := r.Run(r.Dir, "diff", "alice", "latest..base", "--", "README.md"); !strings.Contains(got, "-more") {
		t.Errorf("diff backwards: %s", got)
	}
}

func TestStatusNamesEveryKindOfChange(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Shell(`echo more >>README.md; mv src/deep/b.go moved.go; rm main.go; chmod +x go.mod; rm link; echo f >link; echo n >new; rm tool.sh; ln -s new tool.sh`)
	var s struct {
		Changes []struct {
			Status, Path string
			OldPath      string `json:"old_path"`
		}
	}
	r.JSON(r.Dir, &s, "status", "alice")
	got := map[string]string{}
	for _, c := range s.Changes {
		got[c.Path] = c.Status + c.OldPath
	}
	want := map[string]string{
		"README.md": "M", "moved.go": "Rsrc/deep/b.go", "main.go": "D", "go.mod": "M",
		"link": "T", "new": "A", "tool.sh": "T",
	}
	for path, status := range want {
		if got[path] != status {
			t.Errorf("%s has status %q, want %q", path, got[path], status)
		}
	}
	if len(got) != len(want) {
		t.Errorf("status names %v", got)
	}
	text := r.Run(r.Dir, "status", "alice")
	for _, part := range []string{"alice", "mounted at " + a.Root, "R  src/deep/b.go -> moved.go", "D  main.go"} {
		if !strings.Contains(text, part) {
			t.Errorf("status does not say %q:\n%s", part, text)
		}
	}
}

func TestShowPrintsAnyRevisionsFile(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	publish(a, "echo one >README.md")
	publish(a, "echo two >README.md")
	a.Write("README.md", "pending\n")
	for spec, want := range map[string]string{
		"alice@base:README.md": "hello\n", "alice@0:README.md": "hello\n", "alice@1:README.md": "one\n",
		"alice@2:README.md": "two\n", "alice:README.md": "pending\n", "alice@latest:README.md": "pending\n",
		"alice:src": "a.go\ndeep\n",
	} {
		got := r.Run(r.Dir, "show", spec)
		if strings.ReplaceAll(got, "deep/", "deep") != want {
			t.Errorf("show %s prints %q, want %q", spec, got, want)
		}
	}
	r.WantRefusal(r.Dir, 1, "unknown_workspace_revision", "show", "alice@77:README.md")
	r.WantRefusal(r.Dir, 1, "path_not_found", "show", "alice:nothing")
	r.WantRefusal(r.Dir, 2, "bad_path", "show", "alice:../README.md")
	r.WantRefusal(r.Dir, 2, "bad_path", "show", "alice:.git/config")
}
