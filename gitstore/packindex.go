package gitstore

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"math"
)

// packIndex reads a pack's .idx file, version 1 or 2 (gitformat-pack(5)).
//
// Version 2:
//
//	4   ff 't' 'O' 'c'
//	4   version, 2
//	256×4  fanout: how many ids begin with a byte up to this one
//	n×20   ids, sorted
//	n×4    CRC-32 of the packed entries
//	n×4    offsets in the pack; with the top bit set, the rest is a number in
//	m×8    the table of offsets beyond 2^31
//	20  checksum of the pack: its last 20 bytes
//	20  SHA-1 of all of the above
//
// Version 1 is the fanout, n×(4 offset, 20 id), and the same two checksums.
// Numbers are big-endian.
//
// The multi-pack-index is not read: it repeats what the .idx files say, and
// Git neither writes a pack without one nor deletes an .idx before its .pack
// (gitformat-pack(5), "multi-pack-index"; builtin/repack.c, midx.c).
type packIndex struct {
	data    []byte
	n       int
	version int
}

const (
	indexTrailer = 2 * len(OID{})
	fanoutSize   = 256 * 4
)

func parsePackIndex(data []byte) (*packIndex, error) {
	ix := &packIndex{data: data, version: 1}
	fanout := 0
	if len(data) >= 8 && binary.BigEndian.Uint32(data) == 0xff744f63 {
		if v := binary.BigEndian.Uint32(data[4:]); v != 2 {
			return nil, fmt.Errorf("pack index has version %d: %w", v, ErrCorrupt)
		}
		ix.version, fanout = 2, 8
	}
	if len(data) < fanout+fanoutSize+indexTrailer {
		return nil, fmt.Errorf("pack index has only %d bytes: %w", len(data), ErrCorrupt)
	}
	last := uint32(0)
	for i := range 256 {
		n := binary.BigEndian.Uint32(data[fanout+4*i:])
		if n < last {
			return nil, fmt.Errorf("pack index has a fanout that is not sorted: %w", ErrCorrupt)
		}
		last = n
	}
	if last > math.MaxInt32 {
		return nil, fmt.Errorf("pack index claims %d objects: %w", last, ErrCorrupt)
	}
	ix.n = int(last)
	size, n := int64(len(data)), int64(ix.n)
	smallest := int64(fanout+fanoutSize+indexTrailer) + n*24
	largest := smallest
	if ix.version == 2 {
		smallest += 4 * n
		largest = smallest + 8*max(0, n-1)
	}
	if size < smallest || size > largest {
		return nil, fmt.Errorf("pack index has %d bytes for %d objects: %w", size, n, ErrCorrupt)
	}
	return ix, nil
}

// find returns where oid stands in the order of ids.
func (ix *packIndex) find(oid *OID) (int, bool) {
	fanout := ix.data[:fanoutSize]
	if ix.version == 2 {
		fanout = ix.data[8 : 8+fanoutSize]
	}
	first := int(oid[0])
	low, high := 0, int(binary.BigEndian.Uint32(fanout[4*first:]))
	if first > 0 {
		low = int(binary.BigEndian.Uint32(fanout[4*first-4:]))
	}
	want := binary.BigEndian.Uint64(oid[:])
	for low < high {
		mid := int(uint(low+high) / 2)
		id := ix.id(mid)
		got := binary.BigEndian.Uint64(id)
		switch {
		case got < want:
			low = mid + 1
		case got > want:
			high = mid
		default:
			c := bytes.Compare(id[8:], oid[8:])
			if c == 0 {
				return mid, true
			}
			if c < 0 {
				low = mid + 1
			} else {
				high = mid
			}
		}
	}
	return 0, false
}

func (ix *packIndex) id(i int) []byte {
	if ix.version == 2 {
		at := 8 + fanoutSize + 20*i
		return ix.data[at : at+20]
	}
	at := fanoutSize + 24*i + 4
	return ix.data[at : at+20]
}

// offset is where entry i begins in the pack. The caller checks it against the
// pack's size.
func (ix *packIndex) offset(i int) (uint64, error) {
	if ix.version == 1 {
		return uint64(binary.BigEndian.Uint32(ix.data[fanoutSize+24*i:])), nil
	}
	offsets := 8 + fanoutSize + 24*ix.n
	v := binary.BigEndian.Uint32(ix.data[offsets+4*i:])
	if v < 1<<31 {
		return uint64(v), nil
	}
	large := offsets + 4*ix.n + 8*int(v&(1<<31-1))
	if large+8 > len(ix.data)-indexTrailer {
		return 0, fmt.Errorf("pack index points behind its table of large offsets: %w", ErrCorrupt)
	}
	return binary.BigEndian.Uint64(ix.data[large:]), nil
}

// crc is the CRC-32 of the bytes entry i takes in the pack; version 1 has none.
func (ix *packIndex) crc(i int) (uint32, bool) {
	if ix.version == 1 {
		return 0, false
	}
	return binary.BigEndian.Uint32(ix.data[8+fanoutSize+20*ix.n+4*i:]), true
}

func (ix *packIndex) packChecksum() []byte {
	at := len(ix.data) - indexTrailer
	return ix.data[at : at+20]
}

// verify compares the index with its own checksum.
func (ix *packIndex) verify() error {
	end := len(ix.data) - 20
	sum := sha1.Sum(ix.data[:end])
	if !bytes.Equal(sum[:], ix.data[end:]) {
		return fmt.Errorf("pack index does not match its checksum: %w", ErrCorrupt)
	}
	return nil
}
