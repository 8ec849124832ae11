package inflate

import (
	"math/bits"
	"sync"
)

// Entry layout, see the package comment.
const (
	bitsMask   = 63
	codeShift  = 8
	valueShift = 16
	isEnd      = 1 << 13
	isPointer  = 1 << 14
	isSpecial  = 1 << 15
	isLiteral  = 1 << 31
)

// Sizes. A table has 2^bits entries and its subtables; the most entries any
// complete code can need are what zlib's examples/enough.c computes for these
// symbol counts, index bits and 15-bit codes.
const (
	literalBits     = 11
	literalEntries  = 2342 // enough 288 11 15
	distanceBits    = 8
	distanceEntries = 402 // enough 32 8 15

	maxLiterals  = 288
	maxDistances = 32
	maxCodeBits  = 15
)

// symbols are the entries of an alphabet, without the code's bits.
var (
	literalSymbols  [maxLiterals]uint32
	distanceSymbols [maxDistances]uint32
	lengthSymbols   [19]uint32
)

// The order in which code length codes are stored (RFC 1951, 3.2.7).
var lengthOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

func init() {
	for i := range 256 {
		literalSymbols[i] = isLiteral | uint32(i)<<valueShift
	}
	literalSymbols[256] = isSpecial | isEnd
	// Lengths: 257–264 stand for 3–10; then four codes for each number of
	// extra bits; 285 is 258 alone; 286 and 287 do not exist (RFC 1951, 3.2.5).
	base := uint32(3)
	for i := 257; i < 285; i++ {
		extra := uint32(max(0, (i-261)/4))
		literalSymbols[i] = base<<valueShift | extra
		base += 1 << extra
	}
	literalSymbols[285] = 258 << valueShift
	literalSymbols[286], literalSymbols[287] = isSpecial, isSpecial
	base = 1
	for i := range 30 {
		extra := uint32(max(0, i/2-1))
		distanceSymbols[i] = base<<valueShift | extra
		base += 1 << extra
	}
	distanceSymbols[30], distanceSymbols[31] = isSpecial, isSpecial
	for i := range lengthSymbols {
		lengthSymbols[i] = uint32(i) << valueShift
	}
}

type tablePair struct {
	literals  [literalEntries]uint32
	distances [distanceEntries]uint32
}

// fixedTables are those of blocks with the code every decoder knows
// (RFC 1951, 3.2.6).
var fixedTables = sync.OnceValue(func() *tablePair {
	var lengths [maxLiterals]uint8
	for i := range lengths {
		switch {
		case i < 144:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		case i < 280:
			lengths[i] = 7
		default:
			lengths[i] = 8
		}
	}
	var t tablePair
	var d decoder
	ok := d.build(t.literals[:], literalBits, literalSymbols[:], lengths[:])
	for i := range maxDistances {
		lengths[i] = 5
	}
	ok = ok && d.build(t.distances[:], distanceBits, distanceSymbols[:], lengths[:maxDistances])
	if !ok {
		panic("inflate: fixed code is not complete")
	}
	return &t
})

// readTables reads the codes at the head of a block (RFC 1951, 3.2.7).
func (d *decoder) readTables() error {
	head, err := d.take(14)
	if err != nil {
		return err
	}
	literals := int(head&31) + 257
	distances := int(head>>5&31) + 1
	stored := int(head>>10) + 4
	if literals > 286 || distances > 30 {
		return ErrCorrupt
	}
	var small [19]uint8
	for _, symbol := range lengthOrder[:stored] {
		n, err := d.take(3)
		if err != nil {
			return err
		}
		small[symbol] = uint8(n)
	}
	// The code of code lengths has at most 7 bits; its table lies where the
	// distances' will.
	const smallBits = 7
	table := d.ownDistances[:1<<smallBits]
	if !d.build(table, smallBits, lengthSymbols[:], small[:]) {
		return ErrCorrupt
	}
	lengths := d.lengths[:literals+distances]
	for i := 0; i < len(lengths); {
		if d.count < smallBits+7 {
			d.refill()
		}
		e := table[d.bits&(1<<smallBits-1)]
		if e&isSpecial != 0 {
			return d.invalid()
		}
		if err := d.drop(e); err != nil {
			return err
		}
		symbol := uint8(e >> valueShift)
		if symbol < 16 {
			lengths[i] = symbol
			i++
			continue
		}
		var repeated uint8
		var more, extra uint
		switch symbol {
		case 16:
			if i == 0 {
				return ErrCorrupt
			}
			repeated, more, extra = lengths[i-1], 3, 2
		case 17:
			more, extra = 3, 3
		default:
			more, extra = 11, 7
		}
		n, err := d.take(extra)
		if err != nil {
			return err
		}
		end := i + int(more+n)
		if end > len(lengths) {
			return ErrCorrupt
		}
		for ; i < end; i++ {
			lengths[i] = repeated
		}
	}
	if lengths[256] == 0 { // a block could never end
		return ErrCorrupt
	}
	if !d.build(d.ownLiterals[:], literalBits, literalSymbols[:], lengths[:literals]) ||
		!d.build(d.ownDistances[:], distanceBits, distanceSymbols[:], lengths[literals:]) {
		return ErrCorrupt
	}
	d.literals, d.distances = &d.ownLiterals, &d.ownDistances
	return nil
}

