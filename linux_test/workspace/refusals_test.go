//go:build linux

package workspace_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	bob := r.Create("bob")
	r.Run(r.Dir, "unmount", "bob")
	empty := filepath.Join(r.Home, "empty")
	file := filepath.Join(r.Home, "file")
	full := filepath.Join(r.Home, "full")
	harness.WriteFile(t, file, "x")
	harness.WriteFile(t, filepath.Join(full, "x"), "x")
	unborn := filepath.Join(r.Home, "unborn")
	if out, err := exec.Command("git", "init", "-q", unborn).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc", filepath.Join(r.Home, "tolink")); err != nil {
		t.Fatal(err)
	}
	blob := r.Git("rev-parse", "HEAD:README.md")
	refs, state, mounts := r.Git("for-each-ref"), r.UserState(), strings.Join(r.Mounts(), "\n")

	for _, test := range []struct {
		dir  string
		exit int
		code string
		args []string
	}{
		{empty, 1, "not_a_repository", []string{"create", "carol"}},
		{empty, 1, "not_a_repository", []string{"list"}},
		{r.Dir, 1, "not_a_repository", []string{"-C", "/no/such/dir", "list"}},
		{unborn, 1, "unborn_head", []string{"create", "carol"}},
		{r.Dir, 3, "workspace_exists", []string{"create", "alice"}},
		{r.Dir, 1, "unknown_revision", []string{"create", "carol", "--base", "no-such-branch"}},
		{r.Dir, 1, "unknown_revision", []string{"create", "carol", "--base", "HEAD~9"}},
		{r.Dir, 1, "unknown_revision", []string{"create", "carol", "--base", strings.Repeat("1", 40)}},
		{r.Dir, 1, "unknown_revision", []string{"create", "carol", "--base", blob}},
		{r.Dir, 1, "unknown_revision", []string{"create", "carol", "--base=--all"}},
		{r.Dir, 1, "workspace_not_found", []string{"mount", "carol"}},
		{r.Dir, 1, "workspace_not_found", []string{"unmount", "carol"}},
		{r.Dir, 1, "workspace_not_found", []string{"sync", "carol"}},
		{r.Dir, 1, "workspace_not_found", []string{"status", "carol"}},
		{r.Dir, 1, "workspace_not_found", []string{"log", "carol"}},
		{r.Dir, 1, "workspace_not_found", []string{"diff", "carol"}},
		{r.Dir, 1, "workspace_not_found", []string{"undo", "carol"}},
		{r.Dir, 1, "workspace_not_found", []string{"remove", "carol"}},
		{r.Dir, 1, "workspace_not_found", []string{"settle", "carol"}},
		{r.Dir, 3, "mount_point_not_empty", []string{"mount", "bob", full}},
		{r.Dir, 1, "mount_point_bad", []string{"mount", "bob", r.Dir}},
		{r.Dir, 1, "mount_point_bad", []string{"mount", "bob", filepath.Join(r.Dir, "view")}},
		{r.Dir, 1, "mount_point_bad", []string{"mount", "bob", file}},
		{r.Dir, 1, "mount_point_bad", []string{"mount", "bob", file + "/below"}},
		{r.Dir, 1, "mount_point_bad", []string{"mount", "bob", r.Dir + "/.git/mine"}},
		{r.Dir, 3, "mount_point_in_use", []string{"mount", "bob", a.Root}},
		{r.Dir, 3, "mount_point_in_use", []string{"mount", "bob", "/proc"}},
		{r.Dir, 3, "workspace_mounted", []string{"mount", "alice", empty}},
		{r.Dir, 3, "nothing_to_undo", []string{"undo", "alice"}},
		{r.Dir, 3, "nothing_to_redo", []string{"redo", "alice"}},
		{r.Dir, 1, "unknown_workspace_revision", []string{"restore", "alice", "--to", "9"}},
		{r.Dir, 1, "unknown_workspace_revision", []string{"restore", "alice", "--to", "x"}},
		{r.Dir, 1, "path_not_found", []string{"restore", "alice", "--to", "base", "--", "nothing"}},
		{r.Dir, 2, "bad_path", []string{"restore", "alice", "--to", "base", "--", "../x"}},
		{r.Dir, 2, "bad_path", []string{"restore", "alice", "--to", "base", "--", ".git/config"}},
		{r.Dir, 1, "unknown_workspace_revision", []string{"diff", "alice", "7"}},
		{r.Dir, 2, "usage", []string{"restore", "alice"}},
		{r.Dir, 2, "usage", []string{"create"}},
		{r.Dir, 2, "usage", []string{"create", "a", "b"}},
		{r.Dir, 2, "usage", []string{"create", "carol", "--nonsense"}},
		{r.Dir, 2, "usage", []string{"nonsense"}},
		{r.Dir, 2, "usage", []string{"log", "alice", "-n", "0"}},
		{r.Dir, 2, "usage", []string{"completion", "tcsh"}},
	} {
		r.WantRefusal(test.dir, test.exit, test.code, test.args...)
	}
	for _, name := range []string{"a b", "../x", ".hidden", "-", "a/b", "a..b", "x.lock", "x.", "ü", strings.Repeat("n", 65), "a\nb", "a:b", "a~1"} {
		r.WantRefusal(r.Dir, 2, "bad_agent_name", "create", name)
	}
	inside := r.Try(r.Dir, "--json", "mount", "bob", filepath.Join(a.Root, "src/inside"))
	if inside.Code == 0 || !strings.Contains(inside.Stdout, "mount_point_") {
		t.Errorf("a mount point inside another mount: %+v", inside)
	}
	if got := strings.Join(r.Mounts(), "\n"); got != mounts {
		t.Errorf("the mounts are\n%s\nand were\n%s", got, mounts)
	}
	if got := r.Git("for-each-ref"); got != refs {
		t.Errorf("the refs are\n%s\nand were\n%s", got, refs)
	}
	if got := r.UserState(); got != state {
		t.Errorf("the user's state is\n%s\nand was\n%s", got, state)
	}
	a.WantNone("src/inside")
	a.WantRevision(0)
	r.Run(r.Dir, "mount", "bob")
	bob.WantFile("README.md", "hello\n")
}

