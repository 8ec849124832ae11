package fusefs

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/relofs/relofs/cache"
	"github.com/relofs/relofs/gitstore"
)

// bomb is a source in which every tree has the same entries, so that ten
// objects would describe any number of paths.
type bomb struct {
	dir     string
	entries []gitstore.TreeEntry
	content []byte
}

func (b bomb) Tree(gitstore.OID) ([]gitstore.TreeEntry, error) { return b.entries, nil }
func (b bomb) Header(gitstore.OID) (gitstore.Kind, int64, error) {
	return gitstore.KindBlob, int64(len(b.content)), nil
}
func (b bomb) AppendBlob(buf []byte, _ gitstore.OID) ([]byte, error) {
	return append(buf, b.content...), nil
}
func (b bomb) OpenBlob(gitstore.OID, string) (io.ReadCloser, int64, error) {
	return nil, 0, gitstore.ErrNotFound
}
func (b bomb) CommonDir() string { return b.dir }

func newBomb(dir string, files, dirs int) bomb {
	b := bomb{dir: dir, content: make([]byte, 3000)}
	for i := range files {
		b.entries = append(b.entries, gitstore.TreeEntry{Name: fmt.Sprintf("f%03d", i), Mode: gitstore.ModeFile, OID: gitstore.OID{1}})
	}
	for i := range dirs {
		b.entries = append(b.entries, gitstore.TreeEntry{Name: fmt.Sprintf("x%03d", i), Mode: gitstore.ModeTree, OID: gitstore.OID{2}})
	}
	return b
}

func TestTableIsBounded(t *testing.T) {
	table := newTable(newBomb("", 0, 10), gitstore.OID{2}, nil)
	table.limit = 1000
	var full error
	for id := uint32(rootID); id < table.next.Load() && full == nil; id++ {
		_, full = table.directory(id)
	}
	if n := table.next.Load(); !errors.Is(full, errTooManyNodes) || n > 1000 || n < 980 {
		t.Errorf("%d nodes, %v", n, full)
	}
	if _, err := table.directory(rootID); err != nil {
		t.Errorf("a directory that was loaded before: %v", err)
	}
}

func TestNodeIsSmallAndHasNoPointers(t *testing.T) {
	if n := unsafe.Sizeof(node{}); n != 48 {
		t.Errorf("a node has %d bytes", n)
	}
}

func TestUnknownNodeIDsAreStale(t *testing.T) {
	table := newTable(newBomb("", 3, 0), gitstore.OID{2}, nil)
	if _, err := table.directory(rootID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{0, rootID + 4, 5000, 1 << 32, 1<<32 + 1, ^uint64(0)} {
		if table.node(id) != nil {
			t.Errorf("node %d exists", id)
		}
	}
}

func newTestRequests(t testing.TB, src Source) requests {
	t.Helper()
	blobs, err := cache.NewBlobs(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(blobs.Close)
	l, err := NewLower(Config{Store: src, Tree: gitstore.OID{2}, Time: time.Unix(1, 0), Blobs: blobs})
	if err != nil {
		t.Fatal(err)
	}
	return requests{fuse.NewDefaultRawFileSystem(), l}
}

// work are the requests a cold walk with reads is made of.
func work(t testing.TB) map[string]func() {
	r := newTestRequests(t, newBomb(t.TempDir(), 150, 10))
	ok := func(st fuse.Status) {
		if st != fuse.OK {
			t.Fatal(st)
		}
	}
	root := fuse.InHeader{NodeId: rootID}
	list, buf := make([]byte, 32<<10), make([]byte, 4096)
	var entry fuse.EntryOut
	var attr fuse.AttrOut
	return map[string]func(){
		"Lookup":  func() { ok(r.Lookup(nil, &root, "f077", &entry)) },
		"Absent":  func() { ok(r.Lookup(nil, &root, "nothing", &entry)) },
		"GetAttr": func() { ok(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: fuse.InHeader{NodeId: 5}}, &attr)) },
		"ReadDirPlus150": func() {
			out := fuse.NewDirEntryList(list, 0)
			ok(r.ReadDirPlus(nil, &fuse.ReadIn{InHeader: root, Size: uint32(len(list))}, out))
		},
		"Read3000": func() {
			res, st := r.Read(nil, &fuse.ReadIn{InHeader: fuse.InHeader{NodeId: 5}}, buf)
			ok(st)
			res.Done()
		},
	}
}

func TestRequestsDoNotAllocate(t *testing.T) {
	for name, op := range work(t) {
		op()
		// The one is the list itself, which the library makes for a request;
		// a pool may be emptied in between.
		if n := testing.AllocsPerRun(100, op); n > 1 || (n > 0 && name != "ReadDirPlus150") {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkRequests(b *testing.B) {
	for name, op := range work(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				op()
			}
		})
	}
}
