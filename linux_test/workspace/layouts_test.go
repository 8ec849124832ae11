//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

// oddNames are legal names that tools, mount options and JSON trip over.
var oddNames = []string{
	"space, comma:colon", `back\slash\`, "ünï\ncödé", `-quo"te' %s`, "#tab\t=", "\\040",
}

func TestOddRepositoryAndMountPointNames(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	repositories := map[string]string{}
	for _, name := range oddNames {
		parent := filepath.Join(w.Home, "in "+name)
		if err := os.Mkdir(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		r := w.RepositoryIn(parent, harness.Sample)
		repositories[name] = r.Dir
		a := r.Create("alice")
		a.WantFile("src/a.go", "package src\n")
		a.Write("README.md", "changed\n")
		wantTree(a, with(harness.Sample, map[string]string{"README.md": "changed\n"}))
		r.Run(r.Dir, "unmount", "alice")
		dir := filepath.Join(w.Home, "mounts", name)
		if got := r.Run(r.Dir, "mount", "alice", dir); got != dir+"\n" {
			t.Errorf("mount prints %q, want %q", got, dir+"\n")
		}
		a.Root = dir
		a.WantFile("README.md", "changed\n")
		a.Write("more", "more\n")
	}
	// They are all found again.
	w.Kill()
	for _, name := range oddNames {
		dir := repositories[name]
		if got, want := w.Run(dir, "path", "alice"), filepath.Join(w.Home, "mounts", name)+"\n"; got != want {
			t.Errorf("after a restart path prints %q, want %q", got, want)
		}
		if got := mustRead(t, w.Home, "mounts", name, "more"); got != "more\n" {
			t.Errorf("%q: more holds %q", name, got)
		}
		w.Run(dir, "unmount", "alice")
	}
}

func TestOddFileNames(t *testing.T) {
	t.Parallel()
	files := map[string]string{"plain": "plain\n"}
	for _, name := range append(oddNames, "inv\xffalid", "trailing ", " leading", "*", strings.Repeat("n", 255)) {
		files["lower/"+name+"/"+name] = "lower " + name + "\n"
	}
	r := harness.New(t).Repository(files)
	a := r.Create("alice")
	want := with(files, nil)
	for path, content := range files {
		a.WantFile(path, content)
		name := filepath.Base(path)
		if name == "plain" {
			continue
		}
		a.Write("new/"+name, "new\n")
		want["new/"+name] = "new\n"
	}
	wantTree(a, want)
	a.Shell("mv lower moved; rm -rf new")
	moved := map[string]string{"plain": "plain\n"}
	for path, content := range files {
		if rest, ok := strings.CutPrefix(path, "lower/"); ok {
			moved["moved/"+rest] = content
		}
	}
	wantTree(a, moved)
	r.Run(r.Dir, "restore", "alice", "--to", "base")
	wantTree(a, files)
	for path, content := range files {
		a.WantFile(path, content)
		if name := filepath.Base(path); name != "plain" && name != "inv\xffalid" {
			if got := r.Run(r.Dir, "show", "alice:"+path); got != content {
				t.Errorf("show of %q prints %q", path, got)
			}
		}
	}
}

// TestRepositoryLayouts creates a workspace from every place Git would find a
// repository in. All but the submodule are one repository.
func TestRepositoryLayouts(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	r := w.Repository(harness.Sample)
	in := func(name string) string { return filepath.Join(w.Home, name) }
	do := func(script string) {
		t.Helper()
		if out, code := sh(w, r.Dir, "set -e; export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always\n"+script); code != 0 {
			t.Fatal(script, out)
		}
	}
	do("git worktree add -q '" + in("linked") + "' -b linked && echo linked >'" + in("linked") + "/README.md' && git -C '" + in("linked") + "' commit -qam linked")
	do("git clone -q --bare . '" + in("bare.git") + "'")
	do("git clone -q --separate-git-dir '" + in("separate.git") + "' . '" + in("separate") + "'")
	do("git init -q '" + in("super") + "' && cd '" + in("super") + "' && git submodule --quiet add '" + r.Dir + "' sub && git -c user.name=U -c user.email=u@e commit -qm super")
	do("git clone -q --shared . '" + in("borrower") + "'")
	do("git clone -q --depth 1 'file://" + r.Dir + "' '" + in("shallow") + "'")
	do("ln -s '" + r.Dir + "' '" + in("symlinked") + "'")

	for _, test := range []struct {
		name, dir, file, content string
	}{
		{"subdirectory", filepath.Join(r.Dir, "src/deep"), "README.md", "hello\n"},
		{"git directory itself", filepath.Join(r.Dir, ".git"), "README.md", "hello\n"},
		{"linked worktree", in("linked"), "README.md", "linked\n"},
		{"bare", in("bare.git"), "README.md", "hello\n"},
		{"separate git directory", filepath.Join(in("separate"), "src"), "README.md", "hello\n"},
		{"super-project", in("super"), ".gitmodules", ""},
		{"submodule", filepath.Join(in("super"), "sub"), "README.md", "hello\n"},
		{"alternates", in("borrower"), "README.md", "hello\n"},
		{"shallow clone", in("shallow"), "README.md", "hello\n"},
		{"through a symlink", filepath.Join(in("symlinked"), "src"), "README.md", "hello\n"},
	} {
		agent := strings.ReplaceAll(test.name, " ", "-")
		var created struct {
			Workspace struct{ Directory, Repository string }
		}
		w.JSON(w.Home, &created, "-C", test.dir, "create", agent)
		root := created.Workspace.Directory
		if got := mustRead(t, root, test.file); test.content != "" && got != test.content {
			t.Errorf("%s: %s holds %q, want %q", test.name, test.file, got, test.content)
		}
		if err := os.WriteFile(filepath.Join(root, "new"), []byte(agent), 0o644); err != nil {
			t.Fatal(err)
		}
		w.Run(test.dir, "sync", agent)
		cmd := "git rev-parse refs/relo/vws/" + agent + "/overlay && git show refs/relo/vws/" + agent + "/overlay:new && git fsck --strict --no-dangling --no-progress"
		if out, code := sh(w, test.dir, cmd); code != 0 || !strings.HasSuffix(out, "\n"+agent) {
			t.Errorf("%s: Git there says %d %s", test.name, code, out)
		}
		if _, err := os.Stat(filepath.Join(created.Workspace.Repository, "relo")); err != nil {
			t.Errorf("%s: the state is not in %s: %v", test.name, created.Workspace.Repository, err)
		}
		w.Run(test.dir, "unmount", agent)
	}
	// A revision given by name is the linked worktree's as well.
	w.WantRefusal(in("linked"), 3, "workspace_exists", "run", "linked-worktree", "--base", "HEAD~", "--", "true")
	if got := w.Run(in("linked"), "run", "linked-worktree", "--base", "HEAD", "--", "cat", "README.md"); got != "linked\n" {
		t.Errorf("run in the linked worktree sees %q", got)
	}
	// The linked worktree, the symlink and the checkout share one list.
	var list struct{ Workspaces []struct{ Agent string } }
	w.JSON(in("linked"), &list, "list")
	if len(list.Workspaces) != 4 {
		t.Errorf("the linked worktree lists %v", list.Workspaces)
	}
	// The submodule's directory is empty in the super-project's workspace.
	w.Run(in("super"), "mount", "super-project")
	root := strings.TrimSpace(w.Run(in("super"), "path", "super-project"))
	if entries, err := os.ReadDir(filepath.Join(root, "sub")); err != nil || len(entries) != 0 {
		t.Errorf("the submodule's directory: %v, %v", entries, err)
	}
	do("git worktree remove --force '" + in("linked") + "'")
	w.Run(r.Dir, "remove", "--force", "linked-worktree")
}

func TestEnvironmentOfAHookDoesNotLeadAstray(t *testing.T) {
	r := sample(t)
	other := r.World.Repository(map[string]string{"other": "other\n"})
	cmd := r.Command(r.Dir, "create", "alice")
	cmd.Env = append(cmd.Env, "GIT_DIR="+other.Dir+"/.git", "GIT_WORK_TREE="+other.Dir, "GIT_INDEX_FILE="+other.Dir+"/.git/index", "GIT_OBJECT_DIRECTORY="+other.Dir+"/.git/objects")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, strings.TrimSpace(string(out)), "README.md"); got != "hello\n" {
		t.Errorf("README.md holds %q", got)
	}
	if left := other.Git("for-each-ref", "refs/relo"); left != "" {
		t.Errorf("the other repository has %s", left)
	}
}
