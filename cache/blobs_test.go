package cache_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/relofs/relofs/cache"
	"github.com/relofs/relofs/gitstore"
)

// decoder makes up content from the object id.
type decoder struct {
	size  int
	calls atomic.Int64
	err   error
	gate  chan struct{} // every call waits for it, if set
	panic bool
	fill  byte
}

func (d *decoder) AppendBlob(buf []byte, oid gitstore.OID) ([]byte, error) {
	d.calls.Add(1)
	if d.gate != nil {
		<-d.gate
	}
	if d.panic {
		panic("mapped file shrank")
	}
	return append(buf, bytes.Repeat([]byte{oid[0] + d.fill}, d.size)...), d.err
}

func id(n int) (oid gitstore.OID) {
	binary.BigEndian.PutUint64(oid[:], uint64(n)*0x9e3779b97f4a7c15)
	return oid
}

func newBlobs(t testing.TB, maxBytes int64) *cache.Blobs {
	t.Helper()
	b, err := cache.NewBlobs(maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestBlobReadFrontToBackIsDecodedOnce(t *testing.T) {
	// Even one larger than the whole cache, with others read in between.
	b := newBlobs(t, 100_000)
	ns := b.Namespace("repo")
	big := &decoder{size: 1_000_000}
	for range 100 {
		data, err := b.Get(ns, big, id(1), 1_000_000)
		if err != nil || len(data) != 1_000_000 || data[0] != id(1)[0] {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
	}
	if n := big.calls.Load(); n != 1 {
		t.Errorf("decoded %d times", n)
	}
}

func TestCallersAtTheSameMomentShareOneDecode(t *testing.T) {
	b := newBlobs(t, 1<<20)
	d := &decoder{size: 10, gate: make(chan struct{})}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if data, err := b.Get(b.Namespace("repo"), d, id(7), 10); err != nil || len(data) != 10 {
				t.Errorf("%d bytes, %v", len(data), err)
			}
		})
	}
	close(d.gate)
	wg.Wait()
	if n := d.calls.Load(); n != 1 {
		t.Errorf("decoded %d times", n)
	}
}

func TestRepositoriesDoNotSeeEachOthersBlobs(t *testing.T) {
	b := newBlobs(t, 1<<20)
	first, second := b.Namespace("a"), b.Namespace("b")
	if again := b.Namespace("a"); again != first || first == second {
		t.Fatal("namespaces do not follow names")
	}
	for _, fill := range []byte{1, 2} {
		d := &decoder{size: 10, fill: fill}
		data, err := b.Get(b.Namespace(string(rune('a'+fill))), d, id(1), 10)
		if err != nil || data[0] != id(1)[0]+fill {
			t.Errorf("got %v, %v", data, err)
		}
	}
}

func TestIDsWithTheSameBeginningAreDifferentBlobs(t *testing.T) {
	b := newBlobs(t, 8000)
	ns := b.Namespace("repo")
	for i := range 1000 {
		var oid gitstore.OID // all have the same first 8 bytes
		binary.BigEndian.PutUint32(oid[16:], uint32(i))
		want := byte(i)
		data, err := b.Get(ns, &decoder{size: 100, fill: want}, oid, 100)
		if err != nil || data[0] != want {
			t.Fatalf("blob %d: %v", i, err)
		}
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	b := newBlobs(t, 1<<20)
	ns := b.Namespace("repo")
	for name, bad := range map[string]*decoder{
		"failed": {size: 10, err: gitstore.ErrCorrupt},
		"short":  {size: 9},
		"long":   {size: 11},
	} {
		if data, err := b.Get(ns, bad, id(3), 10); !errors.Is(err, gitstore.ErrCorrupt) || data != nil {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	if data, err := b.Get(ns, &decoder{size: 10}, id(3), 10); err != nil || len(data) != 10 {
		t.Errorf("afterwards: %d bytes, %v", len(data), err)
	}
}

func TestPanicOfADecoderLeavesNobodyWaiting(t *testing.T) {
	b := newBlobs(t, 1<<20)
	ns := b.Namespace("repo")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = b.Get(ns, &decoder{panic: true}, id(4), 10)
	}()
	if _, err := b.Get(ns, &decoder{size: 10}, id(4), 10); err != nil {
		t.Error(err)
	}
}

func TestMemoryStaysBounded(t *testing.T) {
	const limit = 8 << 20
	b := newBlobs(t, limit)
	ns := b.Namespace("repo")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d := &decoder{size: 100_000}
	for i := range 2000 {
		if _, err := b.Get(ns, d, id(i), 100_000); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > limit+limit/4 {
		t.Errorf("%d bytes held, %d allowed", grown, limit)
	}
	runtime.KeepAlive(b)
}

func TestSizeMustBePositive(t *testing.T) {
	for _, n := range []int64{0, -1} {
		if _, err := cache.NewBlobs(n); err == nil {
			t.Errorf("NewBlobs(%d) succeeded", n)
		}
	}
}
