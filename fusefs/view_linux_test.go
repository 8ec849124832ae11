package fusefs_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/gitstore"
)

func sampleFiles() []file {
	return []file{
		{path: "README", content: "hello\n"},
		{path: "bin/run", content: "#!/bin/sh\necho ran\n", mode: gitstore.ModeExec},
		{path: "empty", content: ""},
		{path: "link", content: "bin/run", mode: gitstore.ModeSymlink},
		{path: "module", content: "1", mode: gitstore.ModeGitlink},
		// Git sorts "lib.c" before "lib/" and "lib-x" before both.
		{path: "lib-x", content: "-"},
		{path: "lib.c", content: "."},
		{path: "lib/a/b/c.txt", content: strings.Repeat("c", 5000)},
		{path: "lib0", content: "0"},
	}
}

func TestTreeIsShownAsAFileSystemWould(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	got := m.sh(`find . -printf '%P %y %m %n %s %b %U:%G %T@ %C@ %l\n' | sort`)
	const at = " 12:34 1700000000.1234567890 1700000000.1234567890 "
	want := strings.Join([]string{
		" d 755 1 4096 8" + at,
		"README f 644 1 6 8" + at,
		"bin d 755 1 4096 8" + at,
		"bin/run f 755 1 19 8" + at,
		"empty f 644 1 0 0" + at,
		"lib d 755 1 4096 8" + at,
		"lib-x f 644 1 1 8" + at,
		"lib.c f 644 1 1 8" + at,
		"lib/a d 755 1 4096 8" + at,
		"lib/a/b d 755 1 4096 8" + at,
		"lib/a/b/c.txt f 644 1 5000 16" + at,
		"lib0 f 644 1 1 8" + at,
		"link l 777 1 7 8" + at + "bin/run",
		"module d 755 1 4096 8" + at,
	}, "\n")
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got := m.sh("cat README lib-x lib.c lib0 empty; ./link; ls -a module; ls -d lib/a/b/../..; wc -c <lib/a/b/c.txt; md5sum <lib/a/b/c.txt"); got !=
		"hello\n-.0ran\n.\n..\nlib/a/b/../..\n5000\n"+shell(t, "/", "head -c 5000 /dev/zero | tr '\\0' c | md5sum") {
		t.Errorf("contents: %q", got)
	}
	m.wantReports()
}

func TestAccessTimeStaysAfterReading(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	if got := m.sh("cat README >/dev/null; stat -c %X README"); got != "1700000000" {
		t.Errorf("atime %s", got)
	}
}

func TestSettledPathsHaveTheirOwnTimes(t *testing.T) {
	src := newMemory(t.TempDir())
	cfg := newConfig(t, src, src.addTree(sampleFiles()...))
	cfg.Settled = map[string]time.Time{
		"":              time.Unix(1, 0),
		"README":        time.Unix(2, 0),
		"lib/a":         time.Unix(3, 0),
		"lib/a/b/c.txt": time.Unix(4, 500),
		"absent":        time.Unix(5, 0),
	}
	m := mountConfig(t, cfg)
	got := m.sh(`find . -newermt 1969-01-01 ! -newermt 2000-01-01 -printf '%P %T@ %C@\n' | sort`)
	want := " 1.0000000000 1.0000000000\nREADME 2.0000000000 2.0000000000\nlib/a 3.0000000000 3.0000000000\nlib/a/b/c.txt 4.0000005000 4.0000005000"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestMutationsAreRefusedByTheKernel(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	for what, err := range map[string]error{
		"create":   errOf(unix.Open(m.path("new"), unix.O_CREAT|unix.O_WRONLY, 0o644)),
		"write":    errOf(unix.Open(m.path("README"), unix.O_WRONLY, 0)),
		"truncate": unix.Truncate(m.path("README"), 0),
		"unlink":   unix.Unlink(m.path("README")),
		"mkdir":    unix.Mkdir(m.path("d"), 0o755),
		"rmdir":    unix.Rmdir(m.path("module")),
		"rename":   unix.Rename(m.path("README"), m.path("x")),
		"link":     unix.Link(m.path("README"), m.path("x")),
		"symlink":  unix.Symlink("x", m.path("y")),
		"chmod":    unix.Chmod(m.path("README"), 0o600),
		"utimes":   unix.Utimes(m.path("README"), make([]unix.Timeval, 2)),
		"setxattr": unix.Setxattr(m.path("README"), "user.a", []byte("b"), 0),
	} {
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v, want EROFS", what, err)
		}
	}
}

func errOf(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func TestExtendedAttributesAreNotSupported(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	buf := make([]byte, 100)
	for range 2 {
		if _, err := unix.Getxattr(m.path("README"), "user.a", buf); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("getxattr: %v", err)
		}
	}
	if n, err := unix.Listxattr(m.path("README"), buf); n > 0 || (err != nil && !errors.Is(err, unix.EOPNOTSUPP)) {
		t.Errorf("listxattr: %d, %v", n, err)
	}
}

