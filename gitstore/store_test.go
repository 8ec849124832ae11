package gitstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relofs/relofs/gitstore"
)

func resolved(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpenFindsWhatGitFinds: for each layout the three directories are those
// that git rev-parse names there.
func TestOpenFindsWhatGitFinds(t *testing.T) {
	r := newRepository(t)
	r.write("deep/er/file", "x")
	side := t.TempDir()
	r.git("worktree", "add", "-q", filepath.Join(side, "linked"))
	r.git("init", "-q", "--separate-git-dir", filepath.Join(side, "separate.git"), filepath.Join(side, "separate"))
	r.git("clone", "-q", "--bare", ".", filepath.Join(side, "bare.git"))
	r.git("init", "-q", filepath.Join(side, "elsewhere"))
	r.git("-C", filepath.Join(side, "elsewhere"), "config", "core.worktree", filepath.Join(side, "linked"))
	r.git("-C", filepath.Join(side, "bare.git"), "worktree", "add", "-q", filepath.Join(side, "of-bare"))
	if err := os.Symlink(filepath.Join(r.path, "deep"), filepath.Join(side, "link")); err != nil {
		t.Fatal(err)
	}
	r.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", filepath.Join(side, "bare.git"), "sub")
	if err := os.Mkdir(filepath.Join(r.path, "deep/.git"), 0o755); err != nil { // no repository
		t.Fatal(err)
	}
	for name, dir := range map[string]string{
		"work tree":                    r.path,
		"subdirectory":                 filepath.Join(r.path, "deep/er"),
		"subdirectory through symlink": filepath.Join(side, "link/er"),
		"linked work tree":             filepath.Join(side, "linked"),
		"separate git directory":       filepath.Join(side, "separate"),
		"bare":                         filepath.Join(side, "bare.git"),
		"inside bare":                  filepath.Join(side, "bare.git/refs/heads"),
		"linked to bare":               filepath.Join(side, "of-bare"),
		"submodule":                    filepath.Join(r.path, "sub"),
	} {
		t.Run(name, func(t *testing.T) {
			want := func(args ...string) string {
				return resolved(t, r.git(append([]string{"-C", dir, "rev-parse", "--path-format=absolute"}, args...)...))
			}
			bare := r.git("-C", dir, "rev-parse", "--is-bare-repository") == "true"
			wantTree := ""
			if !bare {
				wantTree = want("--show-toplevel")
			}
			wantGit, wantCommon := want("--git-dir"), want("--git-common-dir")
			t.Setenv("GIT_DIR", "/nowhere")
			t.Setenv("GIT_WORK_TREE", "/nowhere")
			t.Setenv("GIT_CEILING_DIRECTORIES", "/")
			s, err := gitstore.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if s.GitDir() != wantGit || s.CommonDir() != wantCommon || s.WorkTree() != wantTree {
				t.Errorf("got  %q %q %q\nwant %q %q %q", s.GitDir(), s.CommonDir(), s.WorkTree(), wantGit, wantCommon, wantTree)
			}
		})
	}
	for dir, tree := range map[string]string{
		filepath.Join(r.path, ".git"):                     r.path,
		filepath.Join(r.path, ".git/refs"):                r.path,
		filepath.Join(r.path, ".git/worktrees/linked"):    filepath.Join(side, "linked"),
		filepath.Join(side, "elsewhere"):                  filepath.Join(side, "linked"),
		filepath.Join(side, "bare.git/worktrees/of-bare"): filepath.Join(side, "of-bare"),
		filepath.Join(r.path, ".git/modules/sub"):         filepath.Join(r.path, "sub"),
	} {
		s, err := gitstore.Open(dir)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if s.WorkTree() != resolved(t, tree) {
			t.Errorf("%s: work tree %q, want %q", dir, s.WorkTree(), tree)
		}
		s.Close()
	}
}

func TestOpenRefusesWhatItCannotRead(t *testing.T) {
	config := func(text string) func(t *testing.T) string {
		return func(t *testing.T) string {
			r := newRepository(t)
			if err := os.WriteFile(filepath.Join(r.path, ".git/config"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			return r.path
		}
	}
	for _, c := range []struct {
		name string
		dir  func(t *testing.T) string
		want error
	}{
		{"no repository", func(t *testing.T) string { return t.TempDir() }, gitstore.ErrNotRepository},
		{"a file", func(t *testing.T) string { return filepath.Join(newRepository(t).path, "a.txt") }, gitstore.ErrNotRepository},
		{"nothing", func(t *testing.T) string { return filepath.Join(t.TempDir(), "missing") }, os.ErrNotExist},
		{".git file to nowhere", func(t *testing.T) string {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: nowhere\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			return dir
		}, gitstore.ErrNotRepository},
		{".git file of something else", func(t *testing.T) string {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, ".git"), []byte("hello\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			return dir
		}, gitstore.ErrNotRepository},
		{"SHA-256", func(t *testing.T) string {
			r := repository{t, t.TempDir()}
			r.git("init", "-q", "--object-format=sha256", ".")
			return r.path
		}, gitstore.ErrUnsupportedFormat},
		{"reftable", config("[core]\nrepositoryformatversion = 1\n[extensions]\nrefStorage = reftable\n"), gitstore.ErrUnsupportedFormat},
		{"unknown extension", config("[core]\nrepositoryformatversion = 1\n[extensions]\nnew = 1\n"), gitstore.ErrUnsupportedFormat},
		{"two hashes", config("[core]\nrepositoryformatversion = 1\n[extensions]\ncompatObjectFormat = sha256\n"), gitstore.ErrUnsupportedFormat},
		{"version 2", config("[core]\nrepositoryformatversion = 2\n"), gitstore.ErrUnsupportedFormat},
		{"version 0 with an extension of version 1", config("[core]\nrepositoryformatversion = 0\n[extensions]\nobjectFormat = sha256\n"), gitstore.ErrUnsupportedFormat},
		{"stray extension in version 0", config("[core]\nrepositoryformatversion = 0\n[extensions]\nnew = 1\n"), nil},
		{"known extensions", config("[core]\nrepositoryformatversion = 1\n[extensions]\nobjectFormat = sha1\nrefStorage = files\npreciousObjects = true\nworktreeConfig\n"), nil},
		{"no config at all", config(""), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := gitstore.Open(c.dir(t))
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestGitRunsUndisturbedByTheEnvironment(t *testing.T) {
	r, other := newRepository(t), newRepository(t)
	other.git("commit", "-q", "--allow-empty", "-m", "second")
	s, want := r.open(), r.oid("HEAD").String()
	t.Setenv("GIT_DIR", filepath.Join(other.path, ".git"))
	t.Setenv("GIT_OBJECT_DIRECTORY", "/nowhere")
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	cmd := s.Git(context.Background(), "rev-parse", "HEAD")
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("got %s, %v", out, err)
	}
	if !slices.Contains(cmd.Env, "LC_ALL=C") || slices.Contains(cmd.Env, "LC_ALL=de_DE.UTF-8") {
		t.Error("the locale is not C")
	}
}

func TestRepositoryOfAnotherUserIsRefusedUnlessDeclaredSafe(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a repository away")
	}
	r := newRepository(t)
	top := filepath.Dir(r.open().CommonDir())
	ran := filepath.Join(t.TempDir(), "ran")
	r.git("config", "core.fsmonitor", "touch "+ran+"; false")
	if err := os.Chown(filepath.Join(top, ".git"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("SUDO_UID", "")
	if _, err := gitstore.Open(top); !errors.Is(err, gitstore.ErrForeignOwner) {
		t.Fatalf("opened: %v", err)
	}
	for value, want := range map[string]bool{
		"*": true, top: true, filepath.Dir(top) + "/*": true,
		filepath.Dir(top): false, "/elsewhere": false, top + "/*": true,
	} {
		config := "[safe]\n\tdirectory = " + value + "\n"
		if err := os.WriteFile(filepath.Join(os.Getenv("HOME"), ".gitconfig"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := gitstore.Open(top)
		if got := err == nil; got != want {
			t.Errorf("safe.directory=%s: opened %v (%v)", value, got, err)
		}
		if err == nil {
			if out, err := s.Git(t.Context(), "--work-tree="+top, "status").CombinedOutput(); err != nil {
				t.Errorf("git status: %v: %s", err, out)
			}
			s.Close()
		}
	}
	t.Setenv("SUDO_UID", "65534")
	os.Remove(filepath.Join(os.Getenv("HOME"), ".gitconfig"))
	if s, err := gitstore.Open(top); err != nil {
		t.Errorf("as root for the owner: %v", err)
	} else {
		s.Close()
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the repository's fsmonitor program was run")
	}
	if err := os.Chown(filepath.Join(top, ".git"), 0, 0); err != nil {
		t.Fatal(err)
	}
}
