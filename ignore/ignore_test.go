package ignore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/ignore"
)

func TestListJudgesOnlyBelowItsDirectory(t *testing.T) {
	l := ignore.Parse([]byte("x\n!y\n/z\n"), "a/b")
	for path, want := range map[string][2]bool{
		"a/b/x":   {true, true},
		"a/b/c/x": {true, true},
		"a/b/y":   {false, true},
		"a/b/z":   {true, true},
		"a/b/c/z": {false, false},
		"a/x":     {false, false},
		"a/bx":    {false, false},
		"a/b":     {false, false},
		"x":       {false, false},
		"":        {false, false},
	} {
		ignored, matched := l.Match(path, false)
		if got := [2]bool{ignored, matched}; got != want {
			t.Errorf("Match(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestRulesOfExcludedDirectoriesAreNotRead(t *testing.T) {
	s := ignore.NewStack(func(dir string) (*ignore.List, error) {
		if dir != "" {
			t.Errorf("read the rules of %q", dir)
		}
		return ignore.Parse([]byte("out/\n"), dir), nil
	}, false)
	for _, p := range []string{"out/a", "out/b/c", "out/b/d"} {
		if v, err := s.Match(p, false); err != nil || !v.Ignored || v.Rule.Line != 1 {
			t.Errorf("Match(%q) = %+v, %v", p, v, err)
		}
	}
}

func TestAnErrorOfLoadIsTheAnswerAndIsNotKept(t *testing.T) {
	broken := errors.New("disk on fire")
	fail := true
	s := ignore.NewStack(func(string) (*ignore.List, error) {
		if fail {
			return nil, broken
		}
		return nil, nil
	}, false)
	if _, err := s.Match("a", false); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	fail = false
	if _, err := s.Match("a", false); err != nil {
		t.Errorf("got %v", err)
	}
}

// A backtracking matcher needs longer than the age of the universe for these.
func TestNoPatternIsExponential(t *testing.T) {
	text := strings.Repeat("a", 4000)
	for _, p := range []string{
		strings.Repeat("*a", 200) + "b",
		strings.Repeat("**/", 100) + "b",
		"/" + strings.Repeat("*a*/", 30) + "**/b",
		strings.Repeat("?*", 200) + "[b]",
	} {
		l := ignore.Parse([]byte(p), "")
		start := time.Now()
		l.Match(text, false)
		l.Match(strings.Repeat("aa/", 1300)+"c", false)
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%.20q… took %v", p, d)
		}
	}
}

// reference is wildmatch by the book: try every way, with no thought of cost.
func reference(p, text string, atStart bool) bool {
	if p == "" {
		return text == ""
	}
	if p[0] == '*' {
		n := len(p) - len(strings.TrimLeft(p, "*"))
		rest := p[n:]
		cross := n > 1 && atStart && (rest == "" || rest[0] == '/')
		if cross && rest != "" && reference(rest[1:], text, true) {
			return true
		}
		for i := 0; i <= len(text); i++ {
			if reference(rest, text[i:], false) {
				return true
			}
			if i < len(text) && text[i] == '/' && !cross {
				return false
			}
		}
		return false
	}
	if text == "" || p[0] != text[0] && (p[0] != '?' || text[0] == '/') {
		return false
	}
	return reference(p[1:], text[1:], p[0] == '/')
}

func FuzzMatch(f *testing.F) {
	f.Add("a/**/b*?", "a/x/bcd")
	f.Add("**/*/a**", "x/y/ab")
	f.Add("/[[:alpha:]-z]\\ \xff", "q")
	f.Add("!*[", "a/b")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		l := ignore.Parse([]byte(pattern), "")
		_, matched := l.Match(path, true)
		// The reference knows neither sets nor quoting, and wants a path.
		if len(pattern) > 10 || len(path) > 14 || strings.Trim(pattern, "ab/*?") != "" || strings.Trim(path, "ab/") != "" ||
			!strings.Contains(strings.Trim(pattern, "/"), "/") || strings.HasPrefix(pattern, "//") || strings.HasSuffix(path, "/") || path == "" {
			return
		}
		p := strings.TrimSuffix(strings.TrimPrefix(pattern, "/"), "/")
		// What stands before the first wildcard is compared by itself.
		n := strings.IndexAny(p+"*", "*?")
		want := strings.HasPrefix(path, p[:n]) && reference(p[n:], path[n:], true)
		if matched != want {
			t.Errorf("%q on %q: got %v, want %v", pattern, path, matched, want)
		}
	})
}

func BenchmarkTypicalRules(b *testing.B) {
	l := ignore.Parse([]byte("node_modules/\n*.o\n*.py[cod]\n/build\ndist\n.env\n*.log\n!keep.log\ndocs/_build/\n**/target/\n*~\n.DS_Store\n"), "")
	b.ReportAllocs()
	for b.Loop() {
		l.Match("src/pkg/deep/module/file_name_linux.go", false)
	}
}
