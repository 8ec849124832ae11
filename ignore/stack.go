package ignore

import (
	"fmt"
	"strings"
	"sync"
)

// Stack judges the paths of a work tree by all files of rules. It reads a
// .gitignore file when a path below its directory is first judged, and keeps
// it: a Stack is for one look at a tree. It is safe for concurrent use.
type Stack struct {
	load     func(dir string) (*List, error)
	fold     bool
	excludes []*List

	mu   sync.Mutex
	dirs map[string]*directory // guarded by mu; by path
}

// directory is what is known of one directory.
type directory struct {
	parent *directory
	rules  *List // its .gitignore, or nil
	// by is the verdict on the directory itself or, if that is excluded, on the
	// parent that is; everything below shares it.
	by Verdict
}

// Verdict is the answer about a path. The zero Verdict is "not ignored, and no
// rule is about it".
type Verdict struct {
	Ignored bool
	// Rule is what decided, and Source the directory of the .gitignore file it
	// stands in ("" for the root's, and for excludes).
	Rule   *Rule
	Source *List
}

// NewStack returns a Stack. load returns the rules of the .gitignore file of a
// directory, nil if it has none (Git reads it only if it is a regular file);
// its error is returned by the call that needed it. excludes are the files that
// are for all of the tree, the most important last: core.excludesFile, then
// info/exclude. ignoreCase is core.ignoreCase.
func NewStack(load func(dir string) (*List, error), ignoreCase bool, excludes ...*List) *Stack {
	return &Stack{load: load, fold: ignoreCase, excludes: excludes, dirs: map[string]*directory{}}
}

// Match judges path, which is relative to the root, with '/' between names and
// none at the ends. The root itself is never ignored.
func (s *Stack) Match(path string, isDir bool) (Verdict, error) {
	if path == "" {
		return Verdict{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parent, err := s.directory(parentOf(path))
	if err != nil {
		return Verdict{}, err
	}
	return s.judge(parent, path, isDir), nil
}

// directory returns what is known of dir, after looking. mu is held.
func (s *Stack) directory(dir string) (*directory, error) {
	if d := s.dirs[dir]; d != nil {
		return d, nil
	}
	d := &directory{}
	if dir != "" {
		var err error
		if d.parent, err = s.directory(parentOf(dir)); err != nil {
			return nil, err
		}
		d.by = s.judge(d.parent, dir, true)
	}
	if !d.by.Ignored {
		var err error
		if d.rules, err = s.load(dir); err != nil {
			return nil, fmt.Errorf("ignore rules of %q: %w", dir, err)
		}
	}
	s.dirs[dir] = d
	return d, nil
}

// judge judges an entry of the directory parent.
func (s *Stack) judge(parent *directory, path string, isDir bool) Verdict {
	if parent.by.Ignored {
		return parent.by
	}
	for d := parent; d != nil; d = d.parent {
		if v := s.ask(d.rules, path, isDir); v.Rule != nil {
			return v
		}
	}
	for i := len(s.excludes) - 1; i >= 0; i-- {
		if v := s.ask(s.excludes[i], path, isDir); v.Rule != nil {
			return v
		}
	}
	return Verdict{}
}

func (s *Stack) ask(l *List, path string, isDir bool) Verdict {
	if l == nil {
		return Verdict{}
	}
	r := l.find(path, isDir, s.fold)
	if r == nil {
		return Verdict{}
	}
	return Verdict{Ignored: !r.Negated, Rule: r, Source: l}
}

func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 0)]
}
