// Package inflate decompresses zlib streams (RFC 1950, RFC 1951) whose input
// is in memory and whose output size is known, which is how Git stores objects.
//
// A reader that must be able to stop anywhere pays for it with a window it
// copies through and with state it saves on every call. Here the output buffer
// is the window and the whole stream is decoded in one call, most of it in a
// loop that checks its bounds once an iteration (fastLoop); what remains at the
// ends of the buffers goes through a careful loop (slowLoop). Against
// compress/flate that is about three times as fast, which is what it takes for
// Go to read a repository at the speed of Git's C zlib.
//
// Input comes from outside. Whatever it holds, a call reads only from src,
// writes only to dst, takes time linear in the two and returns an error rather
// than panic; memory is the fixed tables of a decoder, kept in a pool.
//
// # Tables
//
// A Huffman code is decoded by looking the next 11 (literals and lengths) or 8
// (distances) bits up in a table of entries; longer codes go on to a subtable
// behind it. An entry is 32 bits:
//
//	bits 0-5    bits to drop: the code's and its extra bits'
//	bits 8-11   of which the code's; in a pointer, the subtable's index bits
//	bit  13     end of block
//	bit  14     pointer to a subtable
//	bit  15     special: end of block, pointer, or (alone) no such code
//	bits 16-30  literal, base of length or distance, or start of the subtable
//	bit  31     literal
package inflate

import (
	"encoding/binary"
	"errors"
	"hash/adler32"
	"sync"
)

// Slack is how many bytes dst should have beyond the stated size: with it the
// fast loop can run to the very end of the output.
const Slack = 320

// Errors. All of them mean that src is damaged or hostile.
var (
	ErrCorrupt  = errors.New("zlib stream is damaged")
	ErrSize     = errors.New("zlib stream is of another size than stated")
	ErrChecksum = errors.New("zlib stream does not match its checksum")
	ErrShort    = errors.New("zlib stream is cut off")
)

// Zlib decompresses the stream at the start of src, which must hold exactly
// size bytes, to dst[:size]. dst must be at least that long; the bytes beyond
// are scratch space and may be overwritten. It returns how many bytes of src
// the stream takes, checksum included. With verify the checksum is computed and
// compared; without, the caller has something better.
func Zlib(dst []byte, size int, src []byte, verify bool) (int, error) {
	if err := header(src); err != nil {
		return 0, err
	}
	d := pool.Get().(*decoder)
	d.src, d.dst, d.size, d.in = src, dst, size, 2
	err := d.run(false)
	in, out := d.in, d.out
	d.release()
	switch {
	case err != nil:
		return 0, err
	case out != size:
		return 0, ErrSize
	case len(src)-in < 4:
		return 0, ErrShort
	}
	if verify && binary.BigEndian.Uint32(src[in:]) != adler32.Checksum(dst[:size]) {
		return 0, ErrChecksum
	}
	return in + 4, nil
}

// Prefix decompresses the first len(dst) bytes of the stream at the start of
// src, or all of them if it is shorter, and returns how many there are. src may
// be cut off behind what that takes. Nothing is verified.
func Prefix(dst, src []byte) (int, error) {
	if err := header(src); err != nil {
		return 0, err
	}
	d := pool.Get().(*decoder)
	d.src, d.dst, d.size, d.in = src, dst, len(dst), 2
	err := d.run(true)
	out := d.out
	d.release()
	return out, err
}

// header checks the two bytes before the deflate stream (RFC 1950, 2.2).
func header(src []byte) error {
	switch {
	case len(src) < 2:
		return ErrShort
	case src[0]&15 != 8, src[0]>>4 > 7, src[1]&0x20 != 0,
		(uint(src[0])<<8|uint(src[1]))%31 != 0:
		return ErrCorrupt
	}
	return nil
}

var pool = sync.Pool{New: func() any { return new(decoder) }}

// decoder is the state of one call, and the tables that calls reuse.
type decoder struct {
	src, dst []byte
	size     int // of dst, what the stream must fill
	in, out  int
	bits     uint64 // read from src, not used yet, lowest first
	count    uint   // how many of them; those above are 0 or those at src[in:]

	literals  *[literalEntries]uint32 // of the current block
	distances *[distanceEntries]uint32

	ownLiterals  [literalEntries]uint32
	ownDistances [distanceEntries]uint32
	lengths      [maxLiterals + maxDistances]uint8
	sorted       [maxLiterals]uint16
}

func (d *decoder) release() {
	d.src, d.dst = nil, nil
	d.in, d.out, d.bits, d.count = 0, 0, 0, 0
	pool.Put(d)
}

