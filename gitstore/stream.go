package gitstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/klauspost/compress/zlib"
)

// streamFrom is the size from which OpenBlob does not read a blob into memory.
const streamFrom = 4 << 20

// OpenBlob returns a reader of a blob's content, and its size. Memory stays
// small whatever the size: a large blob is decompressed while it is read, and
// where it is stored as a delta its base is unpacked to a temporary file in the
// directory scratch ("" for the system's). Close must be called; the reader is
// for one goroutine.
//
// Damage may show only while reading, the checksum at the end: the content is
// sound when Read has returned io.EOF, and an error is ErrCorrupt. Errors of
// OpenBlob are as for Read, without ErrTooLarge.
func (s *Store) OpenBlob(oid OID, scratch string) (io.ReadCloser, int64, error) {
	var r io.ReadCloser
	var size int64
	err := s.locate(oid, func(at place) (err error) {
		r, size, err = s.objects.openBlob(at, oid, scratch)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", oid, err)
	}
	return r, size, nil
}

func (db *objectDB) openBlob(at place, oid OID, scratch string) (io.ReadCloser, int64, error) {
	if at.pack == nil {
		return openLoose(at.dir, oid)
	}
	offset, err := at.pack.index.offset(at.at)
	if err != nil {
		return nil, 0, err
	}
	kind, size, err := at.pack.header(offset)
	if err != nil {
		return nil, 0, err
	}
	if kind != KindBlob {
		return nil, 0, fmt.Errorf("it is a %s, not a blob: %w", kind, ErrWrongKind)
	}
	if size < streamFrom {
		_, data, err := db.appendPacked(nil, at)
		if err == nil {
			return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
		}
		if !errors.Is(err, ErrTooLarge) { // a small blob may have a large base
			return nil, 0, err
		}
	}
	e, err := at.pack.entry(offset)
	if err != nil {
		return nil, 0, err
	}
	if e.isDelta() {
		f, err := at.pack.unpackDelta(e, at.at, scratch)
		if err != nil {
			return nil, 0, err
		}
		return f, size, nil
	}
	r, err := at.pack.stream(e, at.at)
	if err != nil {
		return nil, 0, err
	}
	if !at.set.acquire() { // cannot be: the caller holds it
		return nil, 0, os.ErrClosed
	}
	return &packedBlob{entryReader: r, set: at.set}, size, nil
}

// entryReader decompresses the stream of a pack's entry.
type entryReader struct {
	pack *pack
	e    packEntry
	at   int // in the index, or -1
	in   *bytes.Reader
	z    io.Reader
	left int64
	err  error // once there is one
}

func (p *pack) stream(e packEntry, at int) (*entryReader, error) {
	in := bytes.NewReader(p.data[e.data : len(p.data)-packTrailer])
	z, err := zlib.NewReader(in)
	if err != nil {
		return nil, p.corrupt(uint64(e.at), err.Error())
	}
	return &entryReader{pack: p, e: e, at: at, in: in, z: z, left: e.size}, nil
}

func (r *entryReader) Read(b []byte) (int, error) {
	if r.err != nil || len(b) == 0 {
		return 0, r.err
	}
	n := 0
	err := guard(func() (err error) {
		n, err = r.read(b)
		return err
	})
	if err != nil && err != io.EOF && !errors.Is(err, ErrCorrupt) {
		err = r.pack.corrupt(uint64(r.e.at), err.Error())
	}
	r.err = err
	return n, err
}

// read returns io.EOF when all of the content was read and found to be right.
func (r *entryReader) read(b []byte) (int, error) {
	if r.left > 0 {
		n, err := r.z.Read(b[:min(int64(len(b)), r.left)])
		r.left -= int64(n)
		if err == io.EOF && r.left > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			err = nil // found again below
		}
		return n, err
	}
	// The end of the stream, where the checksum is compared.
	var one [1]byte
	if n, err := io.ReadFull(r.z, one[:]); n != 0 {
		return 0, errors.New("entry is larger than stated")
	} else if err != io.EOF {
		return 0, err
	}
	if r.at >= 0 {
		end := len(r.pack.data) - packTrailer - r.in.Len()
		if sum, ok := r.pack.index.crc(r.at); ok && crc32.ChecksumIEEE(r.pack.data[r.e.at:end]) != sum {
			return 0, errors.New("entry does not match its CRC")
		}
	}
	return 0, io.EOF
}

// packedBlob is the reader of an entry that holds its pack's mapping.
type packedBlob struct {
	*entryReader
	set *packSet
}

func (b *packedBlob) Close() error {
	if b.set != nil {
		b.set.release()
		b.set = nil
		b.err = os.ErrClosed
	}
	return nil
}

// unpackDelta unpacks the object an entry stores as a delta to a temporary
// file, from one file to the next along the chain of its bases.
func (p *pack) unpackDelta(e packEntry, at int, scratch string) (*os.File, error) {
	var chain []packEntry
	for e.isDelta() {
		if len(chain) == maxDeltaDepth {
			return nil, p.corrupt(uint64(chain[0].at), errDeltaDepth.Error())
		}
		chain = append(chain, e)
		var err error
		if e, err = p.entry(uint64(e.base)); err != nil {
			return nil, err
		}
	}
	base, err := temporaryFile(scratch, func(w *bufio.Writer) error {
		r, err := p.stream(e, -1)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		return err
	})
	for i := len(chain) - 1; i >= 0 && err == nil; i-- {
		previous, own := base, -1
		if i == 0 {
			own = at
		}
		base, err = temporaryFile(scratch, func(w *bufio.Writer) error {
			r, err := p.stream(chain[i], own)
			if err != nil {
				return err
			}
			if err = streamDelta(w, previous, r); errors.Is(err, errDelta) {
				err = p.corrupt(uint64(chain[i].at), err.Error())
			}
			return err
		})
		previous.Close()
	}
	return base, err
}

