package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// goModule is a repository of a real module with all sources its build needs:
// this one, its dependencies vendored. So most of what the go command reads
// lies in the directory that is measured and not in the module cache.
func (s *session) goModule(ctx context.Context) (string, error) {
	source := s.path("module")
	if err := copySources(s.module, source); err != nil {
		return "", fmt.Errorf("copying the module: %w", err)
	}
	vendor := s.command(ctx, source, "go", "mod", "vendor")
	if _, err := output(vendor); err != nil {
		return "", err
	}
	repository := s.path("repository")
	if err := git(ctx, s.dir, "init", "--quiet", "--initial-branch=main", repository); err != nil {
		return "", err
	}
	err := fastImport(ctx, repository, func(add addFile) error { return addDirectory(source, add) })
	return repository, err
}

// copySources copies the regular files of a module, Git's and hidden ones
// left out.
func copySources(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if rel != "." && entry.Name()[0] == '.' {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
}

// goTool runs the go command in a directory, and reads nothing but what is
// there, the toolchain and the build cache. With -trimpath the results are the
// same whatever the directory is called, so one build warms the cache for all;
// without a stamp the go command does not ask Git for anything.
func (s *session) goTool(ctx context.Context, dir, verb string) *exec.Cmd {
	cmd := s.command(ctx, dir, "go", verb, "-mod=vendor", "-trimpath", "-buildvcs=false", "./...")
	cmd.Env = append(cmd.Env, "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	return cmd
}

// runBuild compares builds that find all their results in the build cache:
// what is left is the reading of sources, which is what a workspace changes.
func runBuild(ctx context.Context, s *session) error {
	repository, err := s.goModule(ctx)
	if err != nil {
		return err
	}
	plain, err := s.checkout(ctx, repository)
	if err != nil {
		return err
	}
	if err := s.freshDaemon(ctx); err != nil {
		return err
	}
	w, err := s.create(ctx, repository)
	if err != nil {
		return err
	}
	// The go command trusts a directory's times only when they are two seconds
	// old: the first builds outlast that.
	warmUps := map[string]int{"build": 2, "vet": 1}
	for _, verb := range []string{"build", "vet"} {
		run := func(dir string) step {
			return func(ctx context.Context) (time.Duration, error) {
				cmd := s.goTool(ctx, dir, verb)
				began := time.Now()
				_, err := output(cmd)
				return time.Since(began), err
			}
		}
		if _, _, err := alternate(ctx, warmUps[verb], run(w.dir), run(plain)); err != nil {
			return err
		}
		ours, theirs, err := alternate(ctx, s.reps, run(w.dir), run(plain))
		if err != nil {
			return err
		}
		s.time("go "+verb+" ./..., warm build cache", ours).against("plain", theirs).ratioAtMost(1.1)
	}
	return nil
}
