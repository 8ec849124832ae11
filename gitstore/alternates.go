package gitstore

import (
	"os"
	"path/filepath"
	"strings"
)

// maxAlternateDepth bounds alternates of alternates, as Git does
// (link_alt_odb_entries in object-file.c).
const maxAlternateDepth = 5

// objectDirs lists an objects directory and those its info/alternates name,
// and theirs, each once. As in Git one that is not there is passed over, and a
// relative path starts at the objects directory whose file names it.
func objectDirs(dir string) []string {
	var dirs []string
	seen := map[string]bool{}
	var add func(dir string, depth int)
	add = func(dir string, depth int) {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil || seen[resolved] {
			return
		}
		seen[resolved] = true
		dirs = append(dirs, resolved)
		if depth == maxAlternateDepth {
			return
		}
		data, err := os.ReadFile(filepath.Join(resolved, "info", "alternates"))
		if err != nil {
			return
		}
		for _, line := range strings.Split(string(data), "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			if quoted, ok := unquote(line); ok {
				line = quoted
			}
			add(absoluteFrom(resolved, line), depth+1)
		}
	}
	add(dir, 0)
	return dirs
}

// unquote undoes the quoting Git gives to unusual paths: that of C strings,
// octal escapes included (unquote_c_style in quote.c).
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	s = s[1 : len(s)-1]
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '"' {
			return "", false
		}
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", false
		}
		if at := strings.IndexByte(`abfnrtv"\`, s[i]); at >= 0 {
			b.WriteByte("\a\b\f\n\r\t\v\"\\"[at])
			continue
		}
		if i+3 > len(s) {
			return "", false
		}
		v := 0
		for _, c := range []byte(s[i : i+3]) {
			if c < '0' || c > '7' {
				return "", false
			}
			v = v<<3 | int(c-'0')
		}
		if v > 255 {
			return "", false
		}
		b.WriteByte(byte(v))
		i += 2
	}
	return b.String(), true
}
