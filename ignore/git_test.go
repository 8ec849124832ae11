package ignore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/relofs/relofs/ignore"
)

// workTree is a repository with files to judge and, by name, the files of rules
// as Git names them in `check-ignore -v`.
type workTree struct {
	t     *testing.T
	dir   string
	paths []string
	isDir map[string]bool
	fold  bool
}

const (
	infoExclude = ".git/info/exclude"
	userExclude = ".git/user-excludes" // core.excludesFile
)

func newWorkTree(t *testing.T, paths []string) *workTree {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	w := &workTree{t: t, dir: t.TempDir(), isDir: map[string]bool{}}
	w.git(nil, "init", "-q")
	w.git(nil, "config", "core.excludesFile", filepath.Join(w.dir, userExclude))
	for _, p := range paths {
		full := filepath.Join(w.dir, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == w.dir {
			return err
		}
		if d.Name() == ".git" {
			return filepath.SkipDir
		}
		rel, _ := filepath.Rel(w.dir, path)
		w.paths = append(w.paths, rel)
		w.isDir[rel] = d.IsDir()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *workTree) git(stdin []byte, args ...string) []byte {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") }),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C")
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && slices.Contains(args, "check-ignore") {
		err = nil // nothing is ignored
	}
	if err != nil {
		if exit != nil {
			w.t.Fatalf("git %q: %v: %s", args, err, exit.Stderr)
		}
		w.t.Fatalf("git %q: %v", args, err)
	}
	return out
}

// write replaces all files of rules.
func (w *workTree) write(rules map[string]string) {
	w.t.Helper()
	for _, name := range []string{infoExclude, userExclude} {
		if err := os.WriteFile(filepath.Join(w.dir, name), nil, 0o666); err != nil {
			w.t.Fatal(err)
		}
	}
	for p, isDir := range w.isDir {
		if isDir {
			os.Remove(filepath.Join(w.dir, p, ".gitignore"))
		}
	}
	os.Remove(filepath.Join(w.dir, ".gitignore"))
	for name, text := range rules {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o666); err != nil {
			w.t.Fatal(err)
		}
	}
}

// byGit returns, for each path, "source:line" of the rule that decides and
// whether it ignores.
func (w *workTree) byGit() []string {
	w.t.Helper()
	out := w.git([]byte(strings.Join(w.paths, "\x00")+"\x00"),
		"-c", "core.ignoreCase="+strconv.FormatBool(w.fold), "check-ignore", "-v", "-n", "-z", "--no-index", "--stdin")
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(fields) != 4*len(w.paths) {
		w.t.Fatalf("git check-ignore answered %d fields for %d paths", len(fields), len(w.paths))
	}
	var verdicts []string
	for f := range slices.Chunk(fields, 4) {
		source, line, pattern := f[0], f[1], f[2]
		if source == "" {
			verdicts = append(verdicts, "none")
			continue
		}
		if rel, err := filepath.Rel(w.dir, source); filepath.IsAbs(source) && err == nil {
			source = rel
		}
		verdicts = append(verdicts, fmt.Sprintf("%s:%s %v", source, line, !strings.HasPrefix(pattern, "!")))
	}
	return verdicts
}

