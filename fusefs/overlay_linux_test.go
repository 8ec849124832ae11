package fusefs_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/gitstore"
)

// A lower exists to be below overlayfs: these tests hold what the kernel's
// overlay needs of it, mounted as workspaces are.

type overlaid struct {
	t           testing.TB
	lower       *mounted
	base, merge string
}

func (m *mounted) overlay() *overlaid {
	m.t.Helper()
	o := &overlaid{t: m.t, lower: m, base: m.t.TempDir()}
	o.merge = filepath.Join(o.base, "merged")
	for _, d := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(o.base, d), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	o.mount()
	m.t.Cleanup(func() { _ = unix.Unmount(o.merge, unix.MNT_DETACH) })
	return o
}

// mount is done by another program: mount(2) of an overlay asks the lower for
// its statfs, and this process must not wait for itself.
func (o *overlaid) mount() {
	o.t.Helper()
	shell(o.t, "/", fmt.Sprintf("mount -t overlay relofs-test -o lowerdir=%s,upperdir=%s/upper,workdir=%s/work,xino=on,redirect_dir=on,index=off,metacopy=off %s",
		o.lower.dir, o.base, o.base, o.merge))
}

func (o *overlaid) unmount() {
	o.t.Helper()
	if err := unix.Unmount(o.merge, 0); err != nil {
		o.t.Fatal(err)
	}
}

func (o *overlaid) sh(script string) string {
	o.t.Helper()
	return shell(o.t, o.merge, script)
}

func TestOverlayShowsAndChangesTheTree(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	o := m.overlay()
	// The root's own times are the upper's.
	const list = `find . -mindepth 1 -printf '%P %y %m %s %T@ %l\n' | sort`
	if got, want := o.sh(list), m.sh(list); got != want {
		t.Errorf("overlay:\n%s\nlower:\n%s", got, want)
	}
	o.sh(`set -e
		echo more >>README; chmod -x bin/run; rm lib0; mkdir new; echo n >new/n
		mv lib lib2; echo c >>lib2/a/b/c.txt; ln -s README l2; mv link link2; touch empty; rm -r module; mkdir lib; rmdir lib`)
	if got := o.sh(`cat README new/n; find . -type f -o -type l | sort | tr '\n' ' '; wc -c <lib2/a/b/c.txt; stat -c %a bin/run`); got !=
		"hello\nmore\nn\n./README ./bin/run ./empty ./l2 ./lib-x ./lib.c ./lib2/a/b/c.txt ./link2 ./new/n 5002\n644" {
		t.Errorf("%q", got)
	}
	o.unmount()
	o.mount()
	if got := o.sh(`cat README; head -c 3 lib2/a/b/c.txt; test ! -e lib; test ! -e module; ./bin/run || sh ./link2`); !strings.HasPrefix(got, "hello\nmore\nccc") || !strings.HasSuffix(got, "ran") {
		t.Errorf("after mounting again: %q", got)
	}
	m.wantReports()
}

func TestRenamingAnUnmodifiedDirectoryReadsNothing(t *testing.T) {
	src := newMemory(t.TempDir())
	var files []file
	for i := range 2000 {
		files = append(files, file{path: fmt.Sprintf("d/s%d/f%d", i%10, i), content: fmt.Sprint(i)})
	}
	m := mountTree(t, src, src.addTree(files...))
	o := m.overlay()
	o.sh("mv d e")
	if s := m.Stats(); s.Read != 0 || src.decodes.Load() != 0 || s.Directories > 2 {
		t.Errorf("%+v", s)
	}
	if got := o.sh("find e -type f | wc -l; cat e/s3/f13"); got != "2000\n13" {
		t.Error(got)
	}
}

func TestCopyUpOfALargeFile(t *testing.T) {
	src := newMemory(t.TempDir())
	content := random(20<<20, 9)
	m := mountTree(t, src, src.addTree(file{path: "big", content: content}))
	o := m.overlay()
	o.sh("printf x >>big")
	want := sha256.Sum256([]byte(content + "x"))
	if got := o.sh("sha256sum <big"); got != fmt.Sprintf("%x  -", want) {
		t.Errorf("copied up: %s", got)
	}
	if got := m.sh("sha256sum <big"); got != fmt.Sprintf("%x  -", sha256.Sum256([]byte(content))) {
		t.Errorf("below: %s", got)
	}
}

func TestProgramsRunFromTheLower(t *testing.T) {
	src := newMemory(t.TempDir())
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	echo, err := os.ReadFile("/bin/echo")
	if err != nil {
		t.Fatal(err)
	}
	m := mountTree(t, src, src.addTree(
		file{path: "true", content: string(program), mode: gitstore.ModeExec},
		file{path: "echo", content: string(echo), mode: gitstore.ModeExec},
		file{path: "plain", content: string(program)},
	))
	o := m.overlay()
	if got := o.sh("./true && ./echo mapped; ./plain 2>/dev/null || ./echo refused"); got != "mapped\nrefused" {
		t.Error(got)
	}
	// Written while it runs and run after it was written.
	if got := o.sh("cp echo e2 && ./e2 a; printf x >>echo && ./echo b"); got != "a\nb" {
		t.Error(got)
	}
}

