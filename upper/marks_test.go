package upper

import (
	"errors"
	"strings"
	"testing"
)

// FuzzRedirect: whatever the mark holds, what is accepted leads to a clean path
// of the tree, from every parent.
func FuzzRedirect(f *testing.F) {
	for _, seed := range []string{"", "/", "a", "/a", "/a/b", "a/b", "..", "/..", "/a/../b", "/a//b", "/a/", ".", "a\x00", "\x00", "/\xff", strings.Repeat("/a", 2000)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		redirect, err := parseRedirect(value)
		if err != nil {
			if !errors.Is(err, ErrBadMark) || len(err.Error()) > 500 {
				t.Fatalf("%d bytes: %v", len(value), err)
			}
			return
		}
		if redirect != string(value) || redirect == "" {
			t.Fatalf("%q became %q", value, redirect)
		}
		for _, parent := range []string{"", "p", "p/q"} {
			e := Entry{Name: "n", Kind: Dir, Redirect: redirect}
			path, ok := e.LowerPath(parent, true)
			if !ok || path == "" || !validPath(path) {
				t.Fatalf("%q in %q leads to %q, %v", value, parent, path, ok)
			}
			absolute := value[0] == '/'
			if absolute && "/"+path != redirect || !absolute && path != join(parent, redirect) {
				t.Fatalf("%q in %q leads to %q", value, parent, path)
			}
			if _, ok := e.LowerPath(parent, false); ok != absolute {
				t.Fatalf("%q below nothing: %v", value, ok)
			}
		}
		if isOpaque(value) && string(value) != "y" {
			t.Fatalf("%q is taken for opaque", value)
		}
	})
}