// streamDelta is applyDelta for contents of any size.
func streamDelta(w io.Writer, base *os.File, delta io.Reader) error {
	in := bufio.NewReaderSize(delta, 64<<10)
	info, err := base.Stat()
	if err != nil {
		return err
	}
	// What is there of the sizes; a stream cut off in them is shorter.
	head, err := in.Peek(2 * maxVarint)
	if err != nil && err != io.EOF {
		return err
	}
	baseSize, size, n, err := deltaHeader(head)
	if err != nil {
		return err
	}
	if baseSize != info.Size() {
		return fmt.Errorf("%w: it is for a base of %d bytes, not %d", errDelta, baseSize, info.Size())
	}
	_, _ = in.Discard(n) // was peeked at
	for {
		op, err := in.ReadByte()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		var from io.Reader
		var length int
		if op&0x80 == 0 {
			if op == 0 {
				return fmt.Errorf("%w: reserved instruction", errDelta)
			}
			from, length = in, int(op)
		} else {
			operands, err := in.Peek(7)
			if err != nil && err != io.EOF {
				return err
			}
			offset, n, used, ok := copyInstruction(op, operands)
			if !ok || int64(offset) > baseSize || int64(n) > baseSize-int64(offset) {
				return fmt.Errorf("%w: copy of %d bytes at %d", errDelta, n, offset)
			}
			_, _ = in.Discard(used)
			from, length = io.NewSectionReader(base, int64(offset), int64(n)), n
		}
		if size -= int64(length); size < 0 {
			return fmt.Errorf("%w: result is larger than stated", errDelta)
		}
		if _, err := io.CopyN(w, from, int64(length)); err == io.EOF {
			return fmt.Errorf("%w: cut off", errDelta)
		} else if err != nil {
			return err
		}
	}
	if size != 0 {
		return fmt.Errorf("%w: result is %d bytes short", errDelta, size)
	}
	return nil
}

// temporaryFile returns a file without a name that holds what fill wrote,
// positioned at its start.
func temporaryFile(dir string, fill func(*bufio.Writer) error) (_ *os.File, err error) {
	f, err := os.CreateTemp(dir, "relofs-blob-")
	if err != nil {
		return nil, fmt.Errorf("unpack blob: %w", err)
	}
	// Where an open file cannot be removed it stays until the directory is
	// cleaned up.
	_ = os.Remove(f.Name())
	w := bufio.NewWriterSize(f, 256<<10)
	if err = fill(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("unpack blob: %w", err)
	}
	return f, nil
}

// looseBlob is the reader of a loose object.
type looseBlob struct {
	file *os.File
	in   *bufio.Reader
	z    io.Reader
	left int64
	err  error
}

// openLoose returns the reader of a loose blob; fs.ErrNotExist if dir has no
// such object.
func openLoose(dir string, oid OID) (io.ReadCloser, int64, error) {
	kind, size, err := looseHeader(dir, oid)
	if err != nil {
		return nil, 0, err
	}
	if kind != KindBlob {
		return nil, 0, fmt.Errorf("it is a %s, not a blob: %w", kind, ErrWrongKind)
	}
	if size < streamFrom {
		_, data, err := appendLoose(nil, dir, oid)
		if err != nil {
			return nil, 0, err
		}
		return io.NopCloser(bytes.NewReader(data)), size, nil
	}
	f, err := os.Open(loosePath(dir, oid))
	if err != nil {
		return nil, 0, err
	}
	b := &looseBlob{file: f, in: bufio.NewReaderSize(f, 64<<10), left: size}
	if b.z, err = zlib.NewReader(b.in); err == nil {
		_, err = io.CopyN(io.Discard, b.z, int64(len(fmt.Sprintf("%s %d\x00", kind, size))))
	}
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("%s: %w: %w", f.Name(), err, ErrCorrupt)
	}
	return b, size, nil
}

func (b *looseBlob) Read(buf []byte) (int, error) {
	if b.err != nil || len(buf) == 0 {
		return 0, b.err
	}
	n, err := b.read(buf)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%s: %w: %w", b.file.Name(), err, ErrCorrupt)
	}
	b.err = err
	return n, err
}

func (b *looseBlob) read(buf []byte) (int, error) {
	if b.left > 0 {
		n, err := b.z.Read(buf[:min(int64(len(buf)), b.left)])
		b.left -= int64(n)
		if err == io.EOF && b.left > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			err = nil
		}
		return n, err
	}
	var one [1]byte
	if n, err := io.ReadFull(b.z, one[:]); n != 0 {
		return 0, errors.New("loose object is larger than stated")
	} else if err != io.EOF {
		return 0, err
	}
	if _, err := b.in.ReadByte(); err != io.EOF {
		return 0, errors.New("garbage behind the object")
	}
	return 0, io.EOF
}

func (b *looseBlob) Close() error { return b.file.Close() }
