package fusefs_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/gitstore"
)

func random(n int, seed uint64) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return string(b)
}

func TestFileReadInPiecesIsDecodedOnce(t *testing.T) {
	src := newMemory(t.TempDir())
	content := random(3<<20, 1)
	m := mountTree(t, src, src.addTree(file{path: "f", content: content}))
	got := m.sh("for i in 1 2 3 4; do sha256sum <f & done; wait")
	want := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(content)))
	if got+"\n" != strings.Repeat(want, 4) {
		t.Errorf("got %s, want %s", got, want)
	}
	if d, s := src.decodes.Load(), m.Stats(); d != 1 || s.Read < 10 {
		t.Errorf("%d decodes for %d reads", d, s.Read)
	}
}

func TestFileOfOneReadIsDecodedIntoTheAnswer(t *testing.T) {
	src := newMemory(t.TempDir())
	m := mountTree(t, src, src.addTree(file{path: "f", content: random(100_000, 2)}))
	got, err := pread(m.path("f"), 100_000, 0)
	if err != nil || string(got) != random(100_000, 2) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if s := m.Stats(); s.Read != 1 || src.decodes.Load() != 1 {
		t.Errorf("%d decodes for %d reads", src.decodes.Load(), s.Read)
	}
}

// Such answers are decoded into a buffer of ours, which must stay ours until
// the kernel has them.
func TestAnswersThatFillTheirPagesAreNotMixedUp(t *testing.T) {
	src := newMemory(t.TempDir())
	var files []file
	want := make(map[string]string)
	for i := range 2000 {
		f := file{path: fmt.Sprint(i), content: random(4096*(1+i%3), uint64(i))}
		files = append(files, f)
		want[f.path] = fmt.Sprintf("%x", sha256.Sum256([]byte(f.content)))
	}
	m := mountTree(t, src, src.addTree(files...))
	for line := range strings.Lines(m.sh("find . -type f -printf '%f\n' | xargs -P 8 -n 50 sha256sum")) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if want[name] != sum {
			t.Fatalf("%s has %s, want %s", name, sum, want[name])
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("%d files were not read", len(want))
	}
}

func TestReadsAtEveryPositionMatch(t *testing.T) {
	src := newMemory(t.TempDir())
	for _, size := range []int{1, 4095, 4096, 4097, 131071, 131072, 131073, 1 << 20, 8 << 20, 8<<20 + 1, 9_999_999} {
		content := random(size, uint64(size))
		m := mountTree(t, src, src.addTree(file{path: "f", content: content}))
		r := rand.New(rand.NewPCG(uint64(size), 0))
		for range 40 {
			off, n := r.IntN(size+10), 1+r.IntN(200_000)
			want := content[min(off, size):min(off+n, size)]
			got, err := pread(m.path("f"), n, int64(off))
			if err != nil || string(got) != want {
				t.Fatalf("size %d, read of %d at %d: %d bytes, %v", size, n, off, len(got), err)
			}
		}
	}
}

func TestReadsOfDifferentFilesDecodeInParallel(t *testing.T) {
	src := newMemory(t.TempDir())
	var files []file
	const n = 4
	for i := range n {
		files = append(files, file{path: fmt.Sprint(i), content: fmt.Sprint("content ", i)})
	}
	// Every decode waits until all have begun.
	var begun atomic.Int32
	all := make(chan struct{})
	src.beforeDecode = func() {
		if begun.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
		case <-time.After(20 * time.Second):
			t.Error("decodes wait for each other")
		}
	}
	m := mountTree(t, src, src.addTree(files...))
	if got := m.sh("for i in 0 1 2 3; do cat $i >/dev/null & done; wait; cat *"); got != "content 0content 1content 2content 3" {
		t.Error(got)
	}
}

