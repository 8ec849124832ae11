package gitstore

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Tree returns the entries of a tree object, in Git's order, after checking
// that a file system can show them safely (ParseTree).
//
// Errors: as for Read, and ErrHostileTree.
func (s *Store) Tree(oid OID) ([]TreeEntry, error) {
	data, err := s.Read(oid, KindTree)
	if err != nil {
		return nil, err
	}
	entries := make([]TreeEntry, 0, len(data)/36) // near the mean of source trees
	err = ParseTree(data, func(e TreeEntry) error {
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tree %s: %w", oid, err)
	}
	return entries, nil
}

// ParseTree calls fn with each entry of a tree object's content: its mode in
// octal, a space, the name, NUL and the 20 bytes of the id. It stops at fn's
// error and returns that.
//
// Trees come from outside. ErrHostileTree is returned for names that are empty,
// ".", ".." or contain "/", for ".git" and what some file system takes for it
// (IsReserved), for a name that is there twice or out of order, and for modes
// Git does not know; ErrCorrupt for what is no tree at all. 100664, which old
// versions of Git wrote, counts as 100644 (canon_mode in Git's cache.h). A
// top-level ".relo" is left to the caller, who knows where the tree stands.
func ParseTree(data []byte, fn func(TreeEntry) error) error {
	text := string(data) // names are parts of it
	var last TreeEntry
	// files are names that are a prefix of those that follow: where "a" is a
	// file, the tree "a", sorted as "a/", may come after others ("a.b").
	var files []string
	for first := true; len(text) > 0; first = false {
		e, rest, err := parseEntry(text)
		if err != nil {
			return err
		}
		text = rest
		if why := unsafeName(e.Name); why != "" {
			return fmt.Errorf("entry %q: %s: %w", e.Name, why, ErrHostileTree)
		}
		if !first && compareEntries(last, e) >= 0 {
			return fmt.Errorf("entry %q: twice or not in order: %w", e.Name, ErrHostileTree)
		}
		for len(files) > 0 && !strings.HasPrefix(e.Name, files[len(files)-1]) {
			files = files[:len(files)-1]
		}
		if e.Mode != ModeTree {
			files = append(files, e.Name)
		} else if len(files) > 0 && files[len(files)-1] == e.Name {
			return fmt.Errorf("entry %q: file and tree of one name: %w", e.Name, ErrHostileTree)
		}
		last = e
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

func parseEntry(text string) (e TreeEntry, rest string, err error) {
	mode, n := uint32(0), 0
	for n < len(text) && n < 8 && '0' <= text[n] && text[n] <= '7' {
		mode = mode<<3 | uint32(text[n]-'0')
		n++
	}
	if n == 0 || n == len(text) || text[n] != ' ' {
		return e, "", fmt.Errorf("tree has an entry without a mode: %w", ErrCorrupt)
	}
	text = text[n+1:]
	end := strings.IndexByte(text, 0)
	if end < 0 || len(text)-end-1 < len(e.OID) {
		return e, "", fmt.Errorf("tree is cut off: %w", ErrCorrupt)
	}
	e.Name = text[:end]
	copy(e.OID[:], text[end+1:])
	switch e.Mode = Mode(mode); e.Mode {
	case ModeTree, ModeFile, ModeExec, ModeSymlink, ModeGitlink:
	case 0o100664:
		e.Mode = ModeFile
	default:
		return e, "", fmt.Errorf("entry %q: mode %o: %w", e.Name, mode, ErrHostileTree)
	}
	return e, text[end+1+len(e.OID):], nil
}

// unsafeName says why a tree entry's name must not be shown, "" if it may.
func unsafeName(name string) string {
	switch {
	case name == "":
		return "empty name"
	case name == "." || name == "..":
		return "name of a directory itself or its parent"
	case strings.ContainsAny(name, "/\x00"):
		return "name with a separator"
	case isDotGit(name):
		return "taken for .git on some file system"
	}
	return ""
}

// IsReserved reports whether relofs refuses a name for reading, writing and
// capture: ".git" anywhere, in any letter case, and the names that NTFS and
// HFS+ take for it; and, if root says that it stands at the top of a tree,
// ".relo".
func IsReserved(name string, root bool) bool {
	return isDotGit(name) || root && name == ".relo"
}

// isDotGit follows is_ntfs_dotgit (path.c), is_hfs_dotgit (utf8.c) and the
// search behind backslashes in verify_path and fsck (read-cache.c, fsck.c).
func isDotGit(name string) bool {
	if len(name) < 4 { // for speed: nearly all names go through here
		return false
	}
	for part := name; ; {
		if ntfsDotGit(part) {
			return true
		}
		at := strings.IndexByte(part, '\\')
		if at < 0 {
			break
		}
		part = part[at+1:]
	}
	return hfsDotGit(name)
}

// ntfsDotGit: ".git" or its short name "git~1", behind which NTFS ignores
// spaces and dots, and ":" begins the name of a stream.
func ntfsDotGit(name string) bool {
	var rest string
	switch {
	case len(name) >= 4 && strings.EqualFold(name[:4], ".git"):
		rest = name[4:]
	case len(name) >= 5 && strings.EqualFold(name[:5], "git~1"):
		rest = name[5:]
	default:
		return false
	}
	rest = strings.TrimLeft(rest, ". ")
	return rest == "" || rest[0] == '\\' || rest[0] == ':'
}

// hfsDotGit: HFS+ ignores some code points in names.
func hfsDotGit(name string) bool {
	want := ".git"
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		name = name[n:]
		switch {
		case 0x200c <= r && r <= 0x200f, 0x202a <= r && r <= 0x202e,
			0x206a <= r && r <= 0x206f, r == 0xfeff:
			continue
		}
		if r >= utf8.RuneSelf || want == "" || lower(byte(r)) != want[0] {
			return false
		}
		want = want[1:]
	}
	return want == ""
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