// run decodes blocks until the last one ends. With partial it also stops,
// content, when the output is full.
func (d *decoder) run(partial bool) error {
	for {
		head, err := d.take(3)
		if err != nil {
			return err
		}
		switch head >> 1 {
		case 0:
			err = d.stored(partial)
		case 1:
			fixed := fixedTables()
			d.literals, d.distances = &fixed.literals, &fixed.distances
			err = d.block(partial)
		case 2:
			if err = d.readTables(); err == nil {
				err = d.block(partial)
			}
		default:
			err = ErrCorrupt
		}
		if err == errFull && partial {
			return nil
		}
		if err != nil {
			return err
		}
		if head&1 != 0 {
			// Whole bytes that were read ahead go back.
			d.in -= int(d.count >> 3)
			return nil
		}
	}
}

// errFull ends a partial decoding.
var errFull = errors.New("output is full")

// take reads n bits, at most 32.
func (d *decoder) take(n uint) (uint, error) {
	if d.count < n {
		d.refill()
		if d.count < n {
			return 0, ErrShort
		}
	}
	v := uint(d.bits) & (1<<n - 1)
	d.bits >>= n
	d.count -= n
	return v, nil
}

// refill reads whole bytes until more than 56 bits are there or src ends.
func (d *decoder) refill() {
	for d.count <= 56 && d.in < len(d.src) {
		d.bits |= uint64(d.src[d.in]) << d.count
		d.in++
		d.count += 8
	}
}

// stored copies a block that is not compressed (RFC 1951, 3.2.4).
func (d *decoder) stored(partial bool) error {
	d.in -= int(d.count >> 3)
	d.bits, d.count = 0, 0
	if len(d.src)-d.in < 4 {
		return ErrShort
	}
	n := int(binary.LittleEndian.Uint16(d.src[d.in:]))
	if n != int(^binary.LittleEndian.Uint16(d.src[d.in+2:])) {
		return ErrCorrupt
	}
	d.in += 4
	room, left := d.size-d.out, len(d.src)-d.in
	if partial && n > room {
		if left < room {
			return ErrShort
		}
		d.out += copy(d.dst[d.out:d.size], d.src[d.in:])
		return errFull
	}
	if n > room {
		return ErrSize
	}
	if n > left {
		return ErrShort
	}
	copy(d.dst[d.out:], d.src[d.in:d.in+n])
	d.in += n
	d.out += n
	return nil
}

// block decodes the symbols of one compressed block.
func (d *decoder) block(partial bool) error {
	if !partial {
		done, err := d.fastLoop()
		if done || err != nil {
			return err
		}
	}
	return d.slowLoop(partial)
}

// slowLoop decodes up to the end of the block with every bound checked.
func (d *decoder) slowLoop(partial bool) error {
	for {
		d.refill()
		if partial && d.out == d.size {
			return errFull
		}
		e := d.literals[d.bits&(1<<literalBits-1)]
		if e&isPointer != 0 {
			if err := d.drop(e); err != nil {
				return err
			}
			e = d.literals[uint64(e>>valueShift)+d.bits&(1<<(e>>codeShift&15)-1)]
		}
		if e&isLiteral != 0 {
			if err := d.drop(e); err != nil {
				return err
			}
			if d.out == d.size {
				return ErrSize
			}
			d.dst[d.out] = byte(e >> valueShift)
			d.out++
			continue
		}
		if e&isSpecial != 0 {
			if e&isEnd == 0 {
				return d.invalid()
			}
			return d.drop(e)
		}
		length := value(e, d.bits)
		if err := d.drop(e); err != nil {
			return err
		}
		d.refill()
		e = d.distances[d.bits&(1<<distanceBits-1)]
		if e&isPointer != 0 {
			if err := d.drop(e); err != nil {
				return err
			}
			e = d.distances[uint64(e>>valueShift)+d.bits&(1<<(e>>codeShift&15)-1)]
		}
		if e&isSpecial != 0 {
			return d.invalid()
		}
		distance := value(e, d.bits)
		if err := d.drop(e); err != nil {
			return err
		}
		if distance > d.out {
			return ErrCorrupt
		}
		if length > d.size-d.out {
			if !partial {
				return ErrSize
			}
			length = d.size - d.out
		}
		for range length {
			d.dst[d.out] = d.dst[d.out-distance]
			d.out++
		}
	}
}

// value is the base an entry names plus its extra bits.
func value(e uint32, bits uint64) int {
	code := e >> codeShift & 15
	extra := e&bitsMask - code
	return int(e>>valueShift) + int(bits>>code&(1<<extra-1))
}

func (d *decoder) drop(e uint32) error {
	n := uint(e & bitsMask)
	if n > d.count {
		return ErrShort
	}
	d.bits >>= n
	d.count -= n
	return nil
}

// invalid tells a code that does not exist from one that is cut off.
func (d *decoder) invalid() error {
	if d.in == len(d.src) && d.count < maxCodeBits {
		return ErrShort
	}
	return ErrCorrupt
}
