package cache

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/gitstore"
)

// Opener streams a blob; *gitstore.Store is one. Temporary files go to scratch.
type Opener interface {
	OpenBlob(oid gitstore.OID, scratch string) (io.ReadCloser, int64, error)
}

const (
	tmpPrefix = "tmp-"
	// maxOpenFiles bounds the descriptors of blobs nobody reads right now.
	maxOpenFiles = 32
	copyBuffer   = 256 << 10
)

// Large is a cache of blobs inflated to files of one directory. Several, in
// one process or many, may share a directory; see the package documentation
// for how they keep out of each other's way.
type Large struct {
	dir      string
	maxBytes int64

	mu    sync.Mutex // guards files, sweep and largeFile.refs, .used; never held during I/O on content
	files map[gitstore.OID]*largeFile
	clock uint64
	sweep sync.Once
}

// largeFile is one blob, complete or being inflated.
type largeFile struct {
	refs int    // readers and the inflating goroutine
	used uint64 // Large.clock at the last use

	mu      sync.Mutex // guards what follows; taken after Large.mu or alone
	grown   sync.Cond  // written, done or err changed
	f       *os.File
	written int64
	done    bool
	err     error
}

// NewLarge returns the cache in dir, which is made when the first blob needs
// it. When the files exceed maxBytes together, those used longest ago go; the
// newest one is kept even if it exceeds the limit alone.
func NewLarge(dir string, maxBytes int64) *Large {
	return &Large{dir: dir, maxBytes: maxBytes, files: make(map[gitstore.OID]*largeFile)}
}

// Close releases the descriptors; the files stay for the next process. Reads
// that are under way finish.
func (l *Large) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for oid, lf := range l.files {
		if lf.refs == 0 {
			l.drop(oid, lf)
		}
	}
}

// ReadAt reads blob oid, which is size bytes long, at off as io.ReaderAt does.
// If the blob is not in the cache it is inflated by from in the background and
// the call waits until the bytes it wants are there, not for the rest.
func (l *Large) ReadAt(from Opener, oid gitstore.OID, size int64, p []byte, off int64) (int, error) {
	lf := l.acquire(from, oid, size)
	defer l.release(oid, lf)
	need := min(off+int64(len(p)), size)

	lf.mu.Lock()
	for lf.written < need && !lf.done && lf.err == nil {
		lf.grown.Wait()
	}
	f, written, err := lf.f, lf.written, lf.err
	lf.mu.Unlock()
	if written < need {
		if err == nil {
			err = fmt.Errorf("blob %s: ends at %d of %d bytes: %w", oid, written, size, gitstore.ErrCorrupt)
		}
		return 0, err
	}
	return f.ReadAt(p, off)
}

// acquire returns the blob's file with a reference for the caller.
func (l *Large) acquire(from Opener, oid gitstore.OID, size int64) *largeFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	lf, ok := l.files[oid]
	if !ok {
		lf = &largeFile{refs: 1} // the goroutine's
		lf.grown.L = &lf.mu
		l.files[oid] = lf
		go l.provide(lf, from, oid, size)
	}
	lf.refs++
	lf.used = l.clock
	return lf
}

func (l *Large) release(oid gitstore.OID, lf *largeFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lf.refs--
	if lf.refs > 0 {
		return
	}
	lf.mu.Lock()
	failed := lf.err != nil
	lf.mu.Unlock()
	if failed {
		l.drop(oid, lf)
		return
	}
	if len(l.files) <= maxOpenFiles {
		return
	}
	var oldestID gitstore.OID
	var oldest *largeFile
	for id, c := range l.files {
		if c.refs == 0 && (oldest == nil || c.used < oldest.used) {
			oldestID, oldest = id, c
		}
	}
	l.drop(oldestID, oldest)
}

// drop forgets a file nobody refers to. l.mu must be held.
func (l *Large) drop(oid gitstore.OID, lf *largeFile) {
	if l.files[oid] == lf {
		delete(l.files, oid)
	}
	if lf.f != nil {
		lf.f.Close()
	}
}

