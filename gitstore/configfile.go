package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// configFile reads one config file without its includes; a file that is not
// there is empty. Opening a repository needs it, so a file of the plain form in
// which Git itself writes it is read here, and any other by Git.
func configFile(path string) ([]configPair, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if pairs, plain := plainConfig(string(data)); plain {
		return pairs, nil
	}
	return configFileByGit(path)
}

// Lines of a plain config file: a section header alone, or a variable with a
// value that needs no quotes (git-config(1), CONFIGURATION FILE, Syntax).
var (
	plainSection  = regexp.MustCompile(`^\[([A-Za-z0-9-]+)(?: "([^"\\]*)")?\]$`)
	plainVariable = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]*)[ \t]*=[ \t]*([^"\\#;\x00-\x1f]*)$`)
)

// plainConfig reads a config file that has plain lines only, and reports false
// for any other.
func plainConfig(text string) (pairs []configPair, plain bool) {
	section := ""
	for line := range strings.Lines(text) {
		line = strings.Trim(line, " \t\r\n")
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if m := plainSection.FindStringSubmatch(line); m != nil {
			section = strings.ToLower(m[1]) + "."
			if strings.Contains(line, `"`) {
				section += m[2] + "."
			}
			continue
		}
		m := plainVariable.FindStringSubmatch(line)
		if m == nil || section == "" {
			return nil, false
		}
		pairs = append(pairs, configPair{section + strings.ToLower(m[1]), m[2], false})
	}
	return pairs, true
}

func configFileByGit(path string) ([]configPair, error) {
	cmd := exec.Command("git", "config", "--file", path, "-z", "--no-includes", "--list")
	cmd.Dir = filepath.Dir(path)
	cmd.Env = gitEnvironment()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, commandError(err))
	}
	var pairs []configPair
	for len(out) > 0 {
		var item []byte
		item, out, _ = bytes.Cut(out, []byte{0})
		pairs = append(pairs, parsePair(item))
	}
	return pairs, nil
}