// build fills a table with index bits for the canonical code that has the given
// code lengths. It reports false for lengths that are no code: more codes than
// there is room for, or less, except that, as in zlib, a single code of one bit
// or no code at all are accepted.
func (d *decoder) build(table []uint32, indexBits uint, symbols []uint32, lengths []uint8) bool {
	var counts [maxCodeBits + 1]int
	for _, n := range lengths {
		counts[n]++
	}
	longest := uint(maxCodeBits)
	for longest > 0 && counts[longest] == 0 {
		longest--
	}
	room := 1
	for n := 1; n <= maxCodeBits; n++ {
		room = room<<1 - counts[n]
		if room < 0 {
			return false
		}
	}
	if room > 0 {
		if longest > 1 {
			return false
		}
		for i := range table[:1<<indexBits] {
			table[i] = isSpecial
		}
		if longest == 1 {
			for symbol, n := range lengths {
				if n == 1 {
					for i := 0; i < 1<<indexBits; i += 2 {
						table[i] = symbols[symbol] + 1<<codeShift + 1
					}
				}
			}
		}
		return true
	}

	// Symbols in the order of their codes: by length, then by number.
	var next [maxCodeBits + 2]int
	for n := 1; n <= maxCodeBits; n++ {
		next[n+1] = next[n] + counts[n]
	}
	sorted := d.sorted[:]
	for symbol, n := range lengths {
		if n != 0 {
			sorted[next[n]] = uint16(symbol)
			next[n]++
		}
	}

	// Codes are stored with their first bit lowest, so the table is indexed by
	// reversed codes. While the codes are shorter than the index the table is
	// kept at 2^length entries and doubled for each further bit; a code's
	// entry thus comes to stand wherever its low bits are that code.
	code, at := uint(0), 0
	for n := uint(1); n <= min(longest, indexBits); n++ {
		for range counts[n] {
			table[code] = symbols[sorted[at]] + uint32(n)<<codeShift + uint32(n)
			at++
			code = following(code, n)
		}
		if n < indexBits {
			copy(table[1<<n:2<<n], table[:1<<n])
		}
	}
	// A code that is complete early leaves the doubling to do.
	for n := longest + 1; n < indexBits; n++ {
		copy(table[1<<n:2<<n], table[:1<<n])
	}

	// Longer codes: one subtable for each run with the same first index bits.
	prefix, start, free, subBits := ^uint(0), 0, 1<<indexBits, uint(0)
	for n := indexBits + 1; n <= longest; n++ {
		for left := counts[n]; left > 0; left-- {
			if p := code & (1<<indexBits - 1); p != prefix {
				prefix, start = p, free
				// As many bits as the codes with this prefix need: it is
				// full when the codes from here on fill 2^subBits places.
				subBits = n - indexBits
				for used := left; used < 1<<subBits && subBits+indexBits < longest; {
					subBits++
					used = used<<1 + counts[indexBits+subBits]
				}
				free += 1 << subBits
				if free > len(table) {
					return false
				}
				table[prefix] = isSpecial | isPointer | uint32(start)<<valueShift | uint32(subBits)<<codeShift | uint32(indexBits)
			}
			own := n - indexBits // the bits of the code that index the subtable
			e := symbols[sorted[at]] + uint32(own)<<codeShift + uint32(own)
			for i := code >> indexBits; i < 1<<subBits; i += 1 << own {
				table[start+int(i)] = e
			}
			at++
			code = following(code, n)
		}
	}
	return true
}

// following is the next canonical code of n bits, both reversed: the highest
// bit that is 0 becomes 1, those above it 0. Behind the last code comes 0.
func following(code, n uint) uint {
	zeros := code ^ (1<<n - 1)
	if zeros == 0 {
		return 0
	}
	bit := uint(1) << (bits.Len(zeros) - 1)
	return code&(bit-1) | bit
}