func (w *workTree) byUs() []string {
	w.t.Helper()
	sources := map[*ignore.List]string{}
	parse := func(name, dir string) (*ignore.List, error) {
		data, err := os.ReadFile(filepath.Join(w.dir, name))
		if err != nil {
			return nil, err
		}
		l := ignore.Parse(data, dir)
		sources[l] = name
		return l, nil
	}
	user, err := parse(userExclude, "")
	if err != nil {
		w.t.Fatal(err)
	}
	info, err := parse(infoExclude, "")
	if err != nil {
		w.t.Fatal(err)
	}
	stack := ignore.NewStack(func(dir string) (*ignore.List, error) {
		l, err := parse(filepath.Join(dir, ".gitignore"), dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return l, err
	}, w.fold, user, info)
	var verdicts []string
	for _, p := range w.paths {
		v, err := stack.Match(p, w.isDir[p])
		if err != nil {
			w.t.Fatal(err)
		}
		if v.Rule == nil {
			verdicts = append(verdicts, "none")
			continue
		}
		verdicts = append(verdicts, fmt.Sprintf("%s:%d %v", sources[v.Source], v.Rule.Line, v.Ignored))
	}
	return verdicts
}

// compare fails for each path on which Git decides otherwise or by another rule.
func (w *workTree) compare(rules map[string]string) {
	w.t.Helper()
	w.write(rules)
	git, us := w.byGit(), w.byUs()
	failed := 0
	for i, p := range w.paths {
		if git[i] != us[i] {
			w.t.Errorf("%q (fold %v): git says %s, we say %s", p, w.fold, git[i], us[i])
			failed++
		}
	}
	if failed > 0 {
		w.t.Fatalf("with rules %q", rules)
	}
}

// zoo is a tree whose names meet the patterns below in many ways.
var zoo = []string{
	"a", "b.o", "foo", "foobar", "fooxbar", "bar/foo", "bar/baz/foo", "bar/baz/x.o",
	"foo2/bar", "foo3/x/bar", "foo3/x/y/bar", "src/main.c", "src/main.o", "src/deep/er/main.o",
	"build/out", "build/keep/this", "docs/build/out", "A/B/c", "a.TXT", "a.txt", "README", "readme.d/x",
	"#hash", "!bang", "sp ace", "trail ", "trail  ", "back\\slash", "tab\t", "quote\"q", "star*", "q?", "br[ack", "br]ack", "-dash", "a-b", "a^b",
	"é", "日本/語", "x/y/z/w", "x/y/w", "x/w", "xx/w", "1", "9", "a1", "a_", "line\nbreak", "cr\r", "0\x7f",
	"dir.d/file", "dir.d/sub.d/file", "dir.d/sub.d/.hidden", ".hidden/x", "..x", "...", "ab/cd/ef/gh", "ab/c/ef", "a-/b", "Z/z/Z",
}

func TestRulesDecideAsGitDoes(t *testing.T) {
	lines := []string{
		// Names and anchors.
		"foo", "/foo", "foo/", "bar/foo", "/bar/foo", "bar/", "/bar/", "//", "/", "!", "!/", "", "//foo", "foo//", "/build", "build/", "docs/build",
		// Wildcards and their corners.
		"*", "*.o", "*o", "foo*", "f*o", "*a*a*", "?", "??", "a?", "/*", "*/", "*/*", "/*/foo", "src/*.o", "src/*", "src*", "*/main.o", "bar/*/foo",
		"**", "**/", "/**", "**/foo", "foo**", "foo**/bar", "foo3/**", "foo3/**/", "foo3/**/bar", "foo3/**/**/bar", "foo3/x**bar", "foo3/x/**bar", "**foo", "**/**", "***", "a/***/b", "*/**", "**/*.o", "x/**/w", "x/***/w", "x**/w", "x/?**", "x/y**", "x/?/w", "**/z/**", "**\\/w", "x/**\\/w", "***/w", "*/**/w", "**/y/*/w", "?*/w", "*?/w", "[x]**/w",
		// Sets.
		"[ab]", "[!ab]", "[^ab]*", "a[!/]b", "x[/]w", "x[!a]w", "x/[!a]", "[a-c]*", "[a-]*", "[-a]*", "[]]", "br[]]ack", "br[[]ack", "br[\\[]ack", "br[\\]]ack", "[", "[a", "[!", "[]", "[!]", "a[", "[[:digit:]]", "a[[:digit:][:punct:]]", "[[:upper:]]*", "[[:lower:]]*", "[[:alpha:]]", "[[:alnum:]]*", "[[:space:]]*", "*[[:space:]]", "*[[:blank:]]", "*[[:cntrl:]]", "[[:punct:]]*", "[[:graph:]]", "[[:print:]]", "[[:xdigit:]]", "[[:bogus:]]", "[[:digit:]", "[[::]]", "[[:]", "[[:]]", "[[:x]", "[a-\\c]", "[\\a-c]", "[a-c-e]", "[c-a]", "[A-Z]*", "[a-Z]", "[--a]*", "a[[:digit:]-z]", "[Z-a]", "[!a-z]*", "[\\\\]", "back[\\\\]slash",
		// Quoting, comments, spaces.
		"#hash", "\\#hash", "\\!bang", "!bang", "trail ", "trail\\ ", "trail\\  ", "trail \\ ", "trail  \\  ", "sp ace", "sp\\ ace", "back\\slash", "back\\\\slash", "star\\*", "q\\?", "f\\oo", "foo\\", "\\", "\\\\", "  ", " foo", "tab\t", "tab\\\t", "cr\r", "a\x00b", "\x00",
		// Case and bytes beyond ASCII.
		"readme", "README", "A.TXT", "*.TXT", "\\A.TXT", "z/Z", "Z/z/*", "[A].txt", "é", "?", "??", "[é]", "\xc3?", "日*", "/日本/*", "[\xc3]\xa9",
		// More slashes.
		"ab/cd/ef/gh", "ab/*/ef", "ab/**/gh", "ab/**/ef/**", "*/cd", "**/cd", "**/cd/**/gh", "ab/cd/", "dir.d/*/", "dir.d/**/file", "*.d", "*.d/", "*.d/*", ".*", "..*", "...",
	}
	w := newWorkTree(t, zoo)
	for _, w.fold = range []bool{false, true} {
		for _, line := range lines {
			if w.fold && line == strings.ToLower(line) && !strings.Contains(line, "[") {
				continue // has no corner of its own when case is folded
			}
			w.compare(map[string]string{".gitignore": line + "\n"})
		}
	}
	w.fold = false
	for name, rules := range map[string]map[string]string{
		"byte order mark":             {".gitignore": "\xef\xbb\xbffoo\nbar"},
		"CR LF":                       {".gitignore": "foo\r\nbar/ \r\n\r\n#x\r\nREADME\r"},
		"no final newline":            {".gitignore": "a\nfoo"},
		"last rule wins":              {".gitignore": "*\n!foo\n!bar/\nbar/foo\n"},
		"parent cannot be undone":     {".gitignore": "bar\n!bar/foo\n!bar/baz/\n"},
		"parent taken back in":        {".gitignore": "/*\n!/bar\n/bar/*\n!/bar/baz\n"},
		"deeper file wins":            {".gitignore": "*.o\n", "src/.gitignore": "!main.o\n", "src/deep/.gitignore": "*.o\n"},
		"file in excluded directory":  {".gitignore": "bar/\n", "bar/.gitignore": "!foo\n"},
		"directory back in by deeper": {".gitignore": "baz\n", "bar/.gitignore": "!baz\n"},
		"anchored in subdirectory":    {"bar/.gitignore": "/foo\nbaz/x.o\n", "src/.gitignore": "deep/er\n"},
		"precedence of the excludes":  {infoExclude: "!foo\nREADME\n*.o\n", userExclude: "foo\n!README\na\n", ".gitignore": "!b.o\n"},
		"excludes are anchored too":   {infoExclude: "/foo\nbar/baz/\n", userExclude: "src/*.o\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.t = t
			w.compare(rules)
		})
	}
}

