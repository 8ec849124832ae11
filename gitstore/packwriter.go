package gitstore

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/relofs/relofs/durable"
)

// packWriter writes one pack and its index, and carries it through its life:
//
//	objects/pack/<name>.keep          before anything else; "relofs <pid>\n",
//	                                  flocked while the writer lives
//	objects/pack/<name>.relofs-pack   the pack while it is written
//	objects/pack/<name>.relofs-idx    the index while it is written
//	objects/pack/<name>.pack, .idx    published, in this order
//
// A name is "pack-72656c6f" and 32 random hexadecimal digits (the first eight
// spell "relo"), so a pack can be told to be one of ours without a list of
// them, and two packs of the same content never share a .keep file. The
// temporary names avoid what Git acts on: `git prune` deletes tmp_*, `git
// repack -d` deletes *.pack it finds without .keep, `git gc` deletes *.idx
// without a pack.
//
// Every entry is a whole object, no deltas, so entries may be copied to other
// packs as they are.
//
// A packWriter is not safe for concurrent use.
type packWriter struct {
	dir   string // objects/pack
	name  string
	modes modes
	log   durable.Log

	keep *os.File // nil until the first write to disk
	pack *os.File
	idx  *os.File

	buf     []byte // the pack's end, not written yet; all of it while pack is nil
	size    int64
	entries []indexEntry

	hasPack bool // the .pack has its final name
	visible bool // the .idx has: Git may have seen the objects
}

// indexEntry is where an object lies in a pack.
type indexEntry struct {
	oid    OID
	crc    uint32 // of the entry's bytes
	offset int64
}

const (
	ownPackPrefix = "pack-72656c6f"
	ownPackName   = len("pack-") + 40

	packHeaderSize = 12
	tempPackSuffix = ".relofs-pack"
	tempIdxSuffix  = ".relofs-idx"

	// Packs up to this size are written in one piece when they are finished.
	packBufferSize = 1 << 20
)

func (s *Store) newPackWriter() *packWriter {
	random := make([]byte, 16)
	rand.Read(random) // never fails
	return &packWriter{
		dir:   filepath.Join(s.objectsDir(), "pack"),
		name:  ownPackPrefix + hex.EncodeToString(random),
		modes: s.newModes(),
		log:   s.log,
		buf:   append(make([]byte, 0, 4096), "PACK\x00\x00\x00\x02\x00\x00\x00\x00"...), // count: finish
		size:  packHeaderSize,
	}
}

func (p *packWriter) path(suffix string) string { return filepath.Join(p.dir, p.name+suffix) }

// append adds an entry whose bytes are raw. The object must be new to the pack.
func (p *packWriter) append(oid OID, raw []byte, crc uint32) error {
	if len(p.buf)+len(raw) > packBufferSize {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if len(raw) > packBufferSize {
		if err := p.write(raw); err != nil {
			return err
		}
	} else {
		p.buf = append(p.buf, raw...)
	}
	p.added(oid, int64(len(raw)), crc)
	return nil
}

// appendFrom adds an entry that is read from a file, from its beginning to
// its end.
func (p *packWriter) appendFrom(oid OID, entry *os.File, size int64, crc uint32) error {
	if err := p.flush(); err != nil {
		return err
	}
	if err := reach(stepPackWrite); err != nil {
		return err
	}
	if _, err := entry.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(p.pack, entry) // copy_file_range on Linux
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("%s: %d bytes of %d", entry.Name(), n, size)
	}
	p.added(oid, size, crc)
	return nil
}

func (p *packWriter) added(oid OID, size int64, crc uint32) {
	p.entries = append(p.entries, indexEntry{oid, crc, p.size})
	p.size += size
}

// flush makes sure that the pack is a file and all of it is there.
func (p *packWriter) flush() error {
	if p.pack == nil {
		if err := p.create(); err != nil {
			return err
		}
	}
	if len(p.buf) == 0 {
		return nil
	}
	err := p.write(p.buf)
	p.buf = p.buf[:0]
	return err
}

func (p *packWriter) write(b []byte) error {
	if err := reach(stepPackWrite); err != nil {
		return err
	}
	_, err := p.pack.Write(b)
	return err
}

func (p *packWriter) create() error {
	err := p.createKeep()
	if err != nil {
		return err
	}
	p.pack, err = createFile(p.path(tempPackSuffix), p.modes.pack)
	return err
}

