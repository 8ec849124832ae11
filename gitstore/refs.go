package gitstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Ref is a name and the object it leads to.
type Ref struct {
	Name string
	OID  OID
}

// symbolicDepth is how many symbolic refs in a row Git follows
// (SYMREF_MAXDEPTH in refs.c).
const symbolicDepth = 5

// Ref returns the object a ref leads to; symbolic refs (HEAD) are followed.
// Names are full: "HEAD", "refs/heads/main". The answer is read from disk each
// time, so it is what the repository says now, whoever wrote it.
//
// Errors: ErrRefNotFound, also for a symbolic ref to a branch that has no
// commit yet; ErrCorrupt for a file that is no ref.
func (s *Store) Ref(name string) (OID, error) {
	at := name
	for range symbolicDepth + 1 {
		v, err := s.readRef(at)
		if err != nil {
			return ZeroOID, fmt.Errorf("ref %s: %w", name, err)
		}
		if v.target == "" {
			return v.oid, nil
		}
		at = v.target
	}
	return ZeroOID, fmt.Errorf("ref %s: more than %d symbolic refs in a row: %w", name, symbolicDepth, ErrCorrupt)
}

// refValue is what a ref holds: an object's id, or another ref's name.
type refValue struct {
	oid    OID
	target string
}

// readRef reads one ref without following it, ErrRefNotFound if there is none.
// A ref's own file wins over packed-refs and is looked at first: `git
// pack-refs` writes packed-refs before it removes the file, so one of the two
// always has the value.
func (s *Store) readRef(name string) (refValue, error) {
	if err := checkRefName(name); err != nil {
		return refValue{}, err
	}
	v, err := readLooseRef(s.refPath(name))
	if !errors.Is(err, ErrRefNotFound) || isWorktreeRef(name) {
		return v, err
	}
	packed, err := s.packed.read(s.commonDir)
	if err != nil {
		return refValue{}, err
	}
	oid, ok := packedRef(packed, name)
	if !ok {
		return refValue{}, ErrRefNotFound
	}
	return refValue{oid: oid}, nil
}

// readLooseRef reads a ref's file: "<40 digits>\n", or "ref: <name>\n"
// (gitrepository-layout(5)). FETCH_HEAD has more after the id.
func readLooseRef(path string) (refValue, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || isNotDirectory(err) || isDir(path) {
			err = ErrRefNotFound
		}
		return refValue{}, err
	}
	text := strings.TrimRight(string(data), " \t\r\n")
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		return refValue{target: strings.TrimLeft(target, " \t")}, nil
	}
	id, _, _ := strings.Cut(text, "\t")
	oid, err := ParseOID(id)
	if err != nil {
		return refValue{}, fmt.Errorf("%s: %w", path, ErrCorrupt)
	}
	return refValue{oid: oid}, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Refs returns the refs whose names begin with prefix, itself beginning with
// "refs/", sorted by name. Symbolic refs are followed and left out if they
// lead nowhere. A ref whose file is damaged is there with a zero OID, so that
// one does not hide the others. Refs that belong to a single work tree
// (refs/bisect/, refs/worktree/, refs/rewritten/) are left out.
func (s *Store) Refs(prefix string) ([]Ref, error) {
	if !strings.HasPrefix(prefix, "refs/") || strings.Contains(prefix, "..") {
		return nil, fmt.Errorf("refs of %q: %w", prefix, errBadRefName)
	}
	names, err := s.looseRefs(prefix)
	if err != nil {
		return nil, fmt.Errorf("refs of %s: %w", prefix, err)
	}
	// After the files, so that a ref packed meanwhile is found here.
	packed, err := s.packed.read(s.commonDir)
	if err != nil {
		return nil, err
	}
	var refs []Ref
	inFiles := make(map[string]bool, len(names))
	for _, name := range names {
		oid, err := s.Ref(name)
		if errors.Is(err, ErrRefNotFound) {
			continue
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		inFiles[name] = true
		refs = append(refs, Ref{name, oid})
	}
	for _, r := range refsUnder(packed, prefix) {
		if !inFiles[r.Name] {
			refs = append(refs, r)
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs, nil
}

// looseRefs lists the names of the refs that are files.
func (s *Store) looseRefs(prefix string) ([]string, error) {
	var names []string
	var list func(dir string) error // dir: "refs/" or below, ends in "/"
	list = func(dir string) error {
		entries, err := os.ReadDir(filepath.Join(s.commonDir, filepath.FromSlash(dir)))
		if errors.Is(err, fs.ErrNotExist) || isNotDirectory(err) {
			return nil // never there, or its last ref was deleted or packed
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := dir + e.Name()
			if e.IsDir() {
				if within := name + "/"; strings.HasPrefix(within, prefix) || strings.HasPrefix(prefix, within) {
					if err := list(within); err != nil {
						return err
					}
				}
			} else if strings.HasPrefix(name, prefix) && validRefName(name) && !isWorktreeRef(name) {
				names = append(names, name)
			}
		}
		return nil
	}
	return names, list(prefix[:strings.LastIndexByte(prefix, '/')+1])
}
