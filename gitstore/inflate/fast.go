package inflate

import "encoding/binary"

// Margins of the fast loop: what one iteration reads and writes at most.
const (
	inMargin  = 16            // two refills of 8 bytes
	outMargin = 3 + 258 + 8*4 // three literals, the longest match, whole words behind it
)

// fastLoop decodes symbols while src and dst have room for whatever an
// iteration may do. It reports true when the block has ended.
func (d *decoder) fastLoop() (bool, error) {
	src, dst := d.src, d.dst
	in, out := d.in, d.out
	bb, count := d.bits, d.count
	lits, dists := d.literals, d.distances
	inEnd := len(src) - inMargin
	outEnd := min(len(dst)-outMargin, d.size)
	done := false
	for in <= inEnd && out <= outEnd {
		// Top up to at least 56 bits. Bits above count may be filled already;
		// they are those at src[in:], so that or-ing them again changes nothing.
		bb |= binary.LittleEndian.Uint64(src[in:]) << (count & 63)
		in += int((63 - count) >> 3)
		count |= 56

		e := lits[bb&(1<<literalBits-1)]
		if int32(e) < 0 {
			// Up to three literals of at most 11 bits.
			dst[out] = byte(e >> valueShift)
			out++
			bb >>= e & bitsMask
			count -= uint(e & bitsMask)
			e = lits[bb&(1<<literalBits-1)]
			if int32(e) < 0 {
				dst[out] = byte(e >> valueShift)
				out++
				bb >>= e & bitsMask
				count -= uint(e & bitsMask)
				e = lits[bb&(1<<literalBits-1)]
				if int32(e) < 0 {
					dst[out] = byte(e >> valueShift)
					out++
					bb >>= e & bitsMask
					count -= uint(e & bitsMask)
					continue
				}
			}
			bb |= binary.LittleEndian.Uint64(src[in:]) << (count & 63)
			in += int((63 - count) >> 3)
			count |= 56
		}
		// From here at most 11+4+5 bits for the length, 8+7+13 for the distance.
		if e&isSpecial != 0 {
			if e&isPointer != 0 {
				bb >>= e & bitsMask
				count -= uint(e & bitsMask)
				e = lits[uint64(e>>valueShift)+bb&(1<<(e>>codeShift&15)-1)]
				if int32(e) < 0 {
					dst[out] = byte(e >> valueShift)
					out++
					bb >>= e & bitsMask
					count -= uint(e & bitsMask)
					continue
				}
			}
			if e&isSpecial != 0 {
				if e&isEnd == 0 {
					return false, ErrCorrupt
				}
				bb >>= e & bitsMask
				count -= uint(e & bitsMask)
				done = true
				break
			}
		}
		code := e >> codeShift & 15
		length := int(e>>valueShift) + int(bb&(1<<(e&bitsMask)-1)>>code)
		bb >>= e & bitsMask
		count -= uint(e & bitsMask)

		e = dists[bb&(1<<distanceBits-1)]
		if e&isSpecial != 0 {
			if e&isPointer == 0 {
				return false, ErrCorrupt
			}
			bb >>= e & bitsMask
			count -= uint(e & bitsMask)
			e = dists[uint64(e>>valueShift)+bb&(1<<(e>>codeShift&15)-1)]
			if e&isSpecial != 0 {
				return false, ErrCorrupt
			}
		}
		code = e >> codeShift & 15
		distance := int(e>>valueShift) + int(bb&(1<<(e&bitsMask)-1)>>code)
		bb >>= e & bitsMask
		count -= uint(e & bitsMask)

		if distance > out {
			return false, ErrCorrupt
		}
		from, end := out-distance, out+length
		switch {
		case distance >= 8:
			// Whole words; the last may reach behind the match, where the
			// next symbols will be written.
			s, t := dst[from:], dst[out:]
			binary.LittleEndian.PutUint64(t, binary.LittleEndian.Uint64(s))
			binary.LittleEndian.PutUint64(t[8:], binary.LittleEndian.Uint64(s[8:]))
			for i := 16; i < length; i += 8 {
				binary.LittleEndian.PutUint64(t[i:], binary.LittleEndian.Uint64(s[i:]))
			}
		case distance == 1:
			v := uint64(dst[from]) * 0x0101010101010101
			for i := out; i < end; i += 8 {
				binary.LittleEndian.PutUint64(dst[i:], v)
			}
		default:
			// Each word holds distance bytes that are right already.
			for i := out; i < end; i += distance {
				binary.LittleEndian.PutUint64(dst[i:], binary.LittleEndian.Uint64(dst[i-distance:]))
			}
		}
		out = end
	}
	if out > d.size { // into the slack
		return false, ErrSize
	}
	d.in, d.out, d.count = in, out, count
	d.bits = bb & (1<<count - 1)
	return done, nil
}
