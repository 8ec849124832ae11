package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/cache"
	"github.com/relofs/relofs/gitstore"
)

// opener streams made-up content, byte n of which is byte(n)+seed.
type opener struct {
	size   int64
	seed   byte
	cut    int64         // the stream ends here, if not 0
	gateAt int64         // reading beyond this waits for gate
	gate   chan struct{} // may be nil
	calls  atomic.Int64
	err    error
}

func (o *opener) content(off, n int64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(off+int64(i)) + o.seed
	}
	return p
}

type stream struct {
	o   *opener
	off int64
}

func (s *stream) Read(p []byte) (int, error) {
	end := s.o.size
	if s.o.cut > 0 {
		end = s.o.cut
	}
	if s.off >= end {
		return 0, io.EOF
	}
	if s.o.gate != nil && s.off >= s.o.gateAt {
		<-s.o.gate
	}
	n := min(int64(len(p)), end-s.off, 10_000)
	copy(p, s.o.content(s.off, n))
	s.off += n
	return int(n), nil
}

func (o *opener) OpenBlob(gitstore.OID, string) (io.ReadCloser, int64, error) {
	o.calls.Add(1)
	return io.NopCloser(&stream{o: o}), o.size, o.err
}

func read(l *cache.Large, o *opener, oid gitstore.OID, n, off int64) ([]byte, error) {
	p := make([]byte, n)
	got, err := l.ReadAt(o, oid, o.size, p, off)
	return p[:got], err
}

func wantRead(t *testing.T, l *cache.Large, o *opener, oid gitstore.OID, n, off int64) {
	t.Helper()
	got, err := read(l, o, oid, n, off)
	if err != nil || !bytes.Equal(got, o.content(off, n)) {
		t.Errorf("read of %d at %d: %d bytes, %v", n, off, len(got), err)
	}
}

// settled waits until no temporary file is left, and returns the others.
func settled(t *testing.T, dir string) []string {
	t.Helper()
	for range 1000 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		busy := false
		for _, e := range entries {
			names = append(names, e.Name())
			busy = busy || strings.HasPrefix(e.Name(), "tmp-")
		}
		if !busy {
			return names
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("a temporary file stays")
	return nil
}

func newLarge(t *testing.T, dir string, maxBytes int64) *cache.Large {
	t.Helper()
	l := cache.NewLarge(dir, maxBytes)
	t.Cleanup(l.Close)
	return l
}

func TestLargeBlobIsInflatedOnceForEverybody(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "relo", "cache")
	l := newLarge(t, dir, 1<<30)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there before it is needed: %v", err)
	}
	o := &opener{size: 1_000_003}
	var wg sync.WaitGroup
	for i := range int64(20) {
		wg.Go(func() { wantRead(t, l, o, id(1), 3, i*50_000) })
	}
	wg.Wait()
	wantRead(t, l, o, id(1), 3, 1_000_000)
	if names := settled(t, dir); len(names) != 1 || names[0] != id(1).String() {
		t.Errorf("files %q", names)
	}
	// The next process finds the file.
	wantRead(t, newLarge(t, dir, 1<<30), o, id(1), 1_000_003, 0)
	if n := o.calls.Load(); n != 1 {
		t.Errorf("inflated %d times", n)
	}
}

func TestReadDoesNotWaitForWhatItDoesNotWant(t *testing.T) {
	l := newLarge(t, t.TempDir(), 1<<30)
	o := &opener{size: 3 << 20, gateAt: 1 << 20, gate: make(chan struct{})}
	wantRead(t, l, o, id(1), 1000, 500_000) // would hang otherwise
	done := make(chan struct{})
	go func() {
		wantRead(t, l, o, id(1), 1000, 2<<20)
		close(done)
	}()
	close(o.gate)
	<-done
}

func TestReadAtTheEndIsEOF(t *testing.T) {
	l := newLarge(t, t.TempDir(), 1<<30)
	o := &opener{size: 1000}
	got, err := read(l, o, id(1), 100, 950)
	if !errors.Is(err, io.EOF) || !bytes.Equal(got, o.content(950, 50)) {
		t.Errorf("across the end: %d bytes, %v", len(got), err)
	}
	if got, err := read(l, o, id(1), 100, 2000); !errors.Is(err, io.EOF) || len(got) != 0 {
		t.Errorf("beyond the end: %d bytes, %v", len(got), err)
	}
}

func TestFailedInflationServesWhatCameBeforeAndIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	l := newLarge(t, dir, 1<<30)
	bad := &opener{size: 1_000_000, cut: 600_000}
	if _, err := read(l, bad, id(1), 10, 900_000); !errors.Is(err, gitstore.ErrCorrupt) {
		t.Errorf("beyond the damage: %v", err)
	}
	if names := settled(t, dir); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
	lying := &opener{size: 1_000_000}
	if _, err := l.ReadAt(lying, id(2), 999, make([]byte, 10), 0); !errors.Is(err, gitstore.ErrCorrupt) {
		t.Errorf("another size than the header's: %v", err)
	}
	missing := &opener{size: 1_000_000, err: gitstore.ErrNotFound}
	if _, err := read(l, missing, id(3), 10, 0); !errors.Is(err, gitstore.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	for i := range 3 {
		wantRead(t, l, &opener{size: 1_000_000}, id(i+1), 10, 900_000)
	}
}

func TestFilesOfTheWrongSizeAreReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, id(1).String())
	if err := os.WriteFile(path, []byte("cut short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, id(2).String())); err != nil {
		t.Fatal(err)
	}
	l := newLarge(t, dir, 1<<30)
	wantRead(t, l, &opener{size: 5000}, id(1), 5000, 0)
	wantRead(t, l, &opener{size: 5000}, id(2), 5000, 0)
	settled(t, dir)
	if st, err := os.Lstat(filepath.Join(dir, id(2).String())); err != nil || !st.Mode().IsRegular() {
		t.Errorf("the symlink: %v, %v", st, err)
	}
}

func TestTheLeastRecentlyUsedFilesGo(t *testing.T) {
	dir := t.TempDir()
	// Files of an earlier process: 1 used long ago, 2 lately, and one that is
	// none of the cache's.
	now := time.Now()
	for i, age := range []time.Duration{1: 5 * time.Hour, 2: time.Hour} {
		if i == 0 {
			continue
		}
		path := filepath.Join(dir, id(i).String())
		if err := os.WriteFile(path, (&opener{}).content(0, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLarge(t, dir, 2500)
	o := &opener{size: 1000}
	wantRead(t, l, o, id(1), 1000, 0) // now 2 is the oldest
	if o.calls.Load() != 0 {
		t.Error("inflated what was there")
	}
	wantRead(t, l, o, id(3), 1000, 0)
	waitGone(t, dir, id(2))
	want := []string{id(1).String(), id(3).String(), "README"}
	if got := settled(t, dir); len(got) != 3 {
		t.Errorf("files %q, want %q", got, want)
	}
	// One that exceeds the limit alone is kept until the next comes.
	huge := &opener{size: 9000}
	wantRead(t, l, huge, id(4), 9000, 0)
	waitGone(t, dir, id(1))
	waitGone(t, dir, id(3))
	wantRead(t, l, huge, id(4), 9000, 0)
	if n := huge.calls.Load(); n != 1 {
		t.Errorf("inflated %d times", n)
	}
}

func waitGone(t *testing.T, dir string, oid gitstore.OID) {
	t.Helper()
	for range 1000 {
		if _, err := os.Lstat(filepath.Join(dir, oid.String())); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s was not evicted", oid)
}

func TestEvictedFileStaysReadableForItsReaders(t *testing.T) {
	dir := t.TempDir()
	l := newLarge(t, dir, 1<<20)
	o := &opener{size: 5000}
	wantRead(t, l, o, id(1), 5000, 0)
	settled(t, dir)
	if err := os.Remove(filepath.Join(dir, id(1).String())); err != nil { // another process's eviction
		t.Fatal(err)
	}
	wantRead(t, l, o, id(1), 5000, 0)
	if n := o.calls.Load(); n != 1 {
		t.Errorf("inflated %d times", n)
	}
}

func TestWhatAKilledProcessLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	stale, live, young := filepath.Join(dir, "tmp-stale"), filepath.Join(dir, "tmp-live"), filepath.Join(dir, "tmp-young")
	for _, name := range []string{stale, live, young} {
		if err := os.WriteFile(name, []byte("part"), 0o600); err != nil {
			t.Fatal(err)
		}
		if name != young {
			if err := os.Chtimes(name, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, err := os.Open(live)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // another writer
		t.Fatal(err)
	}
	wantRead(t, newLarge(t, dir, 1<<20), &opener{size: 5000}, id(1), 5000, 0)
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stale: %v", err)
	}
	for _, name := range []string{live, young} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

func TestDescriptorsAreBounded(t *testing.T) {
	dir := t.TempDir()
	l := newLarge(t, dir, 1<<30)
	o := &opener{size: 100}
	for i := range 200 {
		wantRead(t, l, o, id(i), 100, 0)
	}
	settled(t, dir)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(target, dir) {
			open++
		}
	}
	if open > 40 {
		t.Errorf("%d files are open", open)
	}
}

func TestSeveralCachesShareADirectory(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for c := range 4 {
		l := newLarge(t, dir, 30_000) // room for three
		wg.Go(func() {
			for i := range 40 {
				n := (i*7 + c) % 8
				o := &opener{size: 10_000, seed: byte(n)}
				got, err := read(l, o, id(n), 5000, int64(i*100))
				if err != nil || !bytes.Equal(got, o.content(int64(i*100), 5000)) {
					t.Error(fmt.Errorf("cache %d, blob %d: %d bytes, %w", c, n, len(got), err))
				}
			}
		})
	}
	wg.Wait()
	settled(t, dir)
}

func TestUnwritableDirectoryIsAnError(t *testing.T) {
	l := newLarge(t, "/proc/relo/cache", 1<<20)
	if _, err := read(l, &opener{size: 100}, id(1), 10, 0); err == nil {
		t.Error("no error")
	}
}
