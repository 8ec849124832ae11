//go:build unix

package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// checkOwner refuses a repository of another user: its config can name programs
// that Git runs. It is Git's own rule (ensure_valid_ownership in setup.c), which
// naming the git directory, as Git() does, passes by: the repository must belong
// to this user or, for root, to the one who called sudo; or safe.directory in
// the user's or the system's config must name it (git-config(1)).
func (s *Store) checkOwner() error {
	foreign := ""
	for _, path := range []string{s.gitDir, s.commonDir, s.workTree} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a checkout that is gone
		}
		if err != nil {
			return err
		}
		if !ownUID(info.Sys().(*syscall.Stat_t).Uid) {
			foreign = path
			break
		}
	}
	if foreign == "" {
		return nil
	}
	safe, err := s.declaredSafe()
	if err != nil || safe {
		return err
	}
	return fmt.Errorf("%s belongs to another user: %w", foreign, ErrForeignOwner)
}

func ownUID(uid uint32) bool {
	if uid == uint32(os.Geteuid()) {
		return true
	}
	sudo, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32)
	return os.Geteuid() == 0 && err == nil && uid == uint32(sudo)
}

// declaredSafe reports whether safe.directory names the repository. Only the
// system's and the user's config count.
func (s *Store) declaredSafe() (bool, error) {
	safe := false
	for _, scope := range []string{"--system", "--global"} {
		cmd := exec.Command("git", "config", scope, "-z", "--get-all", "safe.directory")
		cmd.Dir, cmd.Env = "/", gitEnvironment()
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			continue // not set, or there is no such file
		}
		if err != nil {
			return false, fmt.Errorf("read safe.directory: %w", err)
		}
		for _, value := range bytes.Split(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
			switch dir := string(value); {
			case dir == "":
				safe = false
			case dir == "*" || s.named(dir):
				safe = true
			}
		}
	}
	return safe, nil
}

// named reports whether a value of safe.directory means this repository: its
// path, or a directory above it with "/*" at the end.
func (s *Store) named(value string) bool {
	above, below := strings.CutSuffix(value, "/*")
	dir, err := expandHome(above)
	if err != nil {
		return false
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	for _, path := range []string{s.workTree, s.gitDir, s.commonDir} {
		if path != "" && (path == dir || below && strings.HasPrefix(path, dir+"/")) {
			return true
		}
	}
	return false
}
