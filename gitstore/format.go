package gitstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// format is what a repository's own config says about how it is to be read
// (Git's Documentation/technical/repository-version.txt).
type format struct {
	bare         bool
	coreWorkTree string // core.worktree
	partialClone bool   // extensions.partialClone names a remote
}

// readFormat reads the repository's config, and only that one, as Git does
// before it looks at anything else; includes are not followed there.
func readFormat(l layout) (format, error) {
	var f format
	pairs, err := configFile(filepath.Join(l.commonDir, "config"))
	if err != nil {
		return f, err
	}
	version, worktreeConfig := 0, false
	var extensions []configPair
	for _, p := range pairs {
		name, isExtension := strings.CutPrefix(p.key, "extensions.")
		switch {
		case p.key == "core.repositoryformatversion":
			if version, err = strconv.Atoi(p.value); err != nil || version < 0 {
				return f, fmt.Errorf("%s: core.repositoryFormatVersion is %q: %w", l.commonDir, p.value, ErrUnsupportedFormat)
			}
		case isExtension:
			extensions = append(extensions, configPair{name, p.value, p.bare})
		case !l.linked():
			// A linked worktree is never bare and lies where its .git file is,
			// whatever the shared config says (setup.c,
			// check_repository_format_gently).
			if err := f.apply(p); err != nil {
				return f, fmt.Errorf("%s/config: %w", l.commonDir, err)
			}
		}
	}
	if version > 1 {
		return f, fmt.Errorf("%s has format version %d: %w", l.commonDir, version, ErrUnsupportedFormat)
	}
	for _, e := range extensions {
		known := true
		switch e.key {
		case "noop", "preciousobjects":
		case "partialclone":
			f.partialClone = e.value != ""
		case "worktreeconfig":
			worktreeConfig, err = e.bool()
			if err != nil {
				return f, fmt.Errorf("%s/config: %w", l.commonDir, err)
			}
		case "noop-v1", "relativeworktrees":
			known = version == 1
		case "objectformat":
			known = version == 1 && strings.EqualFold(e.value, "sha1")
		case "refstorage":
			known = version == 1 && strings.EqualFold(e.value, "files")
		default:
			// Version 0 knows no extensions, Git ignores stray ones.
			known = version == 0 && e.key != "compatobjectformat"
		}
		if !known {
			return f, fmt.Errorf("%s has extensions.%s = %q with format version %d: %w",
				l.commonDir, e.key, e.value, version, ErrUnsupportedFormat)
		}
	}
	if worktreeConfig {
		own, err := configFile(filepath.Join(l.gitDir, "config.worktree"))
		if err != nil {
			return f, err
		}
		for _, p := range own {
			if err := f.apply(p); err != nil {
				return f, fmt.Errorf("%s/config.worktree: %w", l.gitDir, err)
			}
		}
	}
	return f, nil
}

func (f *format) apply(p configPair) (err error) {
	switch p.key {
	case "core.bare":
		f.bare, err = p.bool()
	case "core.worktree":
		f.coreWorkTree = p.value
	}
	return err
}

// workTree is the root of the checkout, "" if the repository is bare.
func (f format) workTree(l layout) string {
	path := l.workTree
	switch {
	case f.coreWorkTree != "":
		path = absoluteFrom(l.gitDir, f.coreWorkTree)
	case f.bare:
		return ""
	case path != "":
	case l.linked():
		// <git dir>/gitdir names the .git file of the linked worktree
		// (gitrepository-layout(5)).
		data, err := os.ReadFile(filepath.Join(l.gitDir, "gitdir"))
		if err != nil {
			return ""
		}
		path = filepath.Dir(absoluteFrom(l.gitDir, strings.TrimRight(string(data), "\r\n")))
	case filepath.Base(l.gitDir) == ".git":
		path = filepath.Dir(l.gitDir)
	default:
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}
