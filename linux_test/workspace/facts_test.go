//go:build linux

package workspace_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

func statOf(t testing.TB, elem ...string) syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(elem...), &st); err != nil {
		t.Fatalf("lstat %s: %v", filepath.Join(elem...), err)
	}
	return st
}

// inodes maps every path below root to its inode number.
func inodes(t *testing.T, root string) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			rel, _ := filepath.Rel(root, path)
			out[rel] = statOf(t, path).Ino
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUnmodifiedFilesShowTheCommitsFacts(t *testing.T) {
	r := sample(t)
	harness.WriteFile(t, filepath.Join(r.Dir, "big.bin"), strings.Repeat("0123456789abcdef", 1<<16))
	harness.WriteFile(t, filepath.Join(r.Dir, "empty"), "")
	harness.WriteFile(t, filepath.Join(r.Dir, "dangling"), "-> nowhere/at all")
	r.Git("add", "-A")
	r.Git("update-index", "--add", "--cacheinfo", "160000,"+r.Git("rev-parse", "HEAD")+",vendor/sub")
	r.Git("-c", "core.commentChar=;", "commit", "-qm", "facts", "--date", "2001-01-01T00:00:00Z")
	a := r.Create("alice")
	when, _ := strconv.ParseInt(r.Git("log", "-1", "--format=%ct"), 10, 64)

	for _, test := range []struct {
		path string
		mode uint32
		size int64 // -1: not looked at
	}{
		{"README.md", syscall.S_IFREG | 0o644, 6},
		{"big.bin", syscall.S_IFREG | 0o644, 1 << 20},
		{"empty", syscall.S_IFREG | 0o644, 0},
		{"tool.sh", syscall.S_IFREG | 0o755, int64(len(harness.Sample["tool.sh"]))},
		{"link", syscall.S_IFLNK | 0o777, int64(len("README.md"))},
		{"dangling", syscall.S_IFLNK | 0o777, int64(len("nowhere/at all"))},
		{"src", syscall.S_IFDIR | 0o755, -1},
		{"src/deep/c", syscall.S_IFDIR | 0o755, -1},
		{"vendor/sub", syscall.S_IFDIR | 0o755, -1},
	} {
		st := statOf(t, a.Root, test.path)
		if st.Mode != test.mode || test.size >= 0 && st.Size != test.size {
			t.Errorf("%s: mode %o size %d, want %o, %d", test.path, st.Mode, st.Size, test.mode, test.size)
		}
		if st.Mtim.Sec != when || st.Ctim.Sec != when {
			t.Errorf("%s: mtime %d, ctime %d; the commit's time is %d", test.path, st.Mtim.Sec, st.Ctim.Sec, when)
		}
		if int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
			t.Errorf("%s belongs to %d:%d", test.path, st.Uid, st.Gid)
		}
		if test.mode&syscall.S_IFMT == syscall.S_IFREG && (st.Nlink != 1 || st.Blocks*512 < st.Size) {
			t.Errorf("%s: %d links, %d blocks for %d bytes", test.path, st.Nlink, st.Blocks, st.Size)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(a.Root, "vendor/sub")); err != nil || len(entries) != 0 {
		t.Errorf("the submodule's directory: %v, %v", entries, err)
	}
	if got, err := os.Readlink(filepath.Join(a.Root, "dangling")); err != nil || got != "nowhere/at all" {
		t.Errorf("dangling leads to %q, %v", got, err)
	}
	// What the kernel says of the entry in a listing agrees with lstat.
	entries, err := os.ReadDir(a.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(a.Root, e.Name()))
		if err != nil || info.Mode().Type() != e.Type() {
			t.Errorf("%s is a %v in the listing and a %v (%v)", e.Name(), e.Type(), info.Mode().Type(), err)
		}
	}
	// An unknown submodule content never gets into a revision, and the link stays.
	a.Shell("echo x >vendor/sub/x")
	a.WantRevision(0)
}

