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
	"time"
)

// absentWord is in no file, so that a search reads all of them to their ends.
// It is put together here because this source may be in the tree searched.
var absentWord = strings.Join([]string{"qzx", "relofs", "absent", "jkv"}, "")

// runRead compares a mounted workspace with a plain checkout of the same
// commit, the page cache of both warm unless it says cold.
func runRead(ctx context.Context, s *session) error {
	if _, err := exec.LookPath("rg"); err != nil {
		return fmt.Errorf("needs ripgrep: %w", err)
	}
	repository, err := s.tree(ctx)
	if err != nil {
		return err
	}
	plain, err := s.checkout(ctx, repository)
	if err != nil {
		return err
	}
	search := func(dir string) step {
		return func(ctx context.Context) (time.Duration, error) { return s.search(ctx, dir) }
	}

	// Cold: a directory that did not exist a moment ago, under a daemon that
	// has read nothing. Making the directory is part of it on both sides, and
	// the second agent's is a second directory under the same daemon.
	var second samples
	fresh := func(ctx context.Context) (time.Duration, error) {
		if err := s.freshDaemon(ctx); err != nil {
			return 0, err
		}
		if err := os.RemoveAll(filepath.Join(repository, ".git", "relo", "cache")); err != nil {
			return 0, err
		}
		a, err := s.create(ctx, repository)
		if err != nil {
			return 0, err
		}
		took, err := s.search(ctx, a.dir)
		if err != nil {
			return 0, err
		}
		b, err := s.create(ctx, repository)
		if err != nil {
			return 0, err
		}
		again, err := s.search(ctx, b.dir)
		if err != nil {
			return 0, err
		}
		second = append(second, again)
		return a.wall + took, s.remove(ctx, a, b)
	}
	checkedOut := func(ctx context.Context) (time.Duration, error) {
		dir, made, err := s.timedCheckout(ctx, repository)
		if err != nil {
			return 0, err
		}
		took, err := s.search(ctx, dir)
		return made + took, err
	}
	cold, coldPlain, err := alternate(ctx, s.few(), fresh, checkedOut)
	if err != nil {
		return err
	}

	w, err := s.create(ctx, repository)
	if err != nil {
		return err
	}
	for _, dir := range []string{plain, w.dir} {
		if _, err := s.search(ctx, dir); err != nil {
			return err
		}
	}
	warm, warmPlain, err := alternate(ctx, s.reps, search(w.dir), search(plain))
	if err != nil {
		return err
	}
	s.time("rg, first run, creation included", cold).against("git worktree add + rg", coldPlain).ratioAtMost(1)
	s.time("rg, first run in a second workspace", second).against("plain, second run", warmPlain).ratioAtMost(4)
	s.time("rg, second run", warm).against("plain", warmPlain).ratioAtMost(1.5)

	find := func(dir string) step {
		return func(ctx context.Context) (time.Duration, error) {
			return s.timed(ctx, dir, "find", ".", "-size", "+1k")
		}
	}
	walk := func(dir string) step {
		return func(context.Context) (time.Duration, error) { return statAll(dir) }
	}
	for _, kind := range []struct {
		name string
		in   func(dir string) step
	}{
		{"find -size +1k, second run", find},
		{"lstat of every file, second run", walk},
	} {
		// The first run of each is not counted.
		if _, _, err := alternate(ctx, 1, kind.in(w.dir), kind.in(plain)); err != nil {
			return err
		}
		ours, theirs, err := alternate(ctx, s.reps, kind.in(w.dir), kind.in(plain))
		if err != nil {
			return err
		}
		s.time(kind.name, ours).against("plain", theirs).ratioAtMost(1.5)
	}
	return nil
}

// search times rg through all files of a directory. rg answers 1 if it found
// nothing, which is what has to happen.
func (s *session) search(ctx context.Context, dir string) (time.Duration, error) {
	cmd := s.command(ctx, dir, "rg", "--no-config", "--no-ignore", "--hidden", absentWord, ".")
	began := time.Now()
	_, err := output(cmd)
	took := time.Since(began)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && len(exit.Stderr) == 0 {
		return took, nil
	}
	if err == nil {
		err = fmt.Errorf("%q is in a file of %s", absentWord, dir)
	}
	return took, err
}

// statAll walks a directory and asks for the attributes of each entry.
func statAll(dir string) (time.Duration, error) {
	began := time.Now()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		_, err = entry.Info()
		return err
	})
	return time.Since(began), err
}
