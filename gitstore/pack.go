package gitstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"sync"
	"sync/atomic"

	"github.com/relofs/relofs/gitstore/inflate"
)

// Entry types of a pack beyond those of objects (gitformat-pack(5)).
const (
	entryOffsetDelta = 6
	entryRefDelta    = 7
)

const (
	packHeader  = 12 // "PACK", version, number of objects
	packTrailer = 20 // SHA-1 of what is before
)

// maxExpansion is more than deflate can expand: 258 bytes for two bits.
const maxExpansion = 1040

// pack is a .pack file and its index, both mapped whole. It is opened when it
// is found and unmapped when no packSet holds it any more; a pack that Git
// deletes meanwhile stays readable until then.
type pack struct {
	path  string // of the .pack file
	id    uint32 // never used twice in a process
	data  []byte
	index *packIndex
	sets  atomic.Int32 // packSets that hold it

	verifyOnce sync.Once
	verifyErr  error
}

func openPack(indexPath, packPath string, id uint32) (*pack, error) {
	indexData, err := mapFile(indexPath)
	if err != nil {
		return nil, err
	}
	data, err := mapFile(packPath)
	if err != nil {
		unmapFile(indexData)
		return nil, err
	}
	p := &pack{path: packPath, id: id, data: data}
	err = guard(func() error {
		p.index, err = parsePackIndex(indexData)
		if err != nil {
			return fmt.Errorf("%s: %w", indexPath, err)
		}
		return p.check()
	})
	if err != nil {
		unmapFile(indexData)
		unmapFile(data)
		return nil, err
	}
	return p, nil
}

// check compares header and trailer with the index, as Git does when it opens
// a pack (open_packed_git_1 in packfile.c).
func (p *pack) check() error {
	if len(p.data) < packHeader+packTrailer || string(p.data[:4]) != "PACK" {
		return fmt.Errorf("%s is not a pack or cut off: %w", p.path, ErrCorrupt)
	}
	if v := binary.BigEndian.Uint32(p.data[4:]); v != 2 && v != 3 {
		return fmt.Errorf("%s has version %d: %w", p.path, v, ErrCorrupt)
	}
	if n := binary.BigEndian.Uint32(p.data[8:]); int64(n) != int64(p.index.n) {
		return fmt.Errorf("%s has %d objects, its index %d: %w", p.path, n, p.index.n, ErrCorrupt)
	}
	if !bytes.Equal(p.data[len(p.data)-packTrailer:], p.index.packChecksum()) {
		return fmt.Errorf("%s does not belong to its index: %w", p.path, ErrCorrupt)
	}
	return nil
}

func (p *pack) unmap() {
	unmapFile(p.index.data)
	unmapFile(p.data)
}

// verifyIndex compares the index with its checksum, once. Lookups do not need
// it, a wrong offset shows in the entry's CRC; but an id that is not found may
// be one that was damaged.
func (p *pack) verifyIndex() error {
	p.verifyOnce.Do(func() {
		err := guard(p.index.verify)
		if err != nil {
			p.verifyErr = fmt.Errorf("%s: %w", p.path, err)
		}
	})
	return p.verifyErr
}

// packEntry is the head of an entry, parsed.
type packEntry struct {
	at   int   // where it begins
	data int   // where its zlib stream begins
	size int64 // of the stream's content: the object's, or the delta's
	kind uint8 // a Kind, entryOffsetDelta or entryRefDelta
	base int   // of a delta: where the base's entry begins
}

func (e packEntry) isDelta() bool { return e.kind >= entryOffsetDelta }

// entry parses the head of the entry that begins at an offset.
func (p *pack) entry(at uint64) (packEntry, error) {
	end := len(p.data) - packTrailer
	if at < packHeader || at >= uint64(end) {
		return packEntry{}, p.corrupt(at, "offset lies outside the pack")
	}
	e := packEntry{at: int(at)}
	in := p.data[at:end]
	i, ok := 0, false
	if e.kind, e.size, i, ok = entryHead(in); !ok {
		return packEntry{}, p.corrupt(at, "bad head of entry")
	}
	switch e.kind {
	case entryOffsetDelta:
		distance, n, ok := baseDistance(in[i:])
		if !ok || distance == 0 || distance > at-packHeader {
			return packEntry{}, p.corrupt(at, "base of delta lies outside the pack")
		}
		i += n
		e.base = int(at - distance)
	case entryRefDelta:
		if len(in)-i < 20 {
			return packEntry{}, p.corrupt(at, "entry is cut off")
		}
		oid := OID(in[i : i+20])
		i += 20
		// The base is always in the same pack: only packs on the wire may be
		// thin (gitformat-pack(5)).
		n, ok := p.index.find(&oid)
		if !ok {
			return packEntry{}, p.corrupt(at, "base of delta is not in the pack")
		}
		base, err := p.index.offset(n)
		if err != nil {
			return packEntry{}, err
		}
		if base > math.MaxInt {
			return packEntry{}, p.corrupt(at, "base of delta lies outside the pack")
		}
		e.base = int(base)
	case uint8(KindCommit), uint8(KindTree), uint8(KindBlob), uint8(KindTag):
	default:
		return packEntry{}, p.corrupt(at, "unknown type of entry")
	}
	e.data = int(at) + i
	if e.size/maxExpansion > int64(end-e.data) {
		return packEntry{}, p.corrupt(at, "stated size is more than the rest of the pack can hold")
	}
	return e, nil
}

