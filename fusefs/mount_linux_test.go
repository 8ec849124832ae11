package fusefs_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/cache"
	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/gitstore"
)

// This process serves the mounts the tests look at. It must not use them by
// package os, which registers files with the poller while it keeps a processor
// from running the goroutine that would answer. Tests use other programs (sh)
// or bare system calls (package unix), which give the processor away.

var epoch = time.Unix(1_700_000_000, 123_456_789)

func requireFUSE(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err == nil {
		f.Close()
		if os.Geteuid() == 0 {
			return
		}
		err = errors.New("not root")
	}
	if os.Getenv("RELOFS_REQUIRE_FUSE") == "1" {
		t.Fatalf("FUSE is required: %v", err)
	}
	t.Skipf("needs FUSE: %v", err)
}

// mounted is a lower mounted for a test.
type mounted struct {
	*fusefs.Lower
	t        testing.TB
	dir      string
	reported chan string // paths
	last     fusefs.Stats
}

func newConfig(t testing.TB, src fusefs.Source, root gitstore.OID) fusefs.Config {
	t.Helper()
	blobs, err := cache.NewBlobs(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(blobs.Close)
	return fusefs.Config{Store: src, Tree: root, Time: epoch, UID: 12, GID: 34, Blobs: blobs}
}

func mountTree(t testing.TB, src fusefs.Source, root gitstore.OID) *mounted {
	t.Helper()
	return mountConfig(t, newConfig(t, src, root))
}

func mountConfig(t testing.TB, cfg fusefs.Config) *mounted {
	t.Helper()
	requireFUSE(t)
	m := &mounted{t: t, dir: t.TempDir(), reported: make(chan string, 1000)}
	cfg.Report = func(path string, err error) {
		if err == nil {
			t.Errorf("Report(%q, nil)", path)
		}
		m.reported <- path
	}
	l, err := fusefs.NewLower(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.Lower = l
	if err := l.Mount(m.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Unmount(false); err != nil && !errors.Is(err, fusefs.ErrNotMounted) {
			t.Errorf("left mounted: %v", err)
			_ = l.Unmount(true)
		}
	})
	return m
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

// sh runs a script in the mount's root and returns what it printed.
func (m *mounted) sh(script string) string {
	m.t.Helper()
	return shell(m.t, m.dir, script)
}

func shell(t testing.TB, dir, script string) string {
	t.Helper()
	out, err := tryShell(dir, script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// tryShell changes into dir in the new process, not in this one.
func tryShell(dir, script string) (string, error) {
	cmd := exec.Command("sh", "-c", `cd "$0" || exit; `+script, dir)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return strings.TrimSuffix(out.String(), "\n"), err
}

// since returns the requests since the last call.
func (m *mounted) since() fusefs.Stats {
	now := m.Stats()
	d := now
	d.Lookup -= m.last.Lookup
	d.GetAttr -= m.last.GetAttr
	d.Readlink -= m.last.Readlink
	d.Open -= m.last.Open
	d.OpenDir -= m.last.OpenDir
	d.Read -= m.last.Read
	d.ReadDirPlus -= m.last.ReadDirPlus
	d.Flush -= m.last.Flush
	d.StatFs -= m.last.StatFs
	d.Statx -= m.last.Statx
	d.Lseek -= m.last.Lseek
	d.Ioctl -= m.last.Ioctl
	d.Access -= m.last.Access
	m.last = now
	return d
}

func (m *mounted) wantReports(want ...string) {
	m.t.Helper()
	var got []string
	for len(m.reported) > 0 {
		got = append(got, <-m.reported)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		m.t.Errorf("reported %q, want %q", got, want)
	}
}

// pread reads a file of the mount by bare system calls.
func pread(path string, n int, off int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, n)
	n, err = unix.Pread(fd, buf, off)
	return buf[:max(n, 0)], err
}

func TestMountIsFastAndAsksNothing(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(file{path: "a", content: "x"}))
	if s := m.Stats(); s.Requests() != 0 {
		t.Errorf("mounting sent %d requests", s.Requests())
	}
	info := shell(t, "/", `grep " `+m.dir+` " /proc/self/mountinfo`)
	if !strings.Contains(info, " - fuse.relofs relofs ro,") || !strings.Contains(info, "default_permissions") {
		t.Errorf("mountinfo: %s", info)
	}
}

func TestSecondMountOfALowerIsRefused(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree())
	if err := m.Mount(t.TempDir()); !errors.Is(err, fusefs.ErrMounted) {
		t.Errorf("second Mount: %v", err)
	}
	if err := m.Unmount(false); err != nil {
		t.Fatal(err)
	}
	if err := m.Unmount(false); !errors.Is(err, fusefs.ErrNotMounted) {
		t.Errorf("second Unmount: %v", err)
	}
	if err := m.Mount(m.dir); err != nil {
		t.Errorf("Mount after Unmount: %v", err)
	}
}

func TestMountErrorLeavesNothingBehind(t *testing.T) {
	requireFUSE(t)
	src := newMemory(t.TempDir())
	l, err := fusefs.NewLower(newConfig(t, src, src.addTree()))
	if err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if err := l.Mount(missing); !errors.Is(err, unix.ENOENT) {
		t.Errorf("Mount on a missing directory: %v", err)
	}
	if err := l.Unmount(false); !errors.Is(err, fusefs.ErrNotMounted) {
		t.Errorf("Unmount: %v", err)
	}
}

func TestBusyLowerUnmountsOnlyLazily(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(file{path: "a", content: "still there"}))
	fd, err := unix.Open(m.path("a"), unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := m.Unmount(false); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("Unmount while a file is open: %v", err)
	}
	if err := m.Unmount(true); err != nil {
		t.Fatalf("lazy Unmount: %v", err)
	}
	buf := make([]byte, 100)
	n, err := unix.Pread(fd, buf, 0)
	if got := string(buf[:max(n, 0)]); err != nil || got != "still there" {
		t.Errorf("read after lazy unmount: %q, %v", got, err)
	}
}

func TestChildProcessesDoNotHoldTheConnection(t *testing.T) {
	src := newMemory(t.TempDir())
	mountTree(t, src, src.addTree())
	if out := shell(t, "/", "ls -l /proc/self/fd"); strings.Contains(out, "/dev/fuse") {
		t.Errorf("a child process has /dev/fuse open:\n%s", out)
	}
}
