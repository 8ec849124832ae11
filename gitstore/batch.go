package gitstore

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"github.com/relofs/relofs/durable"
)

// Batch collects new objects and publishes them together with the refs that
// lead to them. Objects are hashed and compressed in the goroutines that add
// them and go to one pack.
//
// Publishing is ordered so that a process or a machine that dies at any point
// leaves each ref with its old or its new value and all objects of either, and
// so that Git commands of the user that run meanwhile cannot take objects away
// before refs lead to them:
//
//  1. pack, index and the refs' new values are written under names Git does
//     not look at, and forced to disk together;
//  2. the refs are locked as Git locks them and their old values compared:
//     a lost race ends here and leaves nothing behind;
//  3. pack, then index get their final names, next to a .keep file that was
//     there first; the directory is forced to disk;
//  4. the refs are renamed into place in the order given; their directories
//     are forced to disk;
//  5. .keep is removed.
//
// `git repack -a -d`, which gc runs, lists the packs it will delete first and
// finds the reachable objects after, and never deletes a pack that had .keep
// when it was listed: whenever it comes, the pack is kept, or the refs are
// already there. For the same reason an object is written even when the
// repository seems to have it: that copy may be unreachable and about to go.
//
// A Batch holds no files before its pack exceeds 1 MiB or is published. All
// methods are safe for concurrent use; Publish and Discard end it.
type Batch struct {
	store *Store

	// mu guards the following. Hashing and compressing happen outside it.
	mu   sync.Mutex
	pack *packWriter
	seen map[OID]struct{} // objects added, or being added
	err  error            // first failure to write; errBatchEnded after Publish and Discard
}

var (
	// ErrSizeMismatch is returned for a stream that had fewer or more bytes
	// than announced, as a file does that is written to while it is read.
	ErrSizeMismatch = errors.New("content is not of the announced size")

	errBatchEnded = errors.New("batch has been published or discarded")
)

// NewBatch begins an empty batch.
func (s *Store) NewBatch() *Batch {
	return &Batch{
		store: s,
		pack:  s.newPackWriter(),
		seen:  make(map[OID]struct{}),
	}
}

// Add adds an object and returns its id. data is not kept. An object that is
// in the batch already is not added again. The first failure to write (a full
// disk) fails everything after it.
func (b *Batch) Add(kind Kind, data []byte) (OID, error) {
	if err := checkKind(kind); err != nil {
		return ZeroOID, err
	}
	h := newObjectHash(kind, int64(len(data)))
	h.Write(data)
	oid, err := h.sum()
	if err != nil {
		return ZeroOID, err
	}
	return oid, b.AddHashed(oid, kind, data)
}

// AddHashed is Add for a caller that knows the id, which is not checked: it
// must be what HashObject returned for this content.
func (b *Batch) AddHashed(oid OID, kind Kind, data []byte) error {
	if err := checkKind(kind); err != nil {
		return err
	}
	if oid.IsZero() { // HashObject found a collision
		return ErrCollision
	}
	if isNew, err := b.claim(oid); err != nil || !isNew {
		return err
	}
	d := deflaters.Get().(*deflater)
	defer d.free()
	raw, crc := d.packEntryOf(kind, data)

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	return b.failed(oid, b.pack.append(oid, raw, crc))
}

// claim makes the caller the one who adds oid, if nobody has.
func (b *Batch) claim(oid OID) (isNew bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return false, b.err
	}
	if _, ok := b.seen[oid]; ok {
		return false, nil
	}
	b.seen[oid] = struct{}{}
	return true, nil
}

// failed remembers the error of a write to the pack. mu is held.
func (b *Batch) failed(oid OID, err error) error {
	if err != nil {
		b.err = fmt.Errorf("write object %s: %w", oid, err)
	}
	return b.err
}

// AddStream adds an object whose content is read from r, exactly size bytes,
// and returns its id. However large it is, little of it is held in memory: it
// is compressed into a file of its own first, so other calls are not held up
// and a read that fails, or ends early or late (ErrSizeMismatch), leaves
// the batch as it was.
func (b *Batch) AddStream(kind Kind, size int64, r io.Reader) (OID, error) {
	if err := checkKind(kind); err != nil {
		return ZeroOID, err
	}
	if size < 0 {
		return ZeroOID, ErrSizeMismatch
	}
	if size <= packBufferSize {
		data := make([]byte, size)
		if _, err := io.ReadFull(r, data); err != nil {
			return ZeroOID, streamError(err)
		}
		if err := atEnd(r); err != nil {
			return ZeroOID, err
		}
		return b.Add(kind, data)
	}

	b.mu.Lock()
	temp, err := (*os.File)(nil), b.err
	if err == nil {
		temp, err = b.pack.tempFile()
	}
	b.mu.Unlock()
	if err != nil {
		return ZeroOID, err
	}
	defer os.Remove(temp.Name())
	defer temp.Close()

	oid, entrySize, crc, err := deflateTo(temp, kind, size, r)
	if err != nil {
		return ZeroOID, err
	}
	if isNew, err := b.claim(oid); err != nil || !isNew {
		return oid, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return ZeroOID, b.err
	}
	return oid, b.failed(oid, b.pack.appendFrom(oid, temp, entrySize, crc))
}

