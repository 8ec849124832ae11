package gitstore

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"testing"
)

// The parsers of pack files, fuzzed without files around them.

func FuzzPackIndex(f *testing.F) {
	f.Add(encodePackIndex([]indexEntry{{OID{1}, 1, 12}, {OID{1, 2}, 2, 1 << 40}, {OID{255}, 3, 99}}, [20]byte{}), []byte{1})
	f.Add(make([]byte, fanoutSize+indexTrailer), []byte{0})
	f.Fuzz(func(t *testing.T, data, id []byte) {
		ix, err := parsePackIndex(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		var oid OID
		copy(oid[:], id)
		if i, ok := ix.find(&oid); ok && !bytes.Equal(ix.id(i), oid[:]) {
			t.Fatal("found another")
		}
		for i := range ix.n {
			_, _ = ix.offset(i)
			_, _ = ix.crc(i)
			copy(oid[:], ix.id(i))
			_, _ = ix.find(&oid)
		}
		_ = ix.verify()
	})
}

// FuzzPackEntry reads at every offset of a pack whose entries are the input.
func FuzzPackEntry(f *testing.F) {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write([]byte("\x07\x07\x90\x07"))
	w.Close()
	f.Add(append([]byte{0x64, 0x01}, z.Bytes()...))
	f.Add(append(append([]byte{0x74}, make([]byte, 20)...), z.Bytes()...))
	f.Add(append([]byte{0x34}, z.Bytes()...))
	f.Fuzz(func(t *testing.T, entries []byte) {
		data := append(append(make([]byte, packHeader), entries...), make([]byte, packTrailer)...)
		ix, err := parsePackIndex(encodePackIndex([]indexEntry{{OID{}, 0, packHeader}}, [20]byte{}))
		if err != nil {
			t.Fatal(err)
		}
		p := &pack{data: data, index: ix}
		db := &objectDB{bases: newBaseCache()}
		for at := range len(data) {
			_, _, err := p.header(uint64(at))
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
		_, _, err = db.appendPacked(nil, place{set: &packSet{}, pack: p})
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
	})
}

// FuzzDelta: a delta that passes has made exactly what it states, in memory
// and streamed alike.
func FuzzDelta(f *testing.F) {
	f.Add([]byte("base"), []byte("\x04\x06\x90\x04\x02xy"))
	f.Add([]byte("base"), []byte("\x04\x04\x91\x02\x02\x91\x00\x02"))
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		baseSize, size, n, err := deltaHeader(delta)
		if err != nil || baseSize != int64(len(base)) || size > 1<<20 {
			return
		}
		dst := make([]byte, size)
		err = applyDelta(dst, base, delta[n:])
		if err != nil && !errors.Is(err, errDelta) {
			t.Fatal(err)
		}
		file, fileErr := temporaryFile(t.TempDir(), func(w *bufio.Writer) error { _, err := w.Write(base); return err })
		if fileErr != nil {
			t.Fatal(fileErr)
		}
		defer file.Close()
		var streamed bytes.Buffer
		streamErr := streamDelta(&streamed, file, bytes.NewReader(delta))
		if (err == nil) != (streamErr == nil) || err == nil && !bytes.Equal(streamed.Bytes(), dst) {
			t.Fatalf("in memory %v, streamed %v", err, streamErr)
		}
	})
}

func FuzzLooseHeader(f *testing.F) {
	f.Add([]byte("blob 12\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		_, _ = w.Write(text)
		w.Close()
		kind, size, n, err := parseLooseStart(z.Bytes())
		if err == nil && (kind == 0 || size < 0 || n > len(text) || text[n-1] != 0) {
			t.Fatal(kind, size, n)
		}
		_, _, _, _ = parseLooseStart(text)
	})
}

func FuzzCommit(f *testing.F) {
	f.Add([]byte("tree 0123456789012345678901234567890123456789\nauthor a <b> 1 +0100\n\nx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := parseCommit(data); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func FuzzAlternatesQuoting(f *testing.F) {
	f.Add(`"a\tb\303\244\"c"`)
	f.Fuzz(func(t *testing.T, s string) { _, _ = unquote(s) })
}
