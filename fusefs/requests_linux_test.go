package fusefs_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/gitstore"
)

// warmUp makes the kernel learn that opens need no messages.
func (m *mounted) warmUp() {
	m.t.Helper()
	m.sh("cat README >/dev/null; ls . >/dev/null")
	m.since()
}

func (m *mounted) wantNoRequests(what string) {
	m.t.Helper()
	if s := m.since(); s.Requests() != 0 {
		m.t.Errorf("%s: %+v", what, s)
	}
}

func TestOpenAndCloseCostNoMessage(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	m.sh("cat README >/dev/null; ls . >/dev/null")
	if s := m.since(); s.Open != 1 || s.OpenDir != 1 || s.Flush != 1 {
		t.Errorf("the first use: %+v", s)
	}
	m.sh("cat lib0 >/dev/null")
	if s := m.since(); s.Requests() != 1 || s.Read != 1 {
		t.Errorf("first read of a file in a listed directory: %+v", s)
	}
	m.sh("for i in 1 2 3; do cat lib0 README >/dev/null; : <lib-x; done")
	m.wantNoRequests("open, read, close again")
}

func TestWalkCostsTwoRequestsADirectoryAndTheNextNone(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	const directories = 6
	m.sh("find . -size +100 -o -newer README >/dev/null; ls -lR . >/dev/null")
	s := m.since()
	if s.ReadDirPlus != 2*directories || s.Read != 0 || s.Lookup > 1 || s.GetAttr > 1 || s.Readlink != 1 {
		t.Errorf("first walk: %+v", s)
	}
	if n := src.decodes.Load() - int64(s.Readlink); n != 0 {
		t.Errorf("the walk decoded %d blobs", n)
	}
	m.sh("find . -size +100 -o -newer README >/dev/null; ls -lR . >/dev/null; readlink link >/dev/null")
	m.wantNoRequests("second walk")
}

func TestStatAfterReadingCostsNoMessage(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	m.warmUp()
	m.sh("find . -type f -exec cat {} + >/dev/null")
	m.since()
	m.sh("find . -size +100 -o -printf '%s %A@ %i' >/dev/null")
	m.wantNoRequests("stat of files that were read")
}

func TestAbsentNamesAreAskedForOnce(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	m.warmUp()
	m.sh("test ! -e node_modules; test ! -e lib/go.mod")
	if s := m.since(); s.Lookup != 2 || s.Requests() != 2 {
		t.Errorf("first look: %+v", s)
	}
	m.sh("test ! -e node_modules; test ! -e lib/go.mod")
	m.wantNoRequests("second look")
}

func TestExtendedAttributeProbesReachNobody(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	m.warmUp()
	buf := make([]byte, 10)
	for _, name := range []string{"README", "lib0", "lib"} {
		_, _ = unix.Getxattr(m.path(name), "security.capability", buf)
		_, _ = unix.Listxattr(m.path(name), buf)
	}
	m.wantNoRequests("attribute probes")
}

func TestTreesAreReadOnceAndOnlyWhenLookedAt(t *testing.T) {
	src := newMemory(t.TempDir())
	var files []file
	for i := range 50 {
		files = append(files, file{path: fmt.Sprintf("d%02d/sub/f", i), content: fmt.Sprint(i)})
	}
	m := mountTree(t, src, src.addTree(files...))
	if n := src.treeReads.Load(); n != 1 {
		t.Errorf("mounting read %d trees", n)
	}
	m.sh("cat d07/sub/f >/dev/null")
	if n, s := src.treeReads.Load(), m.Stats(); n != 3 || s.Directories != 3 || s.Nodes != 1+50+1+1 {
		t.Errorf("one path read %d trees: %+v", n, s)
	}
	m.sh("for i in 1 2 3 4 5 6 7 8; do find . -type f | sort | xargs cat >/dev/null & done; wait")
	if n, s := src.treeReads.Load(), m.Stats(); n != 101 || s.Directories != 101 || s.Nodes != 151 {
		t.Errorf("eight walks at once read %d trees: %+v", n, s)
	}
	if n := src.headers.Load(); n > 8*50 {
		t.Errorf("%d headers", n)
	}
}

func TestHandlesOutliveTheKernelsMemory(t *testing.T) {
	src := newMemory(t.TempDir())
	root := src.addTree(sampleFiles()...)
	m := mountTree(t, src, root)
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, m.path("lib/a/b/c.txt"), 0)
	if err != nil {
		t.Fatal(err)
	}
	open := func(m *mounted) (string, error) {
		dir, err := unix.Open(m.dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(dir)
		fd, err := unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		buf := make([]byte, 3)
		_, err = unix.Read(fd, buf)
		return string(buf), err
	}
	if got, err := open(m); got != "ccc" || err != nil {
		t.Errorf("right away: %q, %v", got, err)
	}
	// A new mount of the same lower has an empty cache and asks by number.
	if err := m.Unmount(false); err != nil {
		t.Fatal(err)
	}
	if err := m.Mount(m.dir); err != nil {
		t.Fatal(err)
	}
	if got, err := open(m); got != "ccc" || err != nil {
		t.Errorf("after mounting again: %q, %v", got, err)
	}
	// In another lower the number is free or another file's.
	other := mountTree(t, src, root)
	other.sh("find . -ls >/dev/null")
	if got, err := open(other); err != unix.ESTALE {
		t.Errorf("in another lower: %q, %v", got, err)
	}
	fresh := mountTree(t, src, src.addTree(file{path: "x", content: "x", mode: gitstore.ModeFile}))
	if got, err := open(fresh); err != unix.ESTALE {
		t.Errorf("in a lower without that many nodes: %q, %v", got, err)
	}
}
