package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// library keeps the repositories that are made to be measured, bare, in one
// directory. They depend on nothing but their names, so one that is there is
// used again. Sessions clone them and never write to them.
type library struct{ dir string }

// openLibrary makes the directory if need be; "" stands for the default.
func openLibrary(dir string) (library, error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return library{}, fmt.Errorf("no place for made repositories, give -cache: %w", err)
		}
		dir = filepath.Join(cache, "relofs-bench")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return library{}, err
	}
	// Mounts are found again by their path, in which no link is left.
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return library{}, err
	}
	dir, err = filepath.Abs(dir)
	return library{dir}, err
}

// synthetic is a repository of exactly that many files.
func (l library) synthetic(ctx context.Context, files int) (string, error) {
	name := fmt.Sprintf("synthetic-%d-v%d.git", files, syntheticVersion)
	return l.need(ctx, name, func(dir string) error {
		return fastImport(ctx, dir, func(add addFile) error { return generate(files, add) })
	})
}

// goSource is the source tree of the installed Go: about 15,000 real files. It
// is packed as a clone would be, with deltas.
func (l library) goSource(ctx context.Context) (string, error) {
	out, err := output(exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOROOT"))
	if err != nil {
		return "", err
	}
	version, root, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return l.need(ctx, strings.ReplaceAll(version, " ", "_")+".git", func(dir string) error {
		err := fastImport(ctx, dir, func(add addFile) error { return addDirectory(root, add) })
		if err != nil {
			return err
		}
		return git(ctx, dir, "repack", "-a", "-d", "-f", "-q")
	})
}

// need returns the bare repository of that name, made by fill if it is not
// there yet. A half-made one never has the name.
func (l library) need(ctx context.Context, name string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(l.dir, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fmt.Fprintf(os.Stderr, "[making %s] ", name)
	made, err := os.MkdirTemp(l.dir, "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made)
	if err := git(ctx, l.dir, "init", "--quiet", "--bare", "--initial-branch=main", made); err != nil {
		return "", err
	}
	if err := fill(made); err != nil {
		return "", fmt.Errorf("making %s: %w", name, err)
	}
	if err := os.Rename(made, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// git runs a command of Git in a directory.
func git(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = dir, gitEnvironment()
	_, err := output(cmd)
	return err
}

// gitEnvironment is this process's environment without what would make Git,
// or relofs, behave as on no other machine, and with an identity.
func gitEnvironment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "GIT_") && !strings.HasPrefix(entry, "XDG_") {
			env = append(env, entry)
		}
	}
	return append(env, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@localhost",
		"GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@localhost")
}