// TestRandomRulesDecideAsGitDoes makes files of rules of fragments that are
// likely to meet the tree's names.
func TestRandomRulesDecideAsGitDoes(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	seed := uint64(1)
	if s := os.Getenv("RELOFS_TEST_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	rnd := rand.New(rand.NewPCG(seed, 8))
	fragments := []string{
		"a", "b", "foo", "bar", "x", "y", "w", "main", ".o", ".d", "A", "Z", "sub", "*", "*", "*", "**", "**/", "/**/", "/", "/", "?", "[a-z]", "[!a]", "[^x", "[[:alpha:]]", "[]x]", "\\", "\\*", " ", "\\ ", "-", "[x-", "]", "[[:upper:]-z]", "é",
	}
	var paths []string
	names := []string{"a", "b", "foo", "bar", "x", "main.o", "A", "sub.d", "Zé", "foobar", "w"}
	for range 90 {
		var parts []string
		for range 1 + rnd.IntN(4) {
			parts = append(parts, names[rnd.IntN(len(names))])
		}
		p := strings.Join(parts, "/") + ".f"
		paths = append(paths, p)
	}
	w := newWorkTree(t, paths)
	var dirs []string
	for p, isDir := range w.isDir {
		if isDir {
			dirs = append(dirs, p)
		}
	}
	slices.Sort(dirs)
	file := func(lines int) string {
		var b strings.Builder
		for range lines {
			if rnd.IntN(4) == 0 {
				b.WriteByte('!')
			}
			for range 1 + rnd.IntN(5) {
				b.WriteString(fragments[rnd.IntN(len(fragments))])
			}
			if rnd.IntN(5) == 0 {
				b.WriteByte('/')
			}
			b.WriteByte('\n')
		}
		return b.String()
	}
	for range rounds {
		w.fold = rnd.IntN(3) == 0
		rules := map[string]string{".gitignore": file(rnd.IntN(8))}
		for range rnd.IntN(4) {
			rules[filepath.Join(dirs[rnd.IntN(len(dirs))], ".gitignore")] = file(1 + rnd.IntN(4))
		}
		if rnd.IntN(3) == 0 {
			rules[infoExclude] = file(2)
			rules[userExclude] = file(2)
		}
		w.compare(rules)
	}
}
