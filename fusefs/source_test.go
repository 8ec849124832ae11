package fusefs_test

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"path"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/relofs/relofs/gitstore"
)

// memory is a Source that holds its objects in memory, can damage them, and
// counts how often it is asked. Ids are made up: nothing checks them.
type memory struct {
	dir string // CommonDir

	mu     sync.Mutex // guards the maps
	blobs  map[gitstore.OID][]byte
	trees  map[gitstore.OID][]gitstore.TreeEntry
	broken map[gitstore.OID]damage
	huge   map[gitstore.OID]int64 // blobs of that many zeros, not held

	headers, decodes, streams, treeReads atomic.Int64
	beforeDecode                         func() // called by AppendBlob
}

// damage is how an object is broken.
type damage int

const (
	badContent damage = iota + 1 // the header can be read
	badHeader
	isTree // the object is of another type
)

func newMemory(dir string) *memory {
	return &memory{
		dir:    dir,
		blobs:  make(map[gitstore.OID][]byte),
		trees:  make(map[gitstore.OID][]gitstore.TreeEntry),
		broken: make(map[gitstore.OID]damage),
		huge:   make(map[gitstore.OID]int64),
	}
}

func (m *memory) CommonDir() string { return m.dir }

func (m *memory) damage(oid gitstore.OID, d damage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken[oid] = d
}

func (m *memory) get(oid gitstore.OID, op damage) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.broken[oid]; d >= op {
		return nil, fmt.Errorf("object %s: %w", oid, gitstore.ErrCorrupt)
	}
	data, ok := m.blobs[oid]
	if !ok {
		return nil, gitstore.ErrNotFound
	}
	return data, nil
}

func (m *memory) Tree(oid gitstore.OID) ([]gitstore.TreeEntry, error) {
	m.treeReads.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken[oid] != 0 {
		return nil, fmt.Errorf("tree %s: %w", oid, gitstore.ErrCorrupt)
	}
	entries, ok := m.trees[oid]
	if !ok {
		return nil, gitstore.ErrNotFound
	}
	return entries, nil
}

func (m *memory) Header(oid gitstore.OID) (gitstore.Kind, int64, error) {
	m.headers.Add(1)
	m.mu.Lock()
	d, size := m.broken[oid], m.huge[oid]
	m.mu.Unlock()
	if size > 0 {
		return gitstore.KindBlob, size, nil
	}
	if d == isTree {
		return gitstore.KindTree, 20, nil
	}
	data, err := m.get(oid, badHeader)
	return gitstore.KindBlob, int64(len(data)), err
}

func (m *memory) AppendBlob(buf []byte, oid gitstore.OID) ([]byte, error) {
	m.decodes.Add(1)
	if m.beforeDecode != nil {
		m.beforeDecode()
	}
	data, err := m.get(oid, badContent)
	return append(buf, data...), err
}

func (m *memory) OpenBlob(oid gitstore.OID, _ string) (io.ReadCloser, int64, error) {
	m.streams.Add(1)
	m.mu.Lock()
	size := m.huge[oid]
	m.mu.Unlock()
	if size > 0 {
		return io.NopCloser(io.LimitReader(zeros{}, size)), size, nil
	}
	data, err := m.get(oid, badHeader)
	if err != nil {
		return nil, 0, err
	}
	r := io.Reader(bytes.NewReader(data))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken[oid] == badContent {
		r = io.LimitReader(r, int64(len(data)/2))
	}
	return io.NopCloser(r), int64(len(data)), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// file is one path of a tree made by addTree.
type file struct {
	path    string
	content string
	mode    gitstore.Mode // ModeFile if 0
}

func oidOf(kind, s string) gitstore.OID {
	return gitstore.OID(sha1.Sum([]byte(kind + "\x00" + s)))
}

func (m *memory) addBlob(content string) gitstore.OID {
	oid := oidOf("blob", content)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[oid] = []byte(content)
	return oid
}

// addTree stores files and returns the id of their root tree.
func (m *memory) addTree(files ...file) gitstore.OID {
	return m.addTreeAt("", files)
}

func (m *memory) addTreeAt(dir string, files []file) gitstore.OID {
	var entries []gitstore.TreeEntry
	below := make(map[string][]file)
	for _, f := range files {
		name, rest, deeper := strings.Cut(f.path, "/")
		if deeper {
			f.path = rest
			below[name] = append(below[name], f)
			continue
		}
		if f.mode == 0 {
			f.mode = gitstore.ModeFile
		}
		e := gitstore.TreeEntry{Name: name, Mode: f.mode}
		if f.mode == gitstore.ModeGitlink {
			e.OID = oidOf("commit", f.content)
		} else {
			e.OID = m.addBlob(f.content)
		}
		entries = append(entries, e)
	}
	for name, files := range below {
		entries = append(entries, gitstore.TreeEntry{Name: name, Mode: gitstore.ModeTree, OID: m.addTreeAt(path.Join(dir, name), files)})
	}
	gitName := func(e gitstore.TreeEntry) string {
		if e.Mode == gitstore.ModeTree {
			return e.Name + "/"
		}
		return e.Name
	}
	sort.Slice(entries, func(i, j int) bool { return gitName(entries[i]) < gitName(entries[j]) })
	return m.addRawTree(entries...)
}

// addRawTree stores a tree as it is given, whatever is in it.
func (m *memory) addRawTree(entries ...gitstore.TreeEntry) gitstore.OID {
	var text strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&text, "%o %s\x00%s", e.Mode, e.Name, e.OID)
	}
	oid := oidOf("tree", text.String())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trees[oid] = entries
	return oid
}
