package gitstore

import (
	"bytes"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
)

// deflater is a zlib writer with the buffer it writes to, kept in a pool: a
// writer's tables are 100s of kilobytes.
type deflater struct {
	buf  bytes.Buffer
	zlib *zlib.Writer
}

// Level 1: revisions are written far more often than read, and the next gc by
// Git compresses again what is kept.
const deflateLevel = 1

var deflaters = sync.Pool{New: func() any {
	w, err := zlib.NewWriterLevel(io.Discard, deflateLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	return &deflater{zlib: w}
}}

func (d *deflater) free() {
	d.zlib.Reset(io.Discard) // what it wrote to is not kept alive
	const keep = 4 << 20
	if d.buf.Cap() <= keep {
		deflaters.Put(d)
	}
}

// packEntryOf makes an object's entry in a pack, valid until d is freed.
func (d *deflater) packEntryOf(kind Kind, data []byte) (raw []byte, crc uint32) {
	d.buf.Reset()
	var head [16]byte
	d.buf.Write(appendEntryHeader(head[:0], kind, int64(len(data))))
	d.zlib.Reset(&d.buf)
	d.zlib.Write(data) // a bytes.Buffer does not fail
	d.zlib.Close()
	raw = d.buf.Bytes()
	return raw, crc32.ChecksumIEEE(raw)
}

// appendEntryHeader appends an entry's type and inflated size: 4 bits of size
// after 3 of type in the first byte, 7 in each further one, least significant
// first, the top bit set where more follow (gitformat-pack, "n-byte type and
// length").
func appendEntryHeader(b []byte, kind Kind, size int64) []byte {
	c := byte(kind)<<4 | byte(size&0x0f)
	for size >>= 4; size != 0; size >>= 7 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(b, c)
}
