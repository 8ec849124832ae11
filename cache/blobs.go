package cache

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/relofs/relofs/gitstore"
)

// Decoder decodes a blob; *gitstore.Store is one.
type Decoder interface {
	AppendBlob(buf []byte, oid gitstore.OID) ([]byte, error)
}

// Namespace is a repository as Blobs tells them apart. Object ids are not
// verified on every read, so a damaged or hostile repository must not be able
// to put its bytes under an id that another repository uses as well.
type Namespace uint32

type blobKey struct {
	ns  Namespace
	oid gitstore.OID
}

// hash is only a place in the table: what is found there is compared with the
// key, so that two ids made to share these bits cannot be taken for each other.
func (k blobKey) hash() uint64 {
	return binary.LittleEndian.Uint64(k.oid[:8]) ^ uint64(k.ns)*0x9e3779b97f4a7c15
}

type blob struct {
	key  blobKey
	data []byte
}

// Blobs is a cache of decoded blobs, bounded by bytes, for all repositories of
// a process.
//
// It has two parts, as in W-TinyLFU. A small window holds what was decoded
// last, whatever it is: a blob that is being read from front to back is found
// there by every read that follows. What leaves the window is offered to a
// ristretto cache, which keeps it if it is used more often than what it would
// displace. The window is what ristretto itself lacks: it may refuse a new
// entry, and each 128 KiB read of an 8 MiB blob would decode all of it again.
type Blobs struct {
	main *ristretto.Cache[uint64, blob]
	// slots bounds how many blobs are decoded at the same moment, and with it
	// the memory that is not counted yet.
	slots chan struct{}

	mu          sync.Mutex // guards everything below
	names       map[string]Namespace
	flights     map[blobKey]*flight
	window      *list.List // of blob, the newest in front
	inWindow    map[blobKey]*list.Element
	windowBytes int64
	windowMax   int64
}

type flight struct {
	done chan struct{}
	data []byte
	err  error
}

// decodeRoom is what a buffer has beyond the blob's size: an inflater that
// copies whole words writes a little past the end, and would move to a larger
// buffer of its own otherwise.
const decodeRoom = 512

var errDecodePanicked = errors.New("decoding failed")

// NewBlobs returns a cache that holds at most maxBytes of content; a single
// blob larger than an eighth of that may exceed it while it is the newest one.
func NewBlobs(maxBytes int64) (*Blobs, error) {
	if maxBytes <= 0 {
		return nil, fmt.Errorf("blob cache: size of %d bytes", maxBytes)
	}
	window := maxBytes / 8
	main, err := ristretto.NewCache(&ristretto.Config[uint64, blob]{
		// Ten counters an entry, as ristretto advises, at 16 KiB an entry.
		NumCounters:        max(1024, maxBytes/(16<<10)*10),
		MaxCost:            maxBytes - window,
		BufferItems:        64,
		IgnoreInternalCost: true,
		KeyToHash:          func(k uint64) (uint64, uint64) { return k, 0 },
	})
	if err != nil {
		return nil, fmt.Errorf("blob cache: %w", err)
	}
	return &Blobs{
		main:      main,
		slots:     make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		names:     make(map[string]Namespace),
		flights:   make(map[blobKey]*flight),
		window:    list.New(),
		inWindow:  make(map[blobKey]*list.Element),
		windowMax: window,
	}, nil
}

// Close stops the cache's goroutine. Get must not be called afterwards.
func (b *Blobs) Close() { b.main.Close() }

// Namespace returns the namespace of a repository, named by its common
// directory: the same name gives the same one.
func (b *Blobs) Namespace(commonDir string) Namespace {
	b.mu.Lock()
	defer b.mu.Unlock()
	ns, ok := b.names[commonDir]
	if !ok {
		ns = Namespace(len(b.names) + 1)
		b.names[commonDir] = ns
	}
	return ns
}

// Get returns the content of blob oid, which is size bytes long, decoding it
// with from if it is not held. Callers share the slice and must not write to
// it. Callers that ask while it is being decoded wait for that one.
func (b *Blobs) Get(ns Namespace, from Decoder, oid gitstore.OID, size int64) ([]byte, error) {
	key := blobKey{ns, oid}
	b.mu.Lock()
	if e, ok := b.inWindow[key]; ok {
		data := e.Value.(blob).data
		b.window.MoveToFront(e)
		b.mu.Unlock()
		return data, nil
	}
	f, ok := b.flights[key]
	if ok {
		b.mu.Unlock()
		<-f.done
		return f.data, f.err
	}
	if v, ok := b.main.Get(key.hash()); ok && v.key == key {
		b.mu.Unlock()
		return v.data, nil
	}
	f = &flight{done: make(chan struct{}), err: errDecodePanicked}
	b.flights[key] = f
	b.mu.Unlock()

	// Deferred, so that a panic in the decoder leaves nobody waiting.
	defer func() {
		b.mu.Lock()
		delete(b.flights, key)
		if f.err == nil {
			b.keep(blob{key, f.data})
		}
		b.mu.Unlock()
		close(f.done)
	}()
	b.slots <- struct{}{}
	defer func() { <-b.slots }()
	data, err := from.AppendBlob(make([]byte, 0, size+decodeRoom), oid)
	if err == nil && int64(len(data)) != size {
		err = fmt.Errorf("blob %s: %d bytes where its header says %d: %w", oid, len(data), size, gitstore.ErrCorrupt)
	}
	f.data, f.err = data, err
	if err != nil {
		f.data = nil
	}
	return f.data, f.err
}

// keep puts v into the window and what no longer fits there into the main
// part. The newest entry stays, whatever its size. b.mu must be held.
func (b *Blobs) keep(v blob) {
	b.inWindow[v.key] = b.window.PushFront(v)
	b.windowBytes += int64(len(v.data))
	for b.windowBytes > b.windowMax && b.window.Len() > 1 {
		old := b.window.Remove(b.window.Back()).(blob)
		delete(b.inWindow, old.key)
		b.windowBytes -= int64(len(old.data))
		b.main.Set(old.key.hash(), old, int64(len(old.data)))
	}
}