func TestSharedMappingOfALowerFileSeesWrites(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(file{path: "f", content: random(10_000, 3)}))
	o := m.overlay()
	fd, err := unix.Open(filepath.Join(o.merge, "f"), unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	mem, err := unix.Mmap(fd, 0, 10_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(mem[5000:], "through the mapping")
	if err := unix.Msync(mem, unix.MS_SYNC); err != nil {
		t.Fatal(err)
	}
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	got, err := pread(filepath.Join(o.merge, "f"), 19, 5000)
	if err != nil || string(got) != "through the mapping" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestOverlayKeepsInodeNumbers(t *testing.T) {
	src := newMemory(t.TempDir())
	root := src.addTree(sampleFiles()...)
	m := mountTree(t, src, root)
	o := m.overlay()
	const list = "stat -c '%i %n' README lib lib/a lib/a/b/c.txt bin/run"
	before := o.sh(list)
	if got := m.sh(list); got != withoutLayer(before) {
		t.Errorf("lower has\n%s\noverlay has\n%s", got, before)
	}
	o.sh("echo x >>README; echo x >>lib/a/b/c.txt; chmod 644 bin/run")
	if got := o.sh(list); got != before {
		t.Errorf("after copy-up\n%s\nwas\n%s", got, before)
	}
	o.sh("mv README R; mv R README")
	o.unmount()
	o.mount()
	if got := o.sh(list); got != before {
		t.Errorf("after mounting again\n%s\nwas\n%s", got, before)
	}

	// The numbers of modified files are the upper's under another lower; they
	// must not be those of whatever has the same node id there.
	o.unmount()
	other := mountTree(t, src, root)
	other.sh("find lib -ls >/dev/null; find . -ls >/dev/null")
	o.lower = other
	o.mount()
	lines := strings.Split(o.sh(list), "\n")
	for i, was := range strings.Split(before, "\n") {
		modified := !strings.HasSuffix(was, " lib") && !strings.HasSuffix(was, " lib/a")
		if !modified && lines[i] != was {
			t.Errorf("under another lower %s, was %s", lines[i], was)
		}
	}
	all := o.sh("find . -printf '%i\n' | sort | uniq -d")
	if all != "" {
		t.Errorf("numbers used twice: %s", all)
	}
}

// withoutLayer removes the number of the layer, which overlayfs (xino=on) puts
// above bit 62 of an inode number.
func withoutLayer(list string) string {
	var out strings.Builder
	for line := range strings.Lines(list) {
		var ino uint64
		var name string
		fmt.Sscan(line, &ino, &name)
		fmt.Fprintln(&out, ino&(1<<62-1), name)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func TestAgentsShareWhatOneHasRead(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	const work = "find . -type f -exec cat {} + >/dev/null; find . -size +3 >/dev/null"
	m.overlay().sh(work)
	m.since()
	m.overlay().sh(work)
	// Mounting asks for the file system's limits.
	if s := m.since(); s.Requests() != s.StatFs {
		t.Errorf("the second agent's walk: %+v", s)
	}
}

func TestDamagedFilesCanBeReplacedThroughTheOverlay(t *testing.T) {
	src := newMemory(t.TempDir())
	root := src.addTree(file{path: "a", content: "header lost"}, file{path: "b", content: "content lost"}, file{path: "c", content: "c"})
	src.damage(oidOf("blob", "header lost"), badHeader)
	src.damage(oidOf("blob", "content lost"), badContent)
	m := mountTree(t, src, root)
	o := m.overlay()
	if out, err := tryShell(o.merge, "echo x >>b"); err == nil {
		t.Errorf("appended to a file that cannot be read: %s", out)
	}
	if got := o.sh("ls; rm a; echo new >b; cat b c"); got != "a\nb\nc\nnew\nc" {
		t.Errorf("%q", got)
	}
}

func TestOverlayCanBeTheLowerOfAnother(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(sampleFiles()...))
	inner := m.overlay()
	inner.sh("echo inner >f")
	outer := &overlaid{t: t, lower: &mounted{dir: inner.merge}, base: t.TempDir()}
	outer.merge = filepath.Join(outer.base, "merged")
	shell(t, outer.base, "mkdir upper work merged")
	outer.mount()
	t.Cleanup(func() { _ = unix.Unmount(outer.merge, unix.MNT_DETACH) })
	if got := outer.sh("echo outer >>f; cat f README; cat lib0"); got != "inner\nouter\nhello\n0" {
		t.Errorf("%q", got)
	}
}
