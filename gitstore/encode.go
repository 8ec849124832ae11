package gitstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// encodeTree returns a tree object's content: for each entry its mode in
// octal, a space, the name, NUL and the 20 bytes of the id. The order is
// Git's: by bytes, a directory's name compared as if it ended in "/"
// (base_name_compare in Git's read-cache.c), so "a.b" stands before the
// directory "a". It sorts entries.
func encodeTree(entries []TreeEntry) ([]byte, error) {
	size := 0
	for _, e := range entries {
		if err := checkEntry(e); err != nil {
			return nil, err
		}
		size += len(e.Name) + 28
	}
	slices.SortFunc(entries, compareEntries)
	for i, e := range entries {
		// A file and a directory of one name are not always neighbours.
		twice := i > 0 && entries[i-1].Name == e.Name
		if e.Mode == ModeTree && !twice {
			_, twice = slices.BinarySearchFunc(entries, TreeEntry{Name: e.Name, Mode: ModeFile}, compareEntries)
		}
		if twice {
			return nil, fmt.Errorf("tree: %q is there twice: %w", e.Name, ErrHostileTree)
		}
	}
	out := make([]byte, 0, size)
	for _, e := range entries {
		out = strconv.AppendUint(out, uint64(e.Mode), 8)
		out = append(out, ' ')
		out = append(out, e.Name...)
		out = append(out, 0)
		out = append(out, e.OID[:]...)
	}
	return out, nil
}

func checkEntry(e TreeEntry) error {
	if why := unsafeName(e.Name); why != "" {
		return fmt.Errorf("tree: %q: %s: %w", e.Name, why, ErrHostileTree)
	}
	switch e.Mode {
	case ModeTree, ModeFile, ModeExec, ModeSymlink, ModeGitlink:
	default:
		return fmt.Errorf("tree: %q has mode %o: %w", e.Name, uint32(e.Mode), ErrHostileTree)
	}
	if e.OID.IsZero() {
		return fmt.Errorf("tree: %q has no object: %w", e.Name, ErrNotFound)
	}
	return nil
}

func compareEntries(a, b TreeEntry) int {
	n := min(len(a.Name), len(b.Name))
	if c := strings.Compare(a.Name[:n], b.Name[:n]); c != 0 {
		return c
	}
	return int(byteAfter(a, n)) - int(byteAfter(b, n))
}

// byteAfter is the byte at n of an entry's name as trees are sorted.
func byteAfter(e TreeEntry, n int) byte {
	switch {
	case n < len(e.Name):
		return e.Name[n]
	case e.Mode == ModeTree:
		return '/'
	}
	return 0
}

// encodeCommit returns a commit object's content (Git's
// Documentation/user-manual, "Commit Object"; what fsck accepts is in fsck.c).
func encodeCommit(c *Commit) ([]byte, error) {
	if c.Tree.IsZero() {
		return nil, fmt.Errorf("commit: no tree: %w", ErrNotFound)
	}
	if strings.ContainsRune(c.Message, 0) {
		return nil, fmt.Errorf("commit: the message has a NUL byte, which Git does not allow")
	}
	out := make([]byte, 0, 256+len(c.Message)+48*len(c.Parents))
	out = fmt.Appendf(out, "tree %s\n", c.Tree)
	for _, p := range c.Parents {
		out = fmt.Appendf(out, "parent %s\n", p)
	}
	out = appendSignature(out, "author", c.Author)
	out = appendSignature(out, "committer", c.Committer)
	out = append(out, '\n')
	return append(out, c.Message...), nil
}

func appendSignature(b []byte, role string, s Signature) []byte {
	_, zone := s.When.Zone()
	sign := '+'
	if zone < 0 {
		sign, zone = '-', -zone
	}
	minutes := zone / int(time.Minute/time.Second)
	return fmt.Appendf(b, "%s %s <%s> %d %c%02d%02d\n", role, identity(s.Name), identity(s.Email),
		max(s.When.Unix(), 0), sign, minutes/60, minutes%60)
}

// identity makes a name or an address what Git would: without the bytes that
// delimit it in a commit, and without punctuation at its ends
// (strbuf_addstr_without_crud in ident.c).
func identity(s string) string {
	s = strings.Map(func(r rune) rune {
		switch r {
		case '\n', '<', '>', 0:
			return -1
		}
		return r
	}, s)
	return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`.,:;"\'`, r) })
}
