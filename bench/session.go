package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// session is the world of one workload: a working directory with clones and
// checkouts, and a daemon that nobody else meets. close ends it.
type session struct {
	*config
	workload string
	dir      string   // clones, checkouts and mount points; on the library's filesystem
	runtime  string   // the socket's directory: short, as sun_path holds 108 bytes
	env      []string // of every program the session runs
	started  bool     // a daemon was started
	serial   int      // for names that are used once
}

func newSession(c *config, workload string) (*session, error) {
	dir, err := os.MkdirTemp(c.library.dir, "session-")
	if err != nil {
		return nil, fmt.Errorf("making a working directory: %w", err)
	}
	runtime, err := os.MkdirTemp("", "relofs-bench-")
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("making a runtime directory: %w", err)
	}
	return &session{
		config: c, workload: workload, dir: dir, runtime: runtime,
		env: append(gitEnvironment(),
			"XDG_RUNTIME_DIR="+runtime,
			"XDG_STATE_HOME="+filepath.Join(dir, "state"),
		),
	}, nil
}

// close stops the daemon and unmounts what it may have left. It works after an
// interrupt as well. The session's directories go when the run ends: an ext4
// without a journal passes over every inode freed in the last minutes when it
// makes a file (fs/ext4/ialloc.c: recently_deleted), and one removed tree
// would slow down all that is measured afterwards.
func (s *session) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	if s.started {
		errs = append(errs, s.stopDaemon(ctx))
	}
	for _, point := range s.mounts() {
		errs = append(errs, fmt.Errorf("left mounted: %s", point))
		if _, err := output(exec.CommandContext(ctx, "umount", "-l", point)); err != nil {
			errs = append(errs, err)
		}
	}
	if len(s.mounts()) == 0 { // else removing would go through the mount
		s.trash = append(s.trash, s.dir, s.runtime)
	}
	return errors.Join(errs...)
}

// mounts lists the mount points in the session's directories, the innermost
// first.
func (s *session) mounts() []string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var points []string
	for _, m := range parseMounts(string(table)) {
		if isBelow(m.point, s.dir) || isBelow(m.point, s.runtime) {
			points = append(points, m.point)
		}
	}
	slices.Reverse(points)
	return points
}

// command prepares a program in a directory, "" for the session's own, with
// the session's environment.
func (s *session) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, s.env
	if dir == "" {
		cmd.Dir = s.dir
	}
	return cmd
}

// timed runs a program and says how long it took, its start included.
func (s *session) timed(ctx context.Context, dir, name string, args ...string) (time.Duration, error) {
	cmd := s.command(ctx, dir, name, args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, excerpt(complaint.String()))
	}
	return took, nil
}

// path is a name in the session's directory that is used once.
func (s *session) path(name string) string {
	s.serial++
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d", name, s.serial))
}

// clone makes a repository of the session's own, without a checkout, from one
// that must stay as it is. Git links the packs where it can.
func (s *session) clone(ctx context.Context, from string) (string, error) {
	dir := s.path("repository")
	return dir, git(ctx, s.dir, "clone", "--quiet", "--local", "--no-checkout", from, dir)
}

// checkout is a plain checkout of the repository's HEAD, a Git worktree.
func (s *session) checkout(ctx context.Context, repository string) (string, error) {
	dir, _, err := s.timedCheckout(ctx, repository)
	return dir, err
}

func (s *session) timedCheckout(ctx context.Context, repository string) (string, time.Duration, error) {
	dir := s.path("plain")
	took, err := s.timed(ctx, repository, "git", "worktree", "add", "--quiet", "--detach", dir, "HEAD")
	return dir, took, err
}

// tree is a clone of the repository that reads and writes are measured in: the
// one given with -repo, or the Go source tree.
func (s *session) tree(ctx context.Context) (string, error) {
	source := s.repo
	if source == "" {
		var err error
		if source, err = s.library.goSource(ctx); err != nil {
			return "", err
		}
	}
	return s.clone(ctx, source)
}

// synthetic is a clone of a made repository with that many files.
func (s *session) synthetic(ctx context.Context, files int) (string, error) {
	source, err := s.library.synthetic(ctx, files)
	if err != nil {
		return "", err
	}
	return s.clone(ctx, source)
}

// regularFiles lists the paths of regular files as git-ls-tree(1) does with
// these arguments, at least one.
func (s *session) regularFiles(ctx context.Context, repository string, args ...string) ([]string, error) {
	out, err := output(s.command(ctx, repository, "git", append([]string{"ls-tree", "-z"}, args...)...))
	if err != nil {
		return nil, err
	}
	var paths []string
	for entry := range strings.SplitSeq(string(out), "\x00") {
		mode, path, _ := strings.Cut(entry, "\t")
		if strings.HasPrefix(mode, "100") {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("git ls-tree %s: no regular files", strings.Join(args, " "))
	}
	return paths, nil
}

// countLabel says how many files the repository's HEAD has.
func (s *session) countLabel(ctx context.Context, repository string) (string, error) {
	out, err := output(s.command(ctx, repository, "git", "ls-tree", "-r", "-z", "--name-only", "HEAD"))
	n := strings.Count(string(out), "\x00")
	if n >= 1000 {
		return fmt.Sprintf("%d,%03d files", n/1000, n%1000), err
	}
	return fmt.Sprintf("%d files", n), err
}