// deflateTo writes an object's pack entry to w and returns the object's id and
// the entry's size and CRC.
func deflateTo(w io.Writer, kind Kind, size int64, r io.Reader) (oid OID, entrySize int64, crc uint32, err error) {
	sum := crc32.NewIEEE()
	counted := &countingWriter{w: io.MultiWriter(w, sum)}
	buffered := bufio.NewWriterSize(counted, 256<<10)
	buffered.Write(appendEntryHeader(nil, kind, size))

	d := deflaters.Get().(*deflater)
	defer d.free()
	d.zlib.Reset(buffered)
	h := newObjectHash(kind, size)
	n, err := io.CopyBuffer(io.MultiWriter(h, d.zlib), io.LimitReader(r, size), make([]byte, 256<<10))
	if err != nil {
		return ZeroOID, 0, 0, err
	}
	if n != size {
		return ZeroOID, 0, 0, ErrSizeMismatch
	}
	if err = atEnd(r); err != nil {
		return ZeroOID, 0, 0, err
	}
	if err = d.zlib.Close(); err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		oid, err = h.sum()
	}
	return oid, counted.n, sum.Sum32(), err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

func streamError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrSizeMismatch
	}
	return err
}

// atEnd fails if r has more to give.
func atEnd(r io.Reader) error {
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n > 0:
		return ErrSizeMismatch
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

// Tree adds a tree of these entries and returns its id. It sorts entries in
// place. Names that no file system can show safely, names that are there
// twice and unknown modes are ErrHostileTree.
func (b *Batch) Tree(entries []TreeEntry) (OID, error) {
	data, err := encodeTree(entries)
	if err != nil {
		return ZeroOID, err
	}
	return b.Add(KindTree, data)
}

// Commit adds a commit and returns its id. Names and addresses are cleaned as
// Git cleans them.
func (b *Batch) Commit(c *Commit) (OID, error) {
	data, err := encodeCommit(c)
	if err != nil {
		return ZeroOID, err
	}
	return b.Add(KindCommit, data)
}

// Publish makes the objects durable and visible, then moves the refs as
// UpdateRefs does, and ends the batch. When it returns nil, all of it has
// reached the disk. Without objects it only moves the refs.
//
// On an error no ref has moved and, unless the ref updates were of the kind
// that Git makes (see UpdateRefs), nothing of the batch is left. The
// exception is a disk that fails in the last steps: then a ref may have moved
// whose move is not certain to survive a power cut, or updates that were made
// could not be taken back.
func (b *Batch) Publish(updates ...RefUpdate) error {
	return b.publish(b.store.log, updates)
}

// PublishNew is Publish for refs whose loss costs nothing: where that takes a
// wait for the disk more than the objects and the refs' contents do, a power cut
// may take the refs back for some seconds after it has returned.
func (b *Batch) PublishNew(updates ...RefUpdate) error {
	return b.publish(b.store.log.OrLater(), updates)
}

func (b *Batch) publish(names durable.Log, updates []RefUpdate) error {
	pack, err := b.end()
	if err != nil {
		return err
	}
	if len(pack.entries) == 0 {
		return b.store.UpdateRefs(updates...)
	}
	if err := b.store.publish(pack, names, updates); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// Discard ends the batch and leaves nothing of it. After Publish it does
// nothing.
func (b *Batch) Discard() {
	if pack, err := b.end(); err == nil {
		pack.release()
	}
}

// end takes the pack from the batch, which takes nothing any more.
func (b *Batch) end() (*packWriter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pack, err := b.pack, b.err
	if pack == nil {
		return nil, errBatchEnded
	}
	b.pack, b.seen, b.err = nil, nil, errBatchEnded
	if err != nil {
		pack.release()
		return nil, err
	}
	return pack, nil
}

// stage forces files to disk as far as what follows needs it.
func (s *Store) stage(files ...*os.File) error {
	if err := reach(stepSync); err != nil {
		return err
	}
	return s.log.Stage(files...)
}

func (s *Store) publish(pack *packWriter, names durable.Log, updates []RefUpdate) error {
	defer pack.release()
	refs, err := s.newRefTransaction(updates)
	if err != nil {
		return err
	}
	defer refs.close()
	if err := pack.finish(); err != nil {
		return err
	}
	if err := s.stage(append(refs.files(), pack.pack, pack.idx)...); err != nil {
		return err
	}
	if err := refs.lock(); err != nil {
		return err
	}
	if err := pack.publish(); err != nil {
		return err
	}
	if err := refs.commit(names); err != nil {
		return err
	}
	s.writing.published(s)
	return nil
}
