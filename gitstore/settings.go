package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Settings is a repository's Git config at one moment: system, user, repository
// and work tree files with their includes, read by Git itself.
type Settings struct {
	values map[string]configPair
	stamps map[string]fileStamp // what it was read from
}

// Get returns the last value of key, as Git does. Section and variable names
// are case-insensitive, subsections are not. A key without "=" has the value
// "true".
func (s *Settings) Get(key string) (string, bool) {
	p, ok := s.values[canonicalKey(key)]
	if ok && p.bare {
		return "true", true
	}
	return p.value, ok
}

// Bool reads a boolean as git-config(1) describes them (yes, on, true, a number
// that is not 0, or a key without value; no, off, false, 0 or an empty value),
// def if key is not set.
func (s *Settings) Bool(key string, def bool) (bool, error) {
	p, ok := s.values[canonicalKey(key)]
	if !ok {
		return def, nil
	}
	return p.bool()
}

// Int reads a number with Git's suffixes k, m and g (powers of 1024), def if
// key is not set.
func (s *Settings) Int(key string, def int64) (int64, error) {
	p, ok := s.values[canonicalKey(key)]
	if !ok {
		return def, nil
	}
	return p.int()
}

// Path reads a file name, with a leading "~/" expanded to the user's home
// directory.
func (s *Settings) Path(key string) (string, bool, error) {
	v, ok := s.Get(key)
	if !ok {
		return "", false, nil
	}
	path, err := expandHome(v)
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", key, err)
	}
	return path, true, nil
}

// promisorRemote reports whether a remote promises objects that are not here
// (gitformat-pack(5), partial-clone.txt).
func (s *Settings) promisorRemote() bool {
	for key, p := range s.values {
		if strings.HasPrefix(key, "remote.") && strings.HasSuffix(key, ".promisor") {
			if on, err := p.bool(); err == nil && on {
				return true
			}
		}
	}
	return false
}

// settingsCache keeps the settings until a file they come from changes.
type settingsCache struct {
	mu      sync.Mutex // guards current, and lets one caller at a time run git
	current *Settings
}

// Settings returns the repository's Git config. It runs git once and again only
// when one of the files it was read from has changed, appeared or gone; between
// that it costs a stat of each.
func (s *Store) Settings() (*Settings, error) {
	c := &s.settings
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && c.current.fresh() {
		return c.current, nil
	}
	// Stamps of the usual places come before the reading: a change in between
	// makes the result stale at once rather than never.
	stamps := map[string]fileStamp{}
	for _, path := range s.configPlaces() {
		stamps[path] = stampOf(path)
	}
	start := time.Now()
	out, err := s.Git(context.Background(), "config", "-z", "--list", "--show-origin").Output()
	if err != nil {
		return nil, fmt.Errorf("read Git config of %s: %w", s.gitDir, commandError(err))
	}
	settings := &Settings{values: map[string]configPair{}, stamps: stamps}
	for len(out) > 0 {
		var origin, item []byte
		var ok bool
		if origin, out, ok = bytes.Cut(out, []byte{0}); !ok {
			break
		}
		item, out, _ = bytes.Cut(out, []byte{0})
		p := parsePair(item)
		file, isFile := strings.CutPrefix(string(origin), "file:")
		if !isFile {
			continue // what Git() sets for the run
		}
		settings.values[p.key] = p
		file = absoluteFrom(s.commonDir, file)
		paths := []string{file}
		if p.key == "include.path" || strings.HasPrefix(p.key, "includeif.") && strings.HasSuffix(p.key, ".path") {
			if included, err := expandHome(p.value); err == nil {
				paths = append(paths, absoluteFrom(filepath.Dir(file), included))
			}
		}
		for _, path := range paths {
			if _, seen := stamps[path]; !seen {
				stamp := stampOf(path)
				// Racy: changed while or just before git read it.
				stamp.racy = stamp.changed.After(start.Add(-granularity(stamp.changed)))
				stamps[path] = stamp
			}
		}
	}
	c.current = settings
	return settings, nil
}

// configPlaces are the files Git reads if they exist (FILES in git-config(1)).
// The system file's place is compiled into Git; if it exists, --show-origin
// names it. HEAD is among them for includeIf "onbranch:".
func (s *Store) configPlaces() []string {
	places := []string{
		filepath.Join(s.commonDir, "config"),
		filepath.Join(s.gitDir, "config.worktree"),
		filepath.Join(s.gitDir, "HEAD"),
		"/etc/gitconfig",
	}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, filepath.Join(home, ".gitconfig"))
		xdg := os.Getenv("XDG_CONFIG_HOME")
		if xdg == "" {
			xdg = filepath.Join(home, ".config")
		}
		places = append(places, filepath.Join(xdg, "git", "config"))
	}
	return places
}

// granularity is how long a file of this time may change again without its time
// moving: file systems stamp with the kernel's tick (10 ms at the slowest), some
// with whole seconds.
func granularity(changed time.Time) time.Duration {
	if changed.Nanosecond() == 0 {
		return 1100 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// fileStamp tells versions of a file apart.
type fileStamp struct {
	size    int64 // -1 if there is no such file
	changed time.Time
	racy    bool // may have changed since without showing: never trusted
}

func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{size: -1}
	}
	return fileStamp{
		size:    info.Size(),
		changed: info.ModTime(),
		racy:    time.Since(info.ModTime()) < granularity(info.ModTime()),
	}
}

func (s *Settings) fresh() bool {
	for path, old := range s.stamps {
		now := stampOf(path)
		if old.racy || now.size != old.size || !now.changed.Equal(old.changed) {
			return false
		}
	}
	return true
}

// configPair is one line of a config; bare is a key without "=".
type configPair struct {
	key, value string
	bare       bool
}

func (p configPair) bool() (bool, error) {
	if p.bare {
		return true, nil
	}
	switch strings.ToLower(p.value) {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off", "":
		return false, nil
	}
	n, err := p.int()
	if err != nil {
		return false, fmt.Errorf("%s is %q, not a boolean", p.key, p.value)
	}
	return n != 0, nil
}

func (p configPair) int() (int64, error) {
	digits, unit := strings.TrimLeft(p.value, " \t\r\n"), int64(1)
	if digits != "" {
		switch digits[len(digits)-1] {
		case 'k', 'K':
			unit = 1 << 10
		case 'm', 'M':
			unit = 1 << 20
		case 'g', 'G':
			unit = 1 << 30
		}
		if unit > 1 {
			digits = digits[:len(digits)-1]
		}
	}
	n, err := strconv.ParseInt(digits, 0, 64)
	if err != nil || n > math.MaxInt64/unit || n < math.MinInt64/unit {
		return 0, fmt.Errorf("%s is %q, not a number", p.key, p.value)
	}
	return n * unit, nil
}

// canonicalKey lower-cases the section and the variable, as Git prints them.
func canonicalKey(key string) string {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first < 0 {
		return strings.ToLower(key)
	}
	return strings.ToLower(key[:first]) + key[first:last] + strings.ToLower(key[last:])
}

// parsePair reads an item of `git config -z --list`: "key\nvalue", or "key".
func parsePair(item []byte) configPair {
	key, value, ok := strings.Cut(string(item), "\n")
	return configPair{key, value, !ok}
}

func expandHome(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, rest), nil
}

// commandError adds what a program wrote to standard error to its exit status.
func commandError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if text := strings.TrimSpace(string(exit.Stderr)); text != "" {
			return fmt.Errorf("%w: %s", err, text)
		}
	}
	return err
}