func TestInodeNumbersDependOnThePathAlone(t *testing.T) {
	src := newMemory(t.TempDir())
	const list = `find . -printf '%i %P\n' | sort -k2`
	first := mountTree(t, src, src.addTree(sampleFiles()...))
	first.sh("cat lib/a/b/c.txt >/dev/null; ls module >/dev/null") // another order of ids
	other := append(sampleFiles(), file{path: "AAA", content: "new"}, file{path: "lib/a/AAA", content: "new"})
	other[0].content = "changed"
	second := mountTree(t, src, src.addTree(other...))
	a, b := first.sh(list), second.sh(list+" | grep -v AAA")
	if a != b {
		t.Errorf("numbers differ:\n%s\n\n%s", a, b)
	}
	// A fixed point, so that a change of the formula is noticed: numbers are
	// kept by Git's index across versions of the program.
	if got := first.sh("stat -c %i README"); got != "1135621178629880549" {
		t.Errorf("inode of README: %s", got)
	}
	seen := make(map[uint64]string)
	for line := range strings.Lines(a) {
		var ino uint64
		var path string
		fmt.Sscan(line, &ino, &path)
		if ino == 0 || ino >= 1<<60 || seen[ino] != "" {
			t.Errorf("inode %d of %q (also %q)", ino, path, seen[ino])
		}
		seen[ino] = path
	}
	if got, want := first.sh("ls -1ia lib"), first.sh("for f in . .. a; do echo $(stat -c %i lib/$f) $f; done"); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("readdir and stat disagree:\n%s\n\n%s", got, want)
	}
}

func TestDirectoryOfFiftyThousandNamesIsListedWhole(t *testing.T) {
	src := newMemory(t.TempDir())
	const n = 50_000
	files := make([]file, n)
	for i := range files {
		files[i] = file{path: fmt.Sprintf("big/file-%05d.txt", i), content: fmt.Sprint(i)}
	}
	m := mountTree(t, src, src.addTree(files...))
	if got := m.sh("ls -f big | sort -u | wc -l"); got != fmt.Sprint(n+2) {
		t.Errorf("%s names", got)
	}
	// Some 180 names of this length fit into the 32 KiB a program asks for.
	if s := m.since(); s.ReadDirPlus > n/150 || s.Lookup+s.GetAttr > 3 {
		t.Errorf("requests: %+v", s)
	}
	if got := m.sh("cat big/file-00000.txt big/file-31415.txt big/file-49999.txt; test ! -e big/file-50000.txt"); got != "03141549999" {
		t.Errorf("contents: %q", got)
	}
	if got := m.sh("find big -size 1 -name 'file-*' | wc -l"); got != fmt.Sprint(n) {
		t.Errorf("find -size: %s", got)
	}
}

func TestNamesTheTreeCannotHaveAreRefused(t *testing.T) {
	src := newMemory(t.TempDir())
	blob := src.addBlob("x")
	entry := func(name string) gitstore.TreeEntry {
		return gitstore.TreeEntry{Name: name, Mode: gitstore.ModeFile, OID: blob}
	}
	for name, entries := range map[string][]gitstore.TreeEntry{
		"empty":     {entry("")},
		"too long":  {entry(strings.Repeat("n", 256))},
		"duplicate": {entry("a"), entry("a")},
		"reserved":  {entry(".relo")},
	} {
		t.Run(name, func(t *testing.T) {
			bad := src.addRawTree(entries...)
			if _, err := fusefs.NewLower(newConfig(t, src, bad)); !errors.Is(err, gitstore.ErrHostileTree) {
				t.Errorf("NewLower: %v", err)
			}
			if name == "reserved" {
				return // at the root only
			}
			m := mountTree(t, src, src.addRawTree(
				entry("a"), gitstore.TreeEntry{Name: "bad", Mode: gitstore.ModeTree, OID: bad}))
			out, err := tryShell(m.dir, "cat a; stat -c %F bad; ls bad")
			if err == nil || !strings.HasPrefix(out, "xdirectory\n") || !strings.Contains(out, "Input/output error") {
				t.Errorf("%v: %s", err, out)
			}
			m.wantReports("bad")
		})
	}
}

func TestRootThatCannotBeReadIsAnError(t *testing.T) {
	src := newMemory(t.TempDir())
	root := src.addTree(sampleFiles()...)
	src.damage(root, badContent)
	if _, err := fusefs.NewLower(newConfig(t, src, root)); !errors.Is(err, gitstore.ErrCorrupt) {
		t.Errorf("NewLower: %v", err)
	}
	if _, err := fusefs.NewLower(newConfig(t, src, gitstore.OID{1})); !errors.Is(err, gitstore.ErrNotFound) {
		t.Errorf("NewLower: %v", err)
	}
}

func TestNameLimitIsThatOfDisks(t *testing.T) {
	src := newMemory(t.TempDir())
	long := strings.Repeat("n", 255)
	m := mountTree(t, src, src.addTree(file{path: long, content: "x"}))
	if got := m.sh("cat n*; ls | wc -c; stat -f -c %l ."); got != "x256\n255" {
		t.Errorf("%q", got)
	}
	var st unix.Stat_t
	if err := unix.Stat(m.path(long+"n"), &st); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("a name of 256: %v", err)
	}
}

func TestStatfsShowsTheRepositorysDisk(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree())
	if got, want := m.sh("stat -f -c '%S %b' ."), shell(t, src.dir, "stat -f -c '%S %b' ."); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := os.Stat(src.dir + "/relo"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a mount alone made %s/relo: %v", src.dir, err)
	}
}
