package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/relofs/relofs/gitstore/inflate"
)

// A loose object is the file <objects>/xx/yyyy… named by its id: a zlib stream
// of "<type> <size in decimal>", NUL and the content (gitformat-loose(5)).

// looseHead is more than type and size can take.
const looseHead = 32

func loosePath(dir string, oid OID) string {
	hex := oid.String()
	return filepath.Join(dir, hex[:2], hex[2:])
}

// looseHeader reads type and size; fs.ErrNotExist if dir has no such object.
func looseHeader(dir string, oid OID) (kind Kind, size int64, err error) {
	path := loosePath(dir, oid)
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	// Far more than a block's code tables and looseHead bytes take.
	var start [2048]byte
	n, err := io.ReadFull(f, start[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return 0, 0, fmt.Errorf("read %s: %w", path, err)
	}
	kind, size, _, err = parseLooseStart(start[:n])
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return kind, size, nil
}

// parseLooseStart parses type and size from the beginning of the file; n is
// how many bytes of the decompressed stream they take.
func parseLooseStart(file []byte) (kind Kind, size int64, n int, err error) {
	var head [looseHead]byte
	got, err := inflate.Prefix(head[:], file)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("loose object: %w: %w", err, ErrCorrupt)
	}
	word, rest, ok := bytes.Cut(head[:got], []byte{' '})
	digits, _, ended := bytes.Cut(rest, []byte{0})
	if !ok || !ended {
		return 0, 0, 0, fmt.Errorf("loose object: bad header: %w", ErrCorrupt)
	}
	for k := KindCommit; k <= KindTag; k++ {
		if string(word) == k.String() {
			kind = k
		}
	}
	size, err = strconv.ParseInt(string(digits), 10, 64)
	if kind == 0 || err != nil || size < 0 || digits[0] < '0' || digits[0] > '9' || len(digits) > 1 && digits[0] == '0' {
		return 0, 0, 0, fmt.Errorf("loose object: bad header: %w", ErrCorrupt)
	}
	return kind, size, len(word) + 1 + len(digits) + 1, nil
}

// appendLoose appends a loose object's content to buf; fs.ErrNotExist if dir
// has no such object.
func appendLoose(buf []byte, dir string, oid OID) (Kind, []byte, error) {
	path := loosePath(dir, oid)
	info, err := os.Stat(path)
	if err != nil {
		return 0, buf, err
	}
	if info.Size() > maxInMemory {
		return 0, buf, fmt.Errorf("%s: %w", path, ErrTooLarge)
	}
	file, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, buf, err
	}
	if err != nil {
		return 0, buf, fmt.Errorf("read %s: %w", path, err)
	}
	kind, size, head, err := parseLooseStart(file)
	if err != nil {
		return 0, buf, fmt.Errorf("%s: %w", path, err)
	}
	if size > maxInMemory {
		return 0, buf, fmt.Errorf("%s: %w", path, ErrTooLarge)
	}
	if size/maxExpansion > int64(len(file)) {
		return 0, buf, fmt.Errorf("%s: stated size is more than the file can hold: %w", path, ErrCorrupt)
	}
	whole := int(size) + head
	before := len(buf)
	buf = grow(buf, whole)
	dst := buf[before:cap(buf)]
	n, err := inflate.Zlib(dst, whole, file, true)
	if err != nil {
		return 0, buf, fmt.Errorf("%s: %w: %w", path, err, ErrCorrupt)
	}
	if n != len(file) {
		return 0, buf, fmt.Errorf("%s: garbage behind the object: %w", path, ErrCorrupt)
	}
	copy(dst, dst[head:whole])
	return kind, buf[:before+int(size)], nil
}