func TestInodesAreStableAndEqualBetweenAgents(t *testing.T) {
	r := sample(t)
	a, b := r.Create("alice"), r.Create("bob")
	before := inodes(t, a.Root)
	seen := map[uint64]string{}
	for path, ino := range before {
		if other, ok := seen[ino]; ok {
			t.Errorf("%s and %s have inode %d", path, other, ino)
		}
		seen[ino] = path
	}
	for path, ino := range inodes(t, b.Root) {
		if before[path] != ino && path != "." {
			t.Errorf("%s: inode %d for alice, %d for bob", path, before[path], ino)
		}
	}
	check := func(when string) {
		t.Helper()
		for path, ino := range inodes(t, a.Root) {
			if want, ok := before[path]; ok && ino != want && path != "." {
				t.Errorf("%s %s has inode %d, had %d", when, path, ino, want)
			}
		}
	}
	a.Shell("echo more >>README.md; chmod +x main.go; touch src/a.go")
	check("after a write")
	before["renamed"] = before["main.go"]
	delete(before, "main.go")
	a.Shell("mv main.go renamed")
	check("after a rename")
	r.Run(r.Dir, "unmount", "alice")
	r.Run(r.Dir, "mount", "alice", filepath.Join(r.Home, "second"))
	a.Root = strings.TrimSpace(r.Run(r.Dir, "path", "alice"))
	check("after a remount")
	// A modified file's number does not outlive the lower it was copied from
	// (package fusefs, "File handles"); an unmodified one's does.
	for _, path := range []string{"README.md", "renamed", "src/a.go"} {
		delete(before, path)
	}
	r.Kill()
	r.Run(r.Dir, "path", "alice")
	check("after a killed daemon")
}

func TestListingAgreesWithLstatAboutInodes(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	a.Shell("echo x >>README.md; mv src lib; echo y >new; ln new hard; rm main.go")
	out := a.Shell(`find . -printf '%i %p\n'; echo; ls -aiU`)
	for _, line := range lines(strings.Split(out, "\n\n")[0]) {
		ino, path, _ := strings.Cut(line, " ")
		if got := strconv.FormatUint(statOf(t, a.Root, path).Ino, 10); got != ino {
			t.Errorf("%s: find says inode %s, lstat %s", path, ino, got)
		}
	}
	for _, line := range lines(strings.Split(out, "\n\n")[1]) {
		fields := strings.Fields(line)
		if fields[1] == ".." {
			continue
		}
		if got := strconv.FormatUint(statOf(t, a.Root, fields[1]).Ino, 10); got != fields[0] {
			t.Errorf("%s: ls says inode %s, lstat %s", fields[1], fields[0], got)
		}
	}
}

func TestADirectoryOfTenThousandNamesIsListedWhole(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	files := map[string]string{}
	n := 10_000
	if testing.Short() {
		n = 2_000
	}
	for i := range n {
		files["many/f"+strconv.Itoa(i)] = "x\n"
	}
	r := w.Repository(files)
	a := r.Create("alice")
	f, err := os.Open(filepath.Join(a.Root, "many"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string
	for {
		// Entries go while the directory is read; the others come exactly once.
		batch, err := f.Readdirnames(500)
		names = append(names, batch...)
		if err != nil {
			break
		}
		if err := os.Remove(filepath.Join(a.Root, "many", batch[0])); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	if len(names) != n || len(slices.Compact(names)) != n {
		t.Errorf("%d names, %d different; want %d", len(names), len(slices.Compact(names)), n)
	}
	left, err := os.ReadDir(filepath.Join(a.Root, "many"))
	if want := n - (n+499)/500; err != nil || len(left) != want {
		t.Errorf("%d names are left, want %d (%v)", len(left), want, err)
	}
	a.Shell("mv many all")
	_, tree := a.Sync()
	if got := len(lines(r.Git("ls-tree", "--name-only", tree+":all"))); got != len(left) {
		t.Errorf("the revision has %d, want %d", got, len(left))
	}
}
