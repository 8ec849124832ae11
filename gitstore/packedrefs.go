package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// packedRefs is the file packed-refs of the common directory: refs that have
// no file of their own, or had none when it was written. A line is
// "<id> <name>"; a line "^<id>" peels the tag above it; lines that begin with
// "#" describe the file (Git's refs/packed-backend.c). Git replaces the file
// whole, by a rename.
type packedRefs struct {
	mu   sync.Mutex // guards the following; a leaf
	info fs.FileInfo
	refs []Ref // sorted by name; never changed in place
}

// read returns the refs in the file as it is now, sorted by name. The answer
// is shared: callers do not change it.
func (p *packedRefs) read(commonDir string) ([]Ref, error) {
	path := filepath.Join(commonDir, "packed-refs")
	p.mu.Lock()
	defer p.mu.Unlock()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		p.info, p.refs = nil, nil
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("packed refs: %w", err)
	}
	if p.info != nil && os.SameFile(info, p.info) && info.Size() == p.info.Size() && info.ModTime().Equal(p.info.ModTime()) {
		return p.refs, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		p.info, p.refs = nil, nil
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("packed refs: %w", err)
	}
	defer f.Close()
	info, err = f.Stat()
	var data []byte
	if err == nil {
		data, err = io.ReadAll(f)
	}
	var refs []Ref
	if err == nil {
		refs, err = parsePackedRefs(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.info, p.refs = info, refs
	return refs, nil
}

func parsePackedRefs(data []byte) ([]Ref, error) {
	var refs []Ref
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		if len(line) == 0 || line[0] == '#' || line[0] == '^' {
			continue
		}
		id, name, ok := strings.Cut(string(line), " ")
		oid, err := ParseOID(id)
		if !ok || err != nil {
			return nil, fmt.Errorf("line %q is not a ref: %w", line, ErrCorrupt)
		}
		refs = append(refs, Ref{name, oid})
	}
	byName := func(a, b Ref) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(refs, byName) {
		slices.SortStableFunc(refs, byName)
	}
	return refs, nil
}

// packedRef looks a name up in sorted refs.
func packedRef(refs []Ref, name string) (OID, bool) {
	i, ok := searchRefs(refs, name)
	if !ok {
		return ZeroOID, false
	}
	return refs[i].OID, true
}

// refsUnder returns the part of sorted refs whose names begin with prefix.
func refsUnder(refs []Ref, prefix string) []Ref {
	i, _ := searchRefs(refs, prefix)
	n := i
	for n < len(refs) && strings.HasPrefix(refs[n].Name, prefix) {
		n++
	}
	return refs[i:n]
}

func searchRefs(refs []Ref, name string) (int, bool) {
	return slices.BinarySearchFunc(refs, name, func(r Ref, name string) int { return strings.Compare(r.Name, name) })
}