func TestDamagedObjectsFailAlone(t *testing.T) {
	src := newMemory(t.TempDir())
	big, mid := random(9<<20, 3), random(1<<20, 4)
	root := src.addTree(
		file{path: "good", content: "good"},
		file{path: "content", content: "bad content"},
		file{path: "header", content: "bad header"},
		file{path: "mid", content: mid},
		file{path: "big", content: big},
		file{path: "kind", content: "not a blob"},
		file{path: "link", content: "target", mode: gitstore.ModeSymlink},
		file{path: "dir/f", content: "f"},
		file{path: "missing", content: "missing"},
	)
	src.damage(oidOf("blob", "bad content"), badContent)
	src.damage(oidOf("blob", "bad header"), badHeader)
	src.damage(oidOf("blob", mid), badContent)
	src.damage(oidOf("blob", big), badContent)
	src.damage(oidOf("blob", "not a blob"), isTree)
	src.damage(oidOf("blob", "target"), badContent)
	delete(src.blobs, oidOf("blob", "missing"))
	for _, e := range src.trees[root] {
		if e.Name == "dir" {
			src.damage(e.OID, badContent)
		}
	}
	m := mountTree(t, src, root)
	for range 2 {
		for _, name := range []string{"content", "header", "mid", "big", "kind", "missing"} {
			out, err := tryShell(m.dir, "stat -c %F "+name+"; cat "+name+" >/dev/null")
			if err == nil || !strings.HasPrefix(out, "regular file\n") || !strings.Contains(out, "Input/output error") {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
		if out, err := tryShell(m.dir, "readlink -v link"); err == nil || !strings.Contains(out, "Input/output error") {
			t.Errorf("link: %v: %s", err, out)
		}
		if out, err := tryShell(m.dir, "stat -c %F dir && ls dir"); err == nil || !strings.Contains(out, "Input/output error") {
			t.Errorf("dir: %v: %s", err, out)
		}
		if got := m.sh("cat good; ls | wc -l"); got != "good9" {
			t.Errorf("the rest: %q", got)
		}
	}
	m.wantReports("content", "header", "mid", "big", "kind", "missing", "link", "dir")
}

func TestObjectThatComesBackIsReadable(t *testing.T) {
	src := newMemory(t.TempDir())
	root := src.addTree(file{path: "f", content: "fetched later"})
	oid := oidOf("blob", "fetched later")
	src.damage(oid, badHeader)
	m := mountTree(t, src, root)
	if out, err := tryShell(m.dir, "cat f"); err == nil {
		t.Errorf("read: %q", out)
	}
	src.damage(oid, 0)
	if got := m.sh("stat -c %s f; cat f"); got != "13\nfetched later" {
		t.Errorf("%q", got)
	}
}

func TestHostileSymlinksAreNotRead(t *testing.T) {
	src := newMemory(t.TempDir())
	root := src.addTree(
		file{path: "longest", content: strings.Repeat("x/", 2047) + "y", mode: gitstore.ModeSymlink},
		file{path: "long", content: strings.Repeat("x", 4096), mode: gitstore.ModeSymlink},
		file{path: "huge", content: "stands for a gigabyte", mode: gitstore.ModeSymlink},
		file{path: "empty", content: "", mode: gitstore.ModeSymlink},
		file{path: "nul", content: "a\x00b", mode: gitstore.ModeSymlink},
	)
	src.huge[oidOf("blob", "stands for a gigabyte")] = 1 << 30
	m := mountTree(t, src, root)
	for _, name := range []string{"long", "huge", "empty", "nul"} {
		if out, err := tryShell(m.dir, "readlink -v "+name); err == nil || !strings.Contains(out, "Input/output error") {
			t.Errorf("%s: %v: %q", name, err, out)
		}
	}
	if got := m.sh("readlink longest | wc -c"); got != "4096" {
		t.Errorf("longest: %s", got)
	}
	if n := src.decodes.Load(); n != 2 { // nul, longest
		t.Errorf("%d blobs decoded", n)
	}
}

func TestHugeFileIsReadInBoundedMemory(t *testing.T) {
	src := newMemory(t.TempDir())
	const size = 300 << 20
	root := src.addTree(file{path: "f", content: "stands for 300 MB"})
	src.huge[oidOf("blob", "stands for 300 MB")] = size
	m := mountTree(t, src, root)

	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak.Store(max(peak.Load(), now.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	got := m.sh("head -c 1000 f | wc -c; cmp -n 314572800 f /dev/zero && stat -c %s f")
	close(stop)
	watcher.Wait()
	if got != "1000\n314572800" {
		t.Errorf("%q", got)
	}
	if grown := int64(peak.Load()) - int64(before.HeapInuse); grown > 40<<20 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	}
	if n := src.streams.Load(); n != 1 {
		t.Errorf("inflated %d times", n)
	}
	cached, err := os.Stat(filepath.Join(src.dir, "relo", "cache", oidOf("blob", "stands for 300 MB").String()))
	if err != nil || cached.Size() != size {
		t.Errorf("cache: %v", err)
	}
}

func TestFirstBytesOfAHugeFileDoNotWaitForTheRest(t *testing.T) {
	src := newMemory(t.TempDir())
	content := random(9<<20, 5)
	m := mountTree(t, src, src.addTree(file{path: "f", content: content}))
	got, err := pread(m.path("f"), 1000, 0)
	if err != nil || !bytes.Equal(got, []byte(content[:1000])) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := pread(m.path("f"), 10, 9<<20); err != nil {
		t.Errorf("at the end: %v", err)
	}
	if _, err := pread(m.path("absent"), 10, 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("absent: %v", err)
	}
}