func (p *packWriter) createKeep() (err error) {
	if p.keep != nil {
		return nil
	}
	if err := reach(stepKeep); err != nil {
		return err
	}
	p.keep, err = createOwned(p.path(".keep"), p.modes.file)
	if errors.Is(err, os.ErrNotExist) {
		if err = createDir(p.dir, p.modes.dir); err == nil || errors.Is(err, os.ErrExist) {
			p.keep, err = createOwned(p.path(".keep"), p.modes.file)
		}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.keep, "relofs %d\n", os.Getpid())
	return err
}

// tempFile makes a further temporary file that is swept with the pack's.
func (p *packWriter) tempFile() (*os.File, error) {
	if err := p.createKeep(); err != nil {
		return nil, err
	}
	return os.CreateTemp(p.dir, p.name+".relofs-*")
}

// finish writes what is missing of the pack and its index. The two files are
// then to be synced and published.
func (p *packWriter) finish() error {
	checksum, err := p.seal()
	if err != nil {
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	if err := reach(stepIndexWrite); err != nil {
		return err
	}
	p.idx, err = createFile(p.path(tempIdxSuffix), p.modes.pack)
	if err != nil {
		return err
	}
	_, err = p.idx.Write(encodePackIndex(p.entries, checksum))
	return err
}

// seal puts the number of objects into the header and the checksum of all the
// bytes at the end (gitformat-pack). The header is at the front of what is
// hashed, so a pack that was written out already is read again.
func (p *packWriter) seal() (checksum [sha1.Size]byte, err error) {
	var count [4]byte
	binary.BigEndian.PutUint32(count[:], uint32(len(p.entries)))
	if p.pack == nil {
		copy(p.buf[8:], count[:])
		checksum = sha1.Sum(p.buf)
	} else {
		if err := p.flush(); err != nil {
			return checksum, err
		}
		if _, err := p.pack.WriteAt(count[:], 8); err != nil {
			return checksum, err
		}
		h := sha1.New()
		if _, err := io.CopyBuffer(h, io.NewSectionReader(p.pack, 0, p.size), make([]byte, 256<<10)); err != nil {
			return checksum, err
		}
		h.Sum(checksum[:0])
	}
	p.buf = append(p.buf, checksum[:]...)
	p.size += sha1.Size
	return checksum, nil
}

// publish gives pack and index their final names, durably. The pack comes
// first: Git takes an index for a pack's existence.
func (p *packWriter) publish() error {
	if err := reach(stepPackRename); err != nil {
		return err
	}
	if err := os.Rename(p.path(tempPackSuffix), p.path(".pack")); err != nil {
		return err
	}
	p.hasPack = true
	if err := reach(stepIdxRename); err != nil {
		return err
	}
	if err := os.Rename(p.path(tempIdxSuffix), p.path(".idx")); err != nil {
		return err
	}
	p.visible = true
	if err := reach(stepPackSync); err != nil {
		return err
	}
	return p.log.Order(p.dir)
}

// release ends the writer. A pack that is visible stays, whatever happened
// after: a repack that saw its .keep may have left objects out of the new pack
// because this one has them, and then deleted the packs that had them before.
// If nothing refers to them, gc takes them away. A pack that is not visible
// yet goes with its temporary files. .keep goes last, so that a release that
// is cut short is finished by sweepPacks.
func (p *packWriter) release() {
	if p.keep == nil {
		return
	}
	if reach(stepRelease) != nil {
		return
	}
	for _, f := range []*os.File{p.pack, p.idx} {
		if f != nil {
			f.Close()
		}
	}
	if !p.visible {
		os.Remove(p.path(tempIdxSuffix))
		os.Remove(p.path(tempPackSuffix))
		if p.hasPack {
			os.Remove(p.path(".pack"))
		}
	}
	os.Remove(p.path(".keep"))
	p.keep.Close()
	p.keep = nil
}

// isOwnPack reports whether a file of objects/pack belongs to a pack of ours,
// and splits its name.
func isOwnPack(file string) (name, suffix string, ok bool) {
	if len(file) <= ownPackName || file[ownPackName] != '.' || !strings.HasPrefix(file, ownPackPrefix) {
		return "", "", false
	}
	return file[:ownPackName], file[ownPackName:], true
}
