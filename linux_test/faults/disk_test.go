//go:build linux

package faults_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

// disk mounts a fresh ext4 of the given size and returns where.
func disk(t *testing.T, megabytes int64) string {
	t.Helper()
	dir := t.TempDir()
	image, point := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(megabytes<<20), f.Close(), os.Mkdir(point, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	command(t, "mkfs.ext4", "-q", "-m", "0", image)
	mountAt(t, point, "-o", "loop", image)
	return point
}

// mountAt mounts something for the time of the test. The loop device of an
// image goes with its mount.
func mountAt(t *testing.T, point string, args ...string) {
	t.Helper()
	command(t, "mount", append(args, point)...)
	t.Cleanup(func() {
		if err := syscall.Unmount(point, 0); err != nil {
			t.Errorf("unmount %s: %v", point, err)
			syscall.Unmount(point, syscall.MNT_DETACH)
		}
	})
}

// fill writes until the disk is full and returns what frees it again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	var made []string
	// The last blocks go to ever smaller files.
	for size := 1 << 20; size >= 1; size /= 4 {
		for full := false; !full; {
			path := filepath.Join(dir, fmt.Sprintf("filler-%d", len(made)))
			err := os.WriteFile(path, make([]byte, size), 0o600)
			if err != nil && !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			full = err != nil
			made = append(made, path)
			if size == 1 && len(made) > 5000 {
				break
			}
		}
	}
	return func() {
		for _, path := range made {
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	}
}

// noise does not compress.
func noise(n int) string {
	r := rand.NewChaCha8([32]byte{})
	b := make([]byte, n)
	r.Read(b)
	return string(b)
}

func TestFullDiskReachesTheToolAndLeavesTheChain(t *testing.T) {
	dir := disk(t, 96)
	w := harness.New(t)
	r := w.RepositoryIn(dir, harness.Sample)
	a := r.Create("writer")
	a.Write("before.txt", "before\n")
	a.WantRevision(1)
	free := fill(t, dir)

	f, err := os.Create(filepath.Join(a.Root, "big"))
	if err == nil {
		for err == nil {
			_, err = f.Write([]byte(noise(1 << 20)))
		}
		f.Close()
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing on a full disk: %v", err)
	}
	free()
	os.Remove(filepath.Join(a.Root, "big"))

	// The bytes find room, the revision that holds them does not.
	content := noise(12 << 20)
	a.Write("kept", content)
	a.Sync()
	ref := a.Ref()
	free = fill(t, dir)
	f, err = os.OpenFile(filepath.Join(a.Root, "kept"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(content[1:]+"x"), 0) // in place, in blocks it has
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.WantRefusal(r.Dir, 1, "disk_full", "sync", "writer")
	if now := a.Ref(); now != ref {
		t.Errorf("a publication that failed moved the ref from %s to %s", ref, now)
	}
	wantNoRemains(t, r)
	a.WantFile("kept", content[1:]+"x")
	wantChain(t, a)

	free()
	a.Sync()
	if a.Ref() == ref {
		t.Error("nothing is published although there is room")
	}
	shown := w.Run(r.Dir, "show", "writer:kept")
	if shown != content[1:]+"x" {
		t.Error("what was published is not what was written")
	}
	wantChain(t, a)
}

// wantNoRemains checks that nothing unfinished lies in the object database.
func wantNoRemains(t *testing.T, r *harness.Repository) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(r.Dir, ".git"), func(path string, d os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if d != nil && d.IsDir() && d.Name() == "relo" {
			return filepath.SkipDir
		}
		if name := filepath.Base(path); strings.HasPrefix(name, "tmp_") || strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".keep") {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFullDiskWhileCreatingUndoingAndSettlingChangesNothing(t *testing.T) {
	dir := disk(t, 48)
	w := harness.New(t)
	r := w.RepositoryIn(dir, harness.Sample)
	idle := r.Create("idle")
	idle.Write("new.txt", "new\n")
	idle.WantRevision(1)
	w.Run(r.Dir, "unmount", "idle")
	a := r.Create("writer")
	content := noise(8 << 20)
	a.Write("large", content)
	a.WantRevision(1)
	a.Shell("rm large; echo x >small")
	a.WantRevision(2)
	refs := r.Git("for-each-ref")
	free := fill(t, dir)

	w.WantRefusal(r.Dir, 1, "disk_full", "create", "third")
	w.WantRefusal(r.Dir, 1, "disk_full", "undo", "writer")
	a.WantNone("large")
	a.WantFile("small", "x\n")
	// Settling needs little; whether it finds that or not, nothing is lost.
	if s := w.Try(r.Dir, "--json", "settle", "idle"); s.Code != 0 && !strings.Contains(s.Stdout, `"disk_full"`) {
		t.Errorf("settle on a full disk: exit status %d, %s", s.Code, s.Stdout)
	}
	if now := r.Git("for-each-ref"); now != refs {
		t.Errorf("refs before:\n%s\nand after:\n%s", refs, now)
	}
	for _, agent := range []*harness.Agent{a, idle} {
		wantChain(t, agent)
	}

	// A daemon that starts on the full disk brings back what it can.
	w.Kill()
	if s := w.Try(r.Dir, "--json", "status", "writer"); s.Code != 0 && !strings.Contains(s.Stdout, `"disk_full"`) {
		t.Errorf("status after a restart on a full disk: exit status %d, %s", s.Code, s.Stdout)
	}

	free()
	w.Run(r.Dir, "mount", "writer")
	a.WantFile("small", "x\n")
	w.Run(r.Dir, "undo", "writer")
	if a.Read("large") != content {
		t.Error("undo brings back something else")
	}
	w.Run(r.Dir, "mount", "idle")
	idle.WantFile("new.txt", "new\n")
	r.Create("third").WantFile("README.md", "hello\n")
	wantMounts(t, w, 3)
}

func TestReadOnlyRepositoryIsRefusedAndUnchanged(t *testing.T) {
	w := harness.New(t)
	writable := w.Repository(harness.Sample)
	point := t.TempDir()
	mountAt(t, point, "--bind", writable.Dir)
	command(t, "mount", "-o", "remount,bind,ro", point)
	before := snapshot(t, writable.Dir)
	for _, args := range [][]string{{"create", "a"}, {"list"}, {"sync", "a"}, {"run", "a", "--", "true"}} {
		w.WantRefusal(point, 1, "repository_read_only", args...)
	}
	if after := snapshot(t, writable.Dir); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	wantMounts(t, w, 0)
	w.Run("/", "daemon", "stop")
}

// snapshot lists a directory with sizes and times.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	return command(t, "find", dir, "-printf", "%p %y %s %T@\n")
}

func TestRepositoryBecomesReadOnlyUnderAWorkspace(t *testing.T) {
	dir := disk(t, 32)
	w := harness.New(t)
	r := w.RepositoryIn(dir, harness.Sample)
	a := r.Create("a")
	a.Write("x", "1\n")
	a.WantRevision(1)
	ref := a.Ref()
	a.Write("x", "2\n")
	git := filepath.Join(r.Dir, ".git")
	for _, sub := range []string{"objects", "refs"} {
		path := filepath.Join(git, sub)
		command(t, "mount", "--bind", path, path)
		command(t, "mount", "-o", "remount,bind,ro", path)
		defer syscall.Unmount(path, syscall.MNT_DETACH)
	}
	if s := w.Try(r.Dir, "--json", "sync", "a"); s.Code == 0 || !strings.Contains(s.Stdout, `"repository_read_only"`) {
		// The capture that comes by itself may have been faster than the mounts.
		if a.Ref() == ref {
			t.Errorf("sync: exit status %d, %s", s.Code, s.Stdout)
		}
	}
	a.WantFile("x", "2\n")
	for _, sub := range []string{"objects", "refs"} {
		// The daemon may have files open in it.
		if err := syscall.Unmount(filepath.Join(git, sub), syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
	a.Sync()
	if got := w.Run(r.Dir, "show", "a:x"); got != "2\n" {
		t.Errorf("published %q", got)
	}
	wantChain(t, a)
}

func TestFileSystemsThatCanAndCannotHoldAnUpper(t *testing.T) {
	t.Run("overlayfs is refused by name", func(t *testing.T) {
		dir := t.TempDir()
		for _, sub := range []string{"l", "u", "w", "m"} {
			os.Mkdir(filepath.Join(dir, sub), 0o755)
		}
		point := filepath.Join(dir, "m")
		mountAt(t, point, "-t", "overlay", "-o", fmt.Sprintf("lowerdir=%s/l,upperdir=%s/u,workdir=%s/w", dir, dir, dir), "container")
		w := harness.New(t)
		r := w.RepositoryIn(point, harness.Sample)
		before := r.UserState()
		w.WantRefusal(r.Dir, 1, "upper_refused", "create", "a")
		s := w.Try(r.Dir, "create", "a")
		if !strings.Contains(s.Stderr, "overlay") {
			t.Errorf("the refusal does not name the file system: %s", s.Stderr)
		}
		if refs := r.Git("for-each-ref", "refs/relo"); refs != "" {
			t.Errorf("refs are left: %s", refs)
		}
		if after := r.UserState(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		wantMounts(t, w, 0)
	})
	t.Run("tmpfs works", func(t *testing.T) {
		point := t.TempDir()
		mountAt(t, point, "-t", "tmpfs", "none")
		w := harness.New(t)
		a := w.RepositoryIn(point, harness.Sample).Create("a")
		a.Write("x", "1\n")
		a.Shell("rm README.md; mv src moved")
		a.WantRevision(1)
		pid := w.DaemonPID()
		killDaemon(t, pid)
		w.Run(a.Dir, "sync", "a")
		a.WantFile("x", "1\n")
		a.WantNone("README.md")
		a.WantFile("moved/a.go", "package src\n")
		wantChain(t, a)
	})
}

// An upper on its own disk fills while the objects' disk has room, as with a
// quota: the tool is told, the rest goes on.
func TestShortWritesAreNotPublishedAsWhole(t *testing.T) {
	dir := disk(t, 24)
	w := harness.New(t)
	a := w.RepositoryIn(dir, harness.Sample).Create("a")
	f, err := os.Create(filepath.Join(a.Root, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := []byte(noise(256 << 10))
	var told bytes.Buffer
	for {
		n, err := f.Write(chunk)
		told.Write(chunk[:n])
		if err != nil {
			break
		}
	}
	if a.Read("log") != told.String() {
		t.Errorf("the file does not hold the %d bytes the tool was told", told.Len())
	}
}