// provide opens the blob's file or makes it, and wakes readers as it grows.
func (l *Large) provide(lf *largeFile, from Opener, oid gitstore.OID, size int64) {
	err := errDecodePanicked
	// Deferred, so that a panic in the decoder leaves nobody waiting.
	defer func() {
		if err != nil {
			// The next read tries again with a new file.
			l.mu.Lock()
			delete(l.files, oid)
			l.mu.Unlock()
		}
		lf.mu.Lock()
		lf.done, lf.err = true, err
		lf.grown.Broadcast()
		lf.mu.Unlock()
		l.release(oid, lf)
	}()
	final := filepath.Join(l.dir, oid.String())
	if f := openComplete(final, size); f != nil {
		lf.mu.Lock()
		lf.f, lf.written = f, size
		lf.mu.Unlock()
		err = nil
		return
	}
	if err = l.inflate(lf, from, oid, size); err != nil {
		err = fmt.Errorf("large blob %s: %w", oid, err)
		return
	}
	l.evict(oid.String())
}

// openComplete opens a cached file and notes its use; nil if there is none, or
// one that is not the blob.
func openComplete(path string, size int64) *os.File {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() != size {
		f.Close()
		os.Remove(path)
		return nil
	}
	now := time.Now()
	// Only the order of eviction depends on it.
	_ = os.Chtimes(path, now, now)
	return f
}

// inflate writes the blob to a temporary file, from which readers are served
// at once, and gives it its name when it is complete and on disk.
func (l *Large) inflate(lf *largeFile, from Opener, oid gitstore.OID, size int64) (err error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	l.sweep.Do(l.removeStale)
	f, err := os.CreateTemp(l.dir, tmpPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	lf.mu.Lock()
	lf.f = f // closed by drop
	lf.mu.Unlock()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}

	r, n, err := from.OpenBlob(oid, l.dir)
	if err != nil {
		return err
	}
	defer r.Close()
	if n != size {
		return fmt.Errorf("%d bytes where its header says %d: %w", n, size, gitstore.ErrCorrupt)
	}
	if err := lf.fill(r, size); err != nil {
		return err
	}
	// Every reader has its bytes by now; only the name waits for the disk.
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return os.Rename(f.Name(), filepath.Join(l.dir, oid.String()))
}

func (lf *largeFile) fill(r io.Reader, size int64) error {
	buf := make([]byte, copyBuffer)
	var at int64
	for at < size {
		n, err := io.ReadFull(r, buf[:min(int64(len(buf)), size-at)])
		if n > 0 {
			if _, werr := lf.f.WriteAt(buf[:n], at); werr != nil {
				return werr
			}
			at += int64(n)
			lf.mu.Lock()
			lf.written = at
			lf.grown.Broadcast()
			lf.mu.Unlock()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("ends at %d of %d bytes: %w", at, size, gitstore.ErrCorrupt)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeStale removes temporary files whose writer is gone. The writer locks
// its file right after it creates it: a file younger than a minute is left
// alone, locked or not.
func (l *Large) removeStale() {
	names, err := filepath.Glob(filepath.Join(l.dir, tmpPrefix+"*"))
	if err != nil {
		return
	}
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		st, err := f.Stat()
		if err == nil && time.Since(st.ModTime()) > time.Minute &&
			unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(name)
		}
		f.Close()
	}
}

// evict removes the files used longest ago until the rest fits, but never the
// one named keep.
func (l *Large) evict(keep string) {
	type cached struct {
		name string
		size int64
		used time.Time
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return
	}
	var files []cached
	var total int64
	for _, e := range entries {
		if _, err := gitstore.ParseOID(e.Name()); err != nil || strings.HasPrefix(e.Name(), tmpPrefix) {
			continue
		}
		if st, err := e.Info(); err == nil {
			files = append(files, cached{e.Name(), st.Size(), st.ModTime()})
			total += st.Size()
		}
	}
	sort.Slice(files, func(i, j int) bool { return files[i].used.Before(files[j].used) })
	for _, f := range files {
		if total <= l.maxBytes {
			return
		}
		if f.name == keep {
			continue
		}
		if os.Remove(filepath.Join(l.dir, f.name)) == nil {
			total -= f.size
		}
	}
}
