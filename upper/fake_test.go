package upper_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relofs/relofs/gitstore"
)

// memory is an object store that holds what a test puts in it, so that any tree
// can stand below a View, also one no store would serve.
type memory struct {
	trees map[gitstore.OID][]gitstore.TreeEntry
	blobs map[gitstore.OID][]byte
}

func newMemory() *memory {
	return &memory{trees: map[gitstore.OID][]gitstore.TreeEntry{}, blobs: map[gitstore.OID][]byte{}}
}

func (m *memory) Tree(oid gitstore.OID) ([]gitstore.TreeEntry, error) {
	t, ok := m.trees[oid]
	if !ok {
		return nil, fmt.Errorf("%s: %w", oid, gitstore.ErrNotFound)
	}
	return t, nil
}

func (m *memory) Header(oid gitstore.OID) (gitstore.Kind, int64, error) {
	b, ok := m.blobs[oid]
	if !ok {
		return 0, 0, fmt.Errorf("%s: %w", oid, gitstore.ErrNotFound)
	}
	return gitstore.KindBlob, int64(len(b)), nil
}

func (m *memory) OpenBlob(oid gitstore.OID, _ string) (io.ReadCloser, int64, error) {
	_, size, err := m.Header(oid)
	return io.NopCloser(bytes.NewReader(m.blobs[oid])), size, err
}

// blob and put give out ids by number: what an id is does not matter here.
func (m *memory) nextID() (oid gitstore.OID) {
	binary.BigEndian.PutUint64(oid[:], uint64(len(m.trees)+len(m.blobs)+1))
	return oid
}

func (m *memory) blob(content string) gitstore.OID {
	oid := m.nextID()
	m.blobs[oid] = []byte(content)
	return oid
}

// files describes a tree: by path, "link:" and a target, "gitlink", or the
// content of a file, which is executable if its content starts with "#!".
type files map[string]string

// tree stores f and returns the id of its root.
func (m *memory) tree(f files) gitstore.OID {
	var entries []gitstore.TreeEntry
	below := map[string]files{}
	for path, what := range f {
		name, rest, deeper := strings.Cut(path, "/")
		if deeper {
			if below[name] == nil {
				below[name] = files{}
			}
			below[name][rest] = what
			continue
		}
		e := gitstore.TreeEntry{Name: name, Mode: gitstore.ModeFile}
		target, isLink := strings.CutPrefix(what, "link:")
		switch {
		case what == "gitlink":
			e.Mode, e.OID = gitstore.ModeGitlink, m.nextID()
		case isLink:
			e.Mode, e.OID = gitstore.ModeSymlink, m.blob(target)
		default:
			if strings.HasPrefix(what, "#!") {
				e.Mode = gitstore.ModeExec
			}
			e.OID = m.blob(what)
		}
		entries = append(entries, e)
	}
	for name, f := range below {
		entries = append(entries, gitstore.TreeEntry{Name: name, Mode: gitstore.ModeTree, OID: m.tree(f)})
	}
	slices.SortFunc(entries, func(a, b gitstore.TreeEntry) int { return strings.Compare(a.Name, b.Name) })
	oid := m.nextID()
	m.trees[oid] = entries
	return oid
}

// checkout writes f into dir, as a checkout of its tree would.
func (f files) checkout(t testing.TB, dir string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(f)) {
		what, at := f[path], filepath.Join(dir, path)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		target, isLink := strings.CutPrefix(what, "link:")
		switch {
		case what == "gitlink":
			must(t, os.Mkdir(at, 0o755))
		case isLink:
			must(t, os.Symlink(target, at))
		case strings.HasPrefix(what, "#!"):
			must(t, os.WriteFile(at, []byte(what), 0o755))
		default:
			must(t, os.WriteFile(at, []byte(what), 0o644))
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
