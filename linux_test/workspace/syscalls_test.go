//go:build linux

package workspace_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestSharedMappingsAreWrittenAndCaptured(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	path := filepath.Join(a.Root, "src/deep/b.go")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(m[5000:], "mapped")
	if data := mustRead(t, path); data[5000:5006] != "mapped" {
		t.Errorf("read(2) sees %q of what the mapping holds", data[5000:5006])
	}
	if _, err := f.WriteAt([]byte("PACKAGE"), 0); err != nil {
		t.Fatal(err)
	}
	if string(m[:7]) != "PACKAGE" {
		t.Errorf("the mapping sees %q of what write(2) wrote", m[:7])
	}
	if err := errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m), f.Close()); err != nil {
		t.Fatal(err)
	}
	wantTree(a, with(harness.Sample, map[string]string{"src/deep/b.go": mustRead(t, path)}))

	// A private mapping of an unmodified file changes nothing.
	f, err = os.Open(filepath.Join(a.Root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err = unix.Mmap(int(f.Fd()), 0, 6, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	m[0] = 'j'
	a.WantFile("README.md", "hello\n")
	a.WantRevision(mustRevision(a))
}

func mustRevision(a *harness.Agent) int {
	a.T.Helper()
	var w struct{ Workspace struct{ Revision int } }
	a.JSON(a.Dir, &w, "status", a.Name)
	return w.Workspace.Revision
}

func TestRareSystemCallsWorkOrSayWhatTheyDoNot(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	at := func(p string) string { return filepath.Join(a.Root, p) }

	// O_TMPFILE, linked into place.
	fd, err := unix.Open(at("src"), unix.O_TMPFILE|unix.O_RDWR, 0o644)
	switch {
	case err == nil:
		unix.Write(fd, []byte("unnamed\n"))
		if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, at("src/named"), unix.AT_SYMLINK_FOLLOW); err != nil {
			t.Errorf("linkat of an O_TMPFILE: %v", err)
		}
		unix.Close(fd)
	case errors.Is(err, unix.EOPNOTSUPP):
		a.Write("src/named", "unnamed\n")
	default:
		t.Errorf("O_TMPFILE: %v", err)
	}

	// Rename flags.
	if err := unix.Renameat2(unix.AT_FDCWD, at("README.md"), unix.AT_FDCWD, at("main.go"), unix.RENAME_NOREPLACE); !errors.Is(err, unix.EEXIST) {
		t.Errorf("RENAME_NOREPLACE onto a file: %v, want EEXIST", err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, at("README.md"), unix.AT_FDCWD, at("main.go"), unix.RENAME_EXCHANGE); err != nil {
		t.Errorf("RENAME_EXCHANGE of files: %v", err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, at("src"), unix.AT_FDCWD, at("tool.sh"), unix.RENAME_EXCHANGE); err != nil {
		t.Errorf("RENAME_EXCHANGE of a directory and a file: %v", err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, at("link"), unix.AT_FDCWD, at("link2"), 1<<20); !errors.Is(err, unix.EINVAL) {
		t.Errorf("an unknown rename flag: %v, want EINVAL", err)
	}
	// An open file that is unlinked, and one that is renamed over.
	f, err := os.OpenFile(at("go.mod"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(at("go.mod")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("MODULE"), 0); err != nil {
		t.Errorf("write to an unlinked file: %v", err)
	}
	buf := make([]byte, 13)
	if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != "MODULE sample" {
		t.Errorf("an unlinked file holds %q, %v", buf, err)
	}
	// O_EXCL, O_APPEND, O_TRUNC, O_NOFOLLOW.
	if _, err := unix.Open(at("main.go"), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644); !errors.Is(err, unix.EEXIST) {
		t.Errorf("O_EXCL on an unmodified file: %v, want EEXIST", err)
	}
	if _, err := unix.Open(at("link"), unix.O_RDONLY|unix.O_NOFOLLOW, 0); !errors.Is(err, unix.ELOOP) {
		t.Errorf("O_NOFOLLOW on a link: %v, want ELOOP", err)
	}
	for _, text := range []string{"1\n", "2\n"} {
		f, err := os.OpenFile(at("log.txt"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		f.Seek(0, 0)
		f.WriteString(text)
		f.Close()
	}
	// Directories and files in each other's place.
	for _, test := range []struct {
		what string
		err  error
		want error
	}{
		{"rmdir of a full directory", unix.Rmdir(at("tool.sh")), unix.ENOTEMPTY},
		{"unlink of a directory", unix.Unlink(at("tool.sh")), unix.EISDIR},
		{"a file below a file", unix.Mkdir(at("main.go/x"), 0o755), unix.ENOTDIR},
		{"rename of a directory onto a file", unix.Rename(at("tool.sh"), at("main.go")), unix.ENOTDIR},
		{"rename of a directory into itself", unix.Rename(at("tool.sh"), at("tool.sh/deep/x")), unix.EINVAL},
		{"a name of 256 bytes", unix.Mkdir(at(strings.Repeat("n", 256)), 0o755), unix.ENAMETOOLONG},
		{"a hard link to a directory", unix.Link(at("tool.sh"), at("hard")), unix.EPERM},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", test.what, test.err, test.want)
		}
	}
	var fs, disk unix.Statfs_t
	if err := errors.Join(unix.Statfs(a.Root, &fs), unix.Statfs(r.Dir, &disk)); err != nil || fs.Blocks != disk.Blocks {
		t.Errorf("statfs shows %d blocks, the disk below has %d (%v)", fs.Blocks, disk.Blocks, err)
	}
	s := harness.Sample
	wantTree(a, map[string]string{
		".gitignore": s[".gitignore"], "README.md": s["main.go"], "main.go": s["README.md"], "link": s["link"],
		"src": s["tool.sh"], "tool.sh/a.go": s["src/a.go"], "tool.sh/deep/b.go": s["src/deep/b.go"],
		"tool.sh/deep/c/d.txt": s["src/deep/c/d.txt"], "tool.sh/named": "unnamed\n", "log.txt": "1\n2\n",
	})
}

func TestLocksHoldBetweenProcesses(t *testing.T) {
	needs(t, "flock", "python3")
	r := sample(t)
	a := r.Create("alice")
	for _, file := range []string{"README.md", "fresh"} {
		out := a.Shell(`: >>` + file + `
			flock -n ` + file + ` sh -c 'flock -n ` + file + ` true; echo inner $?'
			flock -n ` + file + ` echo free`)
		if out != "inner 1\nfree\n" {
			t.Errorf("flock on %s: %q", file, out)
		}
		out = a.Shell(`python3 - <<'P'
import fcntl, subprocess, sys
f = open("` + file + `", "r+b"); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 0)
child = "import fcntl,sys\nf=open('` + file + `','r+b')\nfor at in 0,4:\n  try:\n    fcntl.lockf(f, fcntl.LOCK_EX|fcntl.LOCK_NB, 2, at); print(at, 'taken')\n  except OSError: print(at, 'refused')"
subprocess.run([sys.executable, "-c", child])
P`)
		if out != "0 refused\n4 taken\n" {
			t.Errorf("fcntl locks on %s: %q", file, out)
		}
	}
	// An agent's lock is not the other's, nor the user's.
	b := r.Create("bob")
	if out := a.Shell(`flock -n main.go sh -c 'flock -n "` + b.Root + `/main.go" echo bob; flock -n "` + r.Dir + `/main.go" echo user'`); out != "bob\nuser\n" {
		t.Errorf("with alice's lock held: %q", out)
	}
}

func TestSQLiteWorksInTheMount(t *testing.T) {
	r := sample(t)
	var db string
	python, err := exec.Command("python3", "-c", "import sqlite3, sys; print(sys.executable)").Output()
	switch {
	case err == nil:
		db = strings.TrimSpace(string(python)) + ` -c 'import sqlite3,sys
c = sqlite3.connect(sys.argv[1], timeout=30)
print(*[x[0] for s in sys.argv[2].split(";") for x in c.execute(s)]); c.commit()'`
	default:
		needs(t, "sqlite3")
		db = "sqlite3"
	}
	a := r.Create("alice")
	for _, mode := range []string{"delete", "wal"} {
		out := a.Shell(`set -e; db() { ` + db + ` ` + mode + `.db "$1"; }
			db "pragma journal_mode=` + mode + `; create table t(a)"
			for i in 1 2 3; do (for j in 1 2; do db "insert into t values($i)"; done) & done >/dev/null; wait
			db "select count(*) from t; pragma integrity_check" | tr '\n' ' '`)
		if got := strings.Join(strings.Fields(out), " "); got != mode+" 6 ok" {
			t.Errorf("journal mode %s: %q", mode, got)
		}
	}
	// The database of a revision is a whole one.
	a.Sync()
	cmd := exec.Command("git", "cat-file", "blob", "refs/relo/vws/alice/overlay:delete.db")
	cmd.Dir = r.Dir
	out, err := cmd.Output()
	if err != nil || !bytes.Equal(out, []byte(a.Read("delete.db"))) {
		t.Errorf("the revision's database differs from the file's %d bytes (%v)", len(a.Read("delete.db")), err)
	}
}

func TestAFileIsExecutableAtOnceAfterItWasWritten(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		path := filepath.Join(a.Root, fmt.Sprintf("p%d", i))
		// Through a shell: a fork of this process elsewhere could hold the
		// descriptor for a moment and make it busy.
		cmd := exec.Command("sh", "-c", `cat >"$1" && chmod +x "$1" && "$1"`, "sh", path)
		cmd.Stdin = bytes.NewReader(program)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%d: %v %s", i, err, out)
		}
	}
}

// watch adds an inotify watch and returns a function that waits for an event
// on a name.
func watch(t *testing.T, dir string) func(name string, limit time.Duration) bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	var seen []byte
	return func(name string, limit time.Duration) bool {
		buf := make([]byte, 1<<16)
		for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if n, err := unix.Read(fd, buf); err == nil {
				seen = append(seen, buf[:n]...)
			}
			if bytes.Contains(seen, []byte(name+"\x00")) {
				seen = nil
				return true
			}
		}
		return false
	}
}

func TestWatchersSeeEditsOfToolsAndOfUndo(t *testing.T) {
	r := sample(t)
	a := r.Create("alice")
	event := watch(t, a.Root)
	deep := watch(t, filepath.Join(a.Root, "src/deep"))
	a.Shell("echo x >>README.md; echo y >new.txt; rm src/deep/b.go")
	for name, saw := range map[string]func(string, time.Duration) bool{"README.md": event, "b.go": deep} {
		if !saw(name, 5*time.Second) {
			t.Errorf("no event for %s", name)
		}
	}
	a.WantRevision(mustRevision(a))
	event("nothing", 50*time.Millisecond)
	event("new.txt", 0)
	// A restore is one revision, however many the writes became.
	for _, step := range [][]string{{"restore", "alice", "--to", "0"}, {"undo", "alice"}, {"redo", "alice"}} {
		r.Run(r.Dir, step...)
		if !event("README.md", 5*time.Second) || !deep("b.go", 5*time.Second) {
			t.Errorf("%s raises no events", step[0])
		}
	}
}
