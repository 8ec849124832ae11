package gitstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/relofs/relofs/durable"
)

// Store is one repository, opened for reading and writing objects and refs.
// All methods are safe for concurrent use.
type Store struct {
	// Set by Open, then read only: absolute paths with symlinks resolved.
	gitDir    string // this work tree's own: HEAD, index
	commonDir string // what all work trees share: objects, refs, config
	workTree  string // "" if there is none

	// Reading.
	objects  *objectDB     // packs, loose objects and alternates (objects.go)
	promisor *catFile      // brings what a partial clone left out (catfile.go)
	settings settingsCache // Git config (settings.go)

	// Writing.
	packed  packedRefs  // what packed-refs says (packedrefs.go)
	writing writing     // merges of small packs (consolidate.go)
	log     durable.Log // how to make both durable
}

// Open finds the repository dir lies in and opens it. dir may be anywhere in a
// work tree (linked ones and separate git directories included), a .git
// directory or a bare repository. The search goes from dir upwards as Git's
// does (setup.c), to the root of the file system dir is on, but GIT_* variables
// of the environment are ignored: the answer depends on dir alone.
//
// Errors: ErrNotRepository; ErrForeignOwner; ErrUnsupportedFormat for a repository whose format
// version or extensions this package does not know, SHA-256 and reftable among
// them.
func Open(dir string) (*Store, error) {
	found, err := discover(dir)
	if err != nil {
		return nil, err
	}
	format, err := readFormat(found)
	if err != nil {
		return nil, err
	}
	s := &Store{
		gitDir:    found.gitDir,
		commonDir: found.commonDir,
		workTree:  format.workTree(found),
	}
	if err := s.checkOwner(); err != nil {
		return nil, err
	}
	s.objects, err = openObjects(filepath.Join(s.commonDir, "objects"))
	if err != nil {
		return nil, fmt.Errorf("open objects of %s: %w", s.commonDir, err)
	}
	s.log = durable.LogOf(s.commonDir, s.objectsDir(), filepath.Join(s.commonDir, "refs"))
	s.promisor = newCatFile(s, format.partialClone)
	s.sweep()
	return s, nil
}

// Close ends the helper process and unmaps the packs once the last read that
// is under way has finished, and a merge of small packs. Reads that begin
// later fail with fs.ErrClosed.
func (s *Store) Close() error {
	s.writing.close()
	err := s.promisor.close()
	s.objects.close()
	return err
}

// GitDir is the directory of this work tree's HEAD and index. It differs from
// CommonDir in linked worktrees.
func (s *Store) GitDir() string { return s.gitDir }

// CommonDir is the directory all work trees share: objects, refs and config.
func (s *Store) CommonDir() string { return s.commonDir }

// WorkTree is the root of the user's checkout, "" for a bare repository.
func (s *Store) WorkTree() string { return s.workTree }

// layout is where a repository's parts lie.
type layout struct {
	gitDir    string
	commonDir string
	workTree  string // directory that holds .git; "" if dir was in the git directory itself
}

func (l layout) linked() bool { return l.gitDir != l.commonDir }

func discover(dir string) (layout, error) {
	start, err := filepath.Abs(dir)
	if err == nil {
		start, err = filepath.EvalSymlinks(start)
	}
	if err != nil {
		return layout{}, fmt.Errorf("open repository: %w", err)
	}
	info, err := os.Stat(start)
	if err != nil {
		return layout{}, fmt.Errorf("open repository: %w", err)
	}
	if !info.IsDir() {
		return layout{}, fmt.Errorf("%s is a file: %w", start, ErrNotRepository)
	}
	for at := start; ; {
		if l, ok, err := layoutAt(at); err != nil || ok {
			return l, err
		}
		parent := filepath.Dir(at)
		if parent == at {
			return layout{}, fmt.Errorf("%s and its parents: %w", start, ErrNotRepository)
		}
		if !sameDevice(at, parent) {
			return layout{}, fmt.Errorf("%s and its parents up to the mount point %s: %w", start, at, ErrNotRepository)
		}
		at = parent
	}
}

// layoutAt looks for a repository whose work tree or git directory is at.
func layoutAt(at string) (layout, bool, error) {
	dotGit := filepath.Join(at, ".git")
	info, err := os.Stat(dotGit)
	switch {
	case err == nil && info.Mode().IsRegular():
		target, err := readGitFile(dotGit)
		if err != nil {
			return layout{}, false, err
		}
		gitDir, err := filepath.EvalSymlinks(target)
		if err != nil {
			return layout{}, false, fmt.Errorf("%s points to %s: %w", dotGit, target, ErrNotRepository)
		}
		commonDir, ok := commonDirOf(gitDir)
		if !ok {
			return layout{}, false, fmt.Errorf("%s points to %s: %w", dotGit, target, ErrNotRepository)
		}
		return layout{gitDir, commonDir, at}, true, nil
	case err == nil && info.IsDir():
		gitDir, err := filepath.EvalSymlinks(dotGit)
		if err != nil {
			break
		}
		if commonDir, ok := commonDirOf(gitDir); ok {
			return layout{gitDir, commonDir, at}, true, nil
		}
	}
	if commonDir, ok := commonDirOf(at); ok {
		return layout{gitDir: at, commonDir: commonDir}, true, nil
	}
	return layout{}, false, nil
}

// readGitFile reads a .git file: "gitdir: <path>\n", relative to its directory.
func readGitFile(path string) (string, error) {
	const limit = 1 << 20 // as Git's own limit, setup.c
	info, err := os.Stat(path)
	if err == nil && info.Size() > limit {
		err = errors.New("too large to be a .git file")
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	target, ok := strings.CutPrefix(string(data), "gitdir: ")
	target = strings.TrimRight(target, "\r\n")
	if !ok || target == "" {
		return "", fmt.Errorf("%s is not a .git file: %w", path, ErrNotRepository)
	}
	return absoluteFrom(filepath.Dir(path), target), nil
}

// commonDirOf reports whether gitDir is a git directory, by the test Git makes
// (is_git_directory in setup.c), and the directory that holds its objects.
func commonDirOf(gitDir string) (string, bool) {
	if !validHead(filepath.Join(gitDir, "HEAD")) {
		return "", false
	}
	commonDir := gitDir
	data, err := os.ReadFile(filepath.Join(gitDir, "commondir"))
	switch {
	case err == nil:
		commonDir, err = filepath.EvalSymlinks(absoluteFrom(gitDir, strings.TrimRight(string(data), "\r\n")))
		if err != nil {
			return "", false
		}
	case !errors.Is(err, fs.ErrNotExist) && !isNotDirectory(err):
		return "", false
	}
	for _, sub := range []string{"objects", "refs"} {
		if info, err := os.Stat(filepath.Join(commonDir, sub)); err != nil || !info.IsDir() {
			return "", false
		}
	}
	return commonDir, true
}

// validHead accepts what Git does: a symbolic ref into refs/, an object id, or
// a symlink into refs/. A 64-digit id is let through for readFormat to refuse.
func validHead(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		return err == nil && strings.HasPrefix(target, "refs/")
	}
	if !info.Mode().IsRegular() {
		return false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	text := string(data)
	if ref, ok := strings.CutPrefix(text, "ref:"); ok {
		return strings.HasPrefix(strings.TrimLeft(ref, " \t\r\n"), "refs/")
	}
	if len(text) < 40 {
		return false
	}
	_, err = ParseOID(text[:40])
	return err == nil
}

func absoluteFrom(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
