package fusefs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/relofs/relofs/gitstore"
)

// These tests mount repositories that Git made.

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=gc.auto", "GIT_CONFIG_VALUE_0=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// repository makes a repository of n files in the two states objects are in:
// those of the first commit packed, with deltas, those of the second loose.
func repository(t testing.TB, n int) (dir string, tree gitstore.OID) {
	t.Helper()
	dir = t.TempDir()
	git(t, dir, "init", "-q")
	write := func(i, version int) {
		name := filepath.Join(dir, fmt.Sprintf("d%d/e%d/f%d", i%7, i%5, i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		// Alike enough for deltas; one in ten is several READs long.
		lines := 1 + i*i%700
		if i%10 == 3 {
			lines *= 30
		}
		content := strings.Repeat(fmt.Sprintf("line %d of a file\n", i%3), lines) + fmt.Sprint(i, version)
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		write(i, 1)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), []byte(random(9<<20, 7)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("d0/e0", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-qm", "one")
	git(t, dir, "repack", "-adq")
	for i := 0; i < n; i += 10 {
		write(i, 2)
	}
	git(t, dir, "commit", "-qam", "two")
	tree, err := gitstore.ParseOID(git(t, dir, "rev-parse", "HEAD^{tree}"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, tree
}

func mountRepository(t testing.TB, dir string, tree gitstore.OID) *mounted {
	t.Helper()
	store, err := gitstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return mountTree(t, store, tree)
}

func TestTwentyReadersAtOnceSeeWhatGitHas(t *testing.T) {
	requireFUSE(t)
	dir, tree := repository(t, 300)
	m := mountRepository(t, dir, tree)
	want := git(t, dir, "ls-tree", "-r", "--format=%(objectmode) %(objectname) %(path)", tree.String())
	// Modes and links once, by a program that walks; contents by twenty.
	modes := m.sh(`find . -type f -perm 755 -printf '100755 %P\n' -o -type f -printf '100644 %P\n' -o -type l -printf '120000 %P\n'`)
	var paths, wantModes, wantOIDs []string
	for line := range strings.Lines(want) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		wantModes = append(wantModes, f[0]+" "+f[2])
		if f[0] != "120000" {
			paths = append(paths, f[2])
			wantOIDs = append(wantOIDs, f[1])
		}
	}
	gotModes := strings.Split(modes, "\n")
	slices.Sort(gotModes)
	slices.Sort(wantModes)
	if !slices.Equal(gotModes, wantModes) {
		t.Errorf("modes:\n%s\nwant:\n%s", modes, strings.Join(wantModes, "\n"))
	}
	var readers sync.WaitGroup
	for i := range 20 {
		readers.Go(func() {
			cmd := exec.Command("git", "--git-dir="+filepath.Join(dir, ".git"), "hash-object", "--no-filters", "--stdin-paths")
			// Each begins somewhere else.
			k := i * len(paths) / 20
			mine := append(append([]string{}, paths[k:]...), paths[:k]...)
			oids := append(append([]string{}, wantOIDs[k:]...), wantOIDs[:k]...)
			cmd.Stdin = strings.NewReader(m.dir + "/" + strings.Join(mine, "\n"+m.dir+"/") + "\n")
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
			for j, got := range strings.Fields(string(out)) {
				if got != oids[j] {
					t.Errorf("reader %d: %s is %s, Git has %s", i, mine[j], got, oids[j])
				}
			}
			if n := len(strings.Fields(string(out))); n != len(mine) {
				t.Errorf("reader %d: %d of %d files", i, n, len(mine))
			}
		})
	}
	readers.Wait()
	m.wantReports()
}

func TestMountOutlivesTheUsersRepack(t *testing.T) {
	requireFUSE(t)
	dir, tree := repository(t, 60)
	m := mountRepository(t, dir, tree)
	if got := m.sh("cat d0/e0/f0 | tail -c 3"); got != "0 2" {
		t.Errorf("before: %q", got)
	}
	git(t, dir, "gc", "-q", "--prune=now")
	if got := m.sh("cat d1/e1/f1 | tail -c 3; find . -type f -exec cat {} + | wc -c"); !strings.HasPrefix(got, "1 1") {
		t.Errorf("after gc: %q", got)
	}
	m.wantReports()
}

func TestCorruptObjectOfARepositoryFailsAlone(t *testing.T) {
	requireFUSE(t)
	dir, tree := repository(t, 20)
	oid := git(t, dir, "rev-parse", "HEAD:d0/e0/f0") // loose
	loose := filepath.Join(dir, ".git", "objects", oid[:2], oid[2:])
	data, err := os.ReadFile(loose)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-5] ^= 0xff
	if err := os.Chmod(loose, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(loose, data, 0o644); err != nil {
		t.Fatal(err)
	}
	m := mountRepository(t, dir, tree)
	if out, err := tryShell(m.dir, "cat d0/e0/f0"); err == nil || !strings.Contains(out, "Input/output error") {
		t.Errorf("%v: %.100s", err, out)
	}
	if got := m.sh("find . -type f ! -path ./d0/e0/f0 -exec cat {} + | wc -c; stat -c %F d0/e0/f0"); !strings.HasSuffix(got, "regular file") {
		t.Error(got)
	}
	m.wantReports("d0/e0/f0")
}