// entryHead parses type and size: in the first byte three bits of type and the
// low four of the size, then seven bits a byte; the top bit says that more
// follow. n is how many bytes it takes.
func entryHead(in []byte) (kind uint8, size int64, n int, ok bool) {
	if len(in) == 0 {
		return 0, 0, 0, false
	}
	b := in[0]
	kind = b >> 4 & 7
	v := uint64(b & 15)
	n = 1
	for shift := 4; b&0x80 != 0; shift += 7 {
		if n == len(in) || shift > 53 {
			return 0, 0, 0, false
		}
		b = in[n]
		n++
		v |= uint64(b&0x7f) << shift
	}
	return kind, int64(v), n, true
}

// baseDistance parses how far before an offset delta its base lies: seven bits
// a byte, the highest first, and one added at each continuation.
func baseDistance(in []byte) (v uint64, n int, ok bool) {
	for {
		if n == len(in) || v >= 1<<56 {
			return 0, 0, false
		}
		b := in[n]
		n++
		v |= uint64(b & 0x7f)
		if b&0x80 == 0 {
			return v, n, true
		}
		v = (v + 1) << 7
	}
}

// inflate decompresses an entry's stream to dst[:e.size], which has slack
// behind it. i is the entry's place in the index if that is known, else -1.
// With it, the CRC of the packed bytes proves that they are what the index
// meant, at a fiftieth of the price of the checksum over the content; without, as
// for the base of a delta, that checksum is compared.
func (p *pack) inflate(dst []byte, e packEntry, i int) error {
	sum, ok := uint32(0), false
	if i >= 0 {
		sum, ok = p.index.crc(i)
	}
	n, err := inflate.Zlib(dst, int(e.size), p.data[e.data:len(p.data)-packTrailer], !ok)
	if err != nil {
		return p.corrupt(uint64(e.at), err.Error())
	}
	if ok && crc32.ChecksumIEEE(p.data[e.at:e.data+n]) != sum {
		return p.corrupt(uint64(e.at), "entry does not match its CRC")
	}
	return nil
}

// header returns type and size of the object whose entry begins at an offset.
// Of a delta only its first bytes are decompressed.
func (p *pack) header(at uint64) (Kind, int64, error) {
	e, err := p.entry(at)
	if err != nil {
		return 0, 0, err
	}
	size := e.size
	if e.isDelta() {
		var head [2 * maxVarint]byte
		n, err := inflate.Prefix(head[:min(len(head), int(e.size))], p.data[e.data:len(p.data)-packTrailer])
		if err != nil {
			return 0, 0, p.corrupt(at, err.Error())
		}
		_, size, _, err = deltaHeader(head[:n])
		if err == nil && size/maxCopy > e.size {
			err = errDeltaSize
		}
		if err != nil {
			return 0, 0, p.corrupt(at, err.Error())
		}
	}
	for depth := 0; e.isDelta(); depth++ {
		if depth == maxDeltaDepth {
			return 0, 0, p.corrupt(at, errDeltaDepth.Error())
		}
		if e, err = p.entry(uint64(e.base)); err != nil {
			return 0, 0, err
		}
	}
	return Kind(e.kind), size, nil
}

// maxDeltaDepth is the longest chain of deltas that is followed. Git writes at
// most 4095 (OE_DEPTH_BITS in pack-objects.h); more is a cycle or an attack.
const maxDeltaDepth = 4096

var errDeltaDepth = errors.New("chain of deltas is a cycle or too long")

func (p *pack) corrupt(at uint64, what string) error {
	return fmt.Errorf("%s at %d: %s: %w", p.path, at, what, ErrCorrupt)
}
