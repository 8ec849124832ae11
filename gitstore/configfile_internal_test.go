package gitstore

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What the fast reader accepts must be what Git reads; what it leaves to Git is
// its own choice.
func TestPlainConfigIsReadAsGitReadsIt(t *testing.T) {
	for text, wantPlain := range map[string]bool{
		"":                                   true,
		"[core]\n\tbare = false\n":           true,
		"[core]\nBARE=true\n; c\n# d\n\n":    true,
		"[Remote \"O r.igin\"]\n url = a:b ": true,
		"[core]\r\n\tbare = false\r\n":       true,
		"[core]\n\tempty =\n\tx = a  b \n":   true,
		"[a-b]\nc-1 = 2\n":                   true,
		"[core]\nbare\n":                     false,
		"[core] bare = true\n":               false,
		"[core]\nx = \"a\"\n":                false,
		"[core]\nx = a\\\nb\n":               false,
		"[core]\nx = a # c\n":                false,
		"[core]\nx = a\tb\n":                 false,
		"[a.b]\nc = d\n":                     false,
		"[a \"x\\\"y\"]\nc = d\n":            false,
		"x = y\n":                            false,
		"[core\n":                            false,
		"\ufeff[core]\nx = y\n":              false,
	} {
		pairs, plain := plainConfig(text)
		if plain != wantPlain {
			t.Errorf("%q: plain is %v", text, plain)
		}
		if !plain {
			continue
		}
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		want, err := configFileByGit(path)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if !slices.Equal(pairs, want) {
			t.Errorf("%q: read as %v, by Git as %v", text, pairs, want)
		}
	}
}