func TestAReadOnlyWorkspaceRefusesEveryMutation(t *testing.T) {
	r := sample(t)
	a := r.Create("alice", "--read-only")
	at := func(p string) string { return filepath.Join(a.Root, p) }
	a.WantFile("src/deep/b.go", "package deep\n")
	if out := a.Shell("./tool.sh; cat link"); out != "tool\nhello\n" {
		t.Errorf("tools print %q", out)
	}
	open := func(flags int) error {
		f, err := os.OpenFile(at("README.md"), flags, 0)
		if err == nil {
			f.Close()
		}
		return err
	}
	for what, err := range map[string]error{
		"open for writing": open(os.O_WRONLY),
		"open, truncate":   open(os.O_WRONLY | os.O_TRUNC),
		"create":           os.WriteFile(at("new"), nil, 0o644),
		"truncate":         os.Truncate(at("README.md"), 0),
		"unlink":           os.Remove(at("main.go")),
		"mkdir":            os.Mkdir(at("d"), 0o755),
		"rename":           os.Rename(at("src"), at("lib")),
		"chmod":            os.Chmod(at("README.md"), 0o755),
		"symlink":          os.Symlink("x", at("l")),
		"link":             os.Link(at("README.md"), at("hard")),
		"utimes":           syscall.UtimesNano(at("README.md"), make([]syscall.Timespec, 2)),
		"mknod":            syscall.Mkfifo(at("pipe"), 0o644),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v, want EROFS", what, err)
		}
	}
	r.WantRefusal(r.Dir, 3, "workspace_read_only", "undo", "alice")
	r.WantRefusal(r.Dir, 3, "workspace_read_only", "restore", "alice", "--to", "base")
	a.WantRevision(0)
	r.Kill()
	r.Run(r.Dir, "path", "alice")
	if err := os.WriteFile(at("new"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("create after a restart: %v, want EROFS", err)
	}
	r.Run(r.Dir, "remove", "alice")
}

func TestABusyDirectoryIsNotTakenAwayUnlessForced(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	f, err := os.Create(filepath.Join(a.Root, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.WantRefusal(r.Dir, 3, "mount_busy", "unmount", "alice")
	if _, err := f.WriteString("before\n"); err != nil {
		t.Fatal(err)
	}
	a.WantFile("open", "before\n")
	r.Run(r.Dir, "unmount", "--force", "alice")
	if _, err := os.Stat(filepath.Join(a.Root, "open")); err == nil {
		t.Error("after unmount --force the directory shows files")
	}
	f.Close()
	r.Run(r.Dir, "mount", "alice")
	a.WantFile("open", "before\n")
	wantTree(a, with(harness.Sample, map[string]string{"open": "before\n"}))
}
