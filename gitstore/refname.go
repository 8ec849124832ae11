package gitstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

var errBadRefName = errors.New("not a valid ref name")

// checkRefName refuses names that Git does not allow (git-check-ref-format(1))
// and names outside refs/ other than HEAD and its like, which keeps every name
// that passes inside the git directory.
func checkRefName(name string) error {
	if !validRefName(name) || !strings.HasPrefix(name, "refs/") && !isPseudoRef(name) {
		return fmt.Errorf("%q: %w", name, errBadRefName)
	}
	return nil
}

func validRefName(name string) bool {
	if name == "" || name == "@" || strings.HasSuffix(name, ".") ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return false
		}
	}
	return true
}

// isPseudoRef accepts HEAD, ORIG_HEAD and the like, which lie beside refs/.
func isPseudoRef(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool { return (r < 'A' || r > 'Z') && r != '_' }) < 0
}

// isWorktreeRef reports whether each work tree has a ref of this name for
// itself (gitrepository-layout(5), git-worktree(1) "Refs").
func isWorktreeRef(name string) bool {
	if !strings.HasPrefix(name, "refs/") {
		return true
	}
	for _, own := range []string{"refs/bisect/", "refs/worktree/", "refs/rewritten/"} {
		if strings.HasPrefix(name, own) {
			return true
		}
	}
	return false
}

// refPath is the file a loose ref is in.
func (s *Store) refPath(name string) string {
	dir := s.commonDir
	if isWorktreeRef(name) {
		dir = s.gitDir
	}
	return filepath.Join(dir, filepath.FromSlash(name))
}
