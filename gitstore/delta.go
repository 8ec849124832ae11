package gitstore

import (
	"errors"
	"fmt"
)

// Deltas (gitformat-pack(5), "Deltified representation"): the size of the base
// and the size of the result, then instructions. A byte with the top bit set
// copies from the base: its low four bits say which bytes of an offset follow,
// the next three which bytes of a length, lowest first, length 0 standing for
// 65,536. Any other byte but 0 is a number of bytes to insert, which follow.

const maxVarint = 10

// maxCopy bounds what an instruction, and so a byte of a delta, can add.
const maxCopy = 1 << 24

var (
	errDelta     = errors.New("delta is damaged")
	errDeltaSize = fmt.Errorf("%w: stated size is more than it can make", errDelta)
)

// deltaHeader parses the two sizes; n is how many bytes they take.
func deltaHeader(delta []byte) (base, result int64, n int, err error) {
	base, n, ok := deltaSize(delta)
	if ok {
		var m int
		result, m, ok = deltaSize(delta[n:])
		n += m
	}
	if !ok {
		return 0, 0, 0, fmt.Errorf("%w: bad sizes", errDelta)
	}
	return base, result, n, nil
}

func deltaSize(in []byte) (v int64, n int, ok bool) {
	for shift := 0; n < len(in) && shift <= 56; shift += 7 {
		b := in[n]
		n++
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			return v, n, v >= 0
		}
	}
	return 0, 0, false
}

// applyDelta writes to dst, which has the length the delta states, what its
// instructions (those behind deltaHeader) make of base.
func applyDelta(dst, base, instructions []byte) error {
	in, out := instructions, dst
	for len(in) > 0 {
		op := in[0]
		in = in[1:]
		if op&0x80 == 0 {
			n := int(op)
			if n == 0 || n > len(in) || n > len(out) {
				return fmt.Errorf("%w: insertion of %d bytes", errDelta, n)
			}
			copy(out, in[:n])
			in, out = in[n:], out[n:]
			continue
		}
		offset, length, used, ok := copyInstruction(op, in)
		if !ok {
			return fmt.Errorf("%w: cut off", errDelta)
		}
		in = in[used:]
		if offset > len(base) || length > len(base)-offset || length > len(out) {
			return fmt.Errorf("%w: copy of %d bytes at %d", errDelta, length, offset)
		}
		copy(out, base[offset:offset+length])
		out = out[length:]
	}
	if len(out) != 0 {
		return fmt.Errorf("%w: result is %d bytes short", errDelta, len(out))
	}
	return nil
}

// copyInstruction parses the operands of a copy; used is how many bytes.
func copyInstruction(op byte, in []byte) (offset, length, used int, ok bool) {
	var operands [7]byte
	for i := range operands {
		if op&(1<<i) != 0 {
			if used == len(in) {
				return 0, 0, 0, false
			}
			operands[i] = in[used]
			used++
		}
	}
	offset = int(uint(operands[0]) | uint(operands[1])<<8 | uint(operands[2])<<16 | uint(operands[3])<<24)
	length = int(uint(operands[4]) | uint(operands[5])<<8 | uint(operands[6])<<16)
	if length == 0 {
		length = 1 << 16
	}
	return offset, length, used, true
}
