package gitstore

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"slices"
)

// encodePackIndex returns a pack's index, version 2 (gitformat-pack, "Version 2
// pack-*.idx files"), all numbers big-endian:
//
//	ff 't' 'O' 'c', version 2            4 + 4
//	fan-out: entries with first byte ≤ i 256 × 4
//	object ids, sorted                   n × 20
//	CRC-32 of each entry's bytes         n × 4
//	offset in the pack, or, top bit set,
//	  a position in the next table       n × 4
//	offsets of 2 GiB and more            m × 8
//	checksum of the pack                 20
//	checksum of all of the above         20
//
// It sorts entries.
func encodePackIndex(entries []indexEntry, packChecksum [sha1.Size]byte) []byte {
	slices.SortFunc(entries, func(a, b indexEntry) int { return bytes.Compare(a.oid[:], b.oid[:]) })

	out := make([]byte, 0, 8+1024+len(entries)*28+2*sha1.Size)
	out = append(out, "\xfftOc\x00\x00\x00\x02"...)
	next := 0
	for first := range 256 {
		for next < len(entries) && int(entries[next].oid[0]) == first {
			next++
		}
		out = binary.BigEndian.AppendUint32(out, uint32(next))
	}
	for i := range entries {
		out = append(out, entries[i].oid[:]...)
	}
	for i := range entries {
		out = binary.BigEndian.AppendUint32(out, entries[i].crc)
	}
	var large []int64
	for i := range entries {
		at := uint32(entries[i].offset)
		if entries[i].offset > 1<<31-1 {
			at = 1<<31 | uint32(len(large))
			large = append(large, entries[i].offset)
		}
		out = binary.BigEndian.AppendUint32(out, at)
	}
	for _, offset := range large {
		out = binary.BigEndian.AppendUint64(out, uint64(offset))
	}
	out = append(out, packChecksum[:]...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}
