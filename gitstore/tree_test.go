package gitstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/relofs/relofs/gitstore"
)

// tree is the content of a tree object: each entry "<mode> <name>".
func tree(entries ...string) []byte {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e)
		b.WriteString("\x00aaaaaaaaaaaaaaaaaaaa")
	}
	return []byte(b.String())
}

func TestTreesThatMayBeShown(t *testing.T) {
	for _, entries := range [][]string{
		{},
		{"100644 a"},
		{"100644 ...", "100644 ..a", "100644 .g", "40000 .github", "100644 .gitignore", "100644 .gitmodules", "100644 .relo", "100644 gitx", "100644 git~2"},
		{"100644 .git-", "100644 .gita", "120000 git", "160000 git~10"},
		{"100755 a", "100644 a.b", "40000 ab", "40000 b", "100644 b0"},
		{"100644 a-", "40000 a", "100644 a0"}, // "a/" between the two
		{"040000 old", "100664 older"},
		{"100644 \xff\xfe", "100644 \xff\xff"}, // no UTF-8
	} {
		n := 0
		err := gitstore.ParseTree(tree(entries...), func(e gitstore.TreeEntry) error {
			if e.OID != (gitstore.OID([]byte("aaaaaaaaaaaaaaaaaaaa"))) || !strings.HasSuffix(entries[n], " "+e.Name) {
				return fmt.Errorf("entry %d is %v", n, e)
			}
			n++
			return nil
		})
		if err != nil || n != len(entries) {
			t.Errorf("%q: %d entries, %v", entries, n, err)
		}
	}
}

func TestHostileTreesAreRefused(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	for name, entries := range map[string][]string{
		"empty name":              {"100644 "},
		"itself":                  {"40000 ."},
		"parent":                  {"40000 .."},
		"path":                    {"100644 a/b"},
		"absolute path":           {"100644 /etc"},
		".git":                    {"40000 .git"},
		".git as a file":          {"100644 .git"},
		".git as a symlink":       {"120000 .git"},
		"letter case":             {"40000 .GiT"},
		"NTFS short name":         {"40000 GIT~1"},
		"NTFS trailing space":     {"40000 .git "},
		"NTFS trailing dots":      {"40000 .git. . ."},
		"NTFS stream":             {"40000 .git::$INDEX_ALLOCATION"},
		"NTFS short name, stream": {"40000 git~1:x"},
		"backslash before":        {"100644 a\\.git"},
		"backslash behind":        {"100644 .git\\config"},
		"two backslashes":         {"100644 a\\b\\git~1 \\c"},
		"HFS ignored code point":  {"40000 .g\u200cit"},
		"HFS at the end":          {"40000 .git\ufeff"},
		"HFS at the beginning":    {"40000 \u202a.GIT"},
		"HFS several":             {"40000 .\u206ag\u206fi\u200ft\u202e"},
		"twice":                   {"100644 a", "100644 a"},
		"file and tree":           {"100644 a", "40000 a"},
		"file and tree, apart":    {"100644 a", "100644 a.b", "100644 a.c", "40000 a"},
		"gitlink and tree, apart": {"160000 a", "100644 a-", "40000 a"},
		"not in order":            {"100644 b", "100644 a"},
		"tree ordered as a file":  {"40000 a", "100644 a.b"},
		"mode 0":                  {"0 a"},
		"mode of a device":        {"20666 a"},
		"mode of a socket":        {"140644 a"},
		"setuid":                  {"104755 a"},
		"private file":            {"100600 a"},
	} {
		err := gitstore.ParseTree(tree(entries...), func(gitstore.TreeEntry) error { return nil })
		if !errors.Is(err, gitstore.ErrHostileTree) {
			t.Errorf("%s: %v", name, err)
		}
		oid := parseOID(t, r.gitWith(string(tree(entries...)), "hash-object", "-t", "tree", "-w", "--literally", "--stdin"))
		if _, err := s.Tree(oid); !errors.Is(err, gitstore.ErrHostileTree) {
			t.Errorf("%s as an object: %v", name, err)
		}
	}
}

func TestWhatIsNoTreeIsCorrupt(t *testing.T) {
	good := string(tree("100644 a", "40000 b"))
	for n := 1; n < len(good); n++ {
		err := gitstore.ParseTree([]byte(good[:n]), func(gitstore.TreeEntry) error { return nil })
		if n != len(tree("100644 a")) && !errors.Is(err, gitstore.ErrCorrupt) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for _, text := range []string{"x", " a\x00aaaaaaaaaaaaaaaaaaaa", "9 a\x00aaaaaaaaaaaaaaaaaaaa", "777777777777 a\x00aaaaaaaaaaaaaaaaaaaa", "100644\x00aaaaaaaaaaaaaaaaaaaa"} {
		if err := gitstore.ParseTree([]byte(text), func(gitstore.TreeEntry) error { return nil }); !errors.Is(err, gitstore.ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestReservedNames(t *testing.T) {
	for name, want := range map[string][2]bool{ // at the root, below
		".git": {true, true}, ".GIT": {true, true}, "git~1": {true, true}, ".git ": {true, true},
		".relo": {true, false}, ".relofs": {false, false}, "relo": {false, false}, ".gitignore": {false, false}, "": {false, false},
	} {
		if got := [2]bool{gitstore.IsReserved(name, true), gitstore.IsReserved(name, false)}; got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

// FuzzTree: what passes has distinct, safe names, and mktree would make the
// same tree of it.
func FuzzTree(f *testing.F) {
	f.Add(tree("100644 a", "40000 b"))
	f.Add(tree("100644 a", "100644 a.b", "40000 a"))
	f.Add(tree("40000 .g\u200cit"))
	f.Fuzz(func(t *testing.T, data []byte) {
		seen := map[string]bool{}
		last := ""
		err := gitstore.ParseTree(data, func(e gitstore.TreeEntry) error {
			key := e.Name
			if e.Mode == gitstore.ModeTree {
				key += "/"
			}
			switch {
			case seen[e.Name]:
				t.Fatalf("%q twice", e.Name)
			case e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") || gitstore.IsReserved(e.Name, false):
				t.Fatalf("%q passed", e.Name)
			case key <= last:
				t.Fatalf("%q behind %q", key, last)
			}
			seen[e.Name], last = true, key
			return nil
		})
		if err != nil && !errors.Is(err, gitstore.ErrCorrupt) && !errors.Is(err, gitstore.ErrHostileTree) {
			t.Fatal(err)
		}
	})
}
