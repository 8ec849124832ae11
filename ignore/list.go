package ignore

import (
	"bytes"
	"strings"
	"sync/atomic"
)

// Rule is one line that is a rule.
type Rule struct {
	Line    int    // from 1
	Text    string // without trailing spaces and line end
	Negated bool   // it takes paths back in

	pattern string // without '!', a trailing '/' and a leading '/'
	dirOnly bool
	// anchored rules are matched against the path below the list's directory,
	// the others against the last name.
	anchored bool
	// literal is the length of pattern's part before the first special
	// character, compared as it stands.
	literal int
	// suffix rules are "*" and a literal, the commonest kind.
	suffix bool

	// rest is the pattern after the literal part (all of it for a rule that is
	// not anchored), compiled when it is first needed; the second is for folded
	// text.
	rest [2]atomic.Pointer[pattern]
}

// List is the rules of one file. It is immutable and safe for concurrent use.
type List struct {
	dir   string
	rules []*Rule
}

// Parse reads the rules of one file. dir is the directory the file's rules are
// for, relative to the work tree's root and with '/' ("" for the root, and for
// info/exclude and core.excludesFile). Every input is valid; a pattern that is
// malformed matches nothing.
func Parse(data []byte, dir string) *List {
	l := &List{dir: dir}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	line := 0
	for text := range bytes.Lines(data) {
		line++
		text = bytes.TrimSuffix(text, []byte("\n"))
		text = bytes.TrimSuffix(text, []byte("\r"))
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if nul := bytes.IndexByte(text, 0); nul >= 0 {
			text = text[:nul]
		}
		if r := parseRule(trimSpaces(string(text))); r != nil {
			r.Line = line
			l.rules = append(l.rules, r)
		}
	}
	return l
}

// Dir returns the directory the rules are for.
func (l *List) Dir() string { return l.dir }

// trimSpaces drops trailing spaces; a backslash keeps the one after it.
func trimSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			continue
		case '\\':
			i++
			if i == len(s) {
				return s
			}
		}
		end = i + 1
	}
	return s[:end]
}

// parseRule returns nil for what can match nothing.
func parseRule(text string) *Rule {
	r := &Rule{Text: text}
	p := text
	p, r.Negated = strings.CutPrefix(p, "!")
	p, r.dirOnly = strings.CutSuffix(p, "/")
	r.anchored = strings.IndexByte(p, '/') >= 0
	p = strings.TrimPrefix(p, "/")
	if p == "" {
		return nil
	}
	r.pattern = p
	r.literal = literalLength(p)
	r.suffix = !r.anchored && p[0] == '*' && literalLength(p[1:]) == len(p)-1
	return r
}

// literalLength is the length of p before its first special character.
func literalLength(p string) int {
	if i := strings.IndexAny(p, `*?[\`); i >= 0 {
		return i
	}
	return len(p)
}

// Match judges a path by the rules of this file alone: matched says that a rule
// is about it, ignored that this rule excludes it. path is relative to the work
// tree's root, without a slash at its end; it is a path of which no parent is
// excluded. A path that is not below Dir matches nothing. Case counts.
func (l *List) Match(path string, isDir bool) (ignored, matched bool) {
	r := l.find(path, isDir, false)
	return r != nil && !r.Negated, r != nil
}

// find returns the last rule that matches, nil if none does.
func (l *List) find(path string, isDir, fold bool) *Rule {
	below := path
	if l.dir != "" {
		var ok bool
		if below, ok = strings.CutPrefix(path, l.dir); !ok || below == "" || below[0] != '/' {
			return nil
		}
		below = below[1:]
	}
	name := below[strings.LastIndexByte(below, '/')+1:]
	if name == "" {
		return nil
	}
	for i := len(l.rules) - 1; i >= 0; i-- {
		r := l.rules[i]
		if r.dirOnly && !isDir {
			continue
		}
		if r.anchored && r.matchPath(below, fold) || !r.anchored && r.matchName(name, fold) {
			return r
		}
	}
	return nil
}

// matchName is match_basename in Git's dir.c.
func (r *Rule) matchName(name string, fold bool) bool {
	switch {
	case r.literal == len(r.pattern):
		return len(name) == len(r.pattern) && hasPrefix(name, r.pattern, fold)
	case r.suffix:
		tail := len(r.pattern) - 1
		return len(name) >= tail && hasPrefix(name[len(name)-tail:], r.pattern[1:], fold)
	}
	return r.matchRest(r.pattern, name, false, fold)
}

// matchPath is match_pathname in Git's dir.c.
func (r *Rule) matchPath(path string, fold bool) bool {
	if !hasPrefix(path, r.pattern[:r.literal], fold) {
		return false
	}
	if r.literal == len(r.pattern) {
		return len(path) == r.literal
	}
	return r.matchRest(r.pattern[r.literal:], path[r.literal:], true, fold)
}

func (r *Rule) matchRest(rest, text string, paths, fold bool) bool {
	variant := 0
	if fold {
		variant = 1
	}
	compiled := r.rest[variant].Load()
	if compiled == nil {
		compiled = compile(rest, paths, fold)
		r.rest[variant].Store(compiled)
	}
	return compiled.match(text, paths, fold)
}

func hasPrefix(s, prefix string, fold bool) bool {
	if !fold {
		return strings.HasPrefix(s, prefix)
	}
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(s[i]) != lower(prefix[i]) {
			return false
		}
	}
	return true
}
