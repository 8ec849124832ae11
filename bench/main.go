// Command bench measures what relofs promises, on the machine it runs on.
//
//	go run ./bench                  all workloads, a table
//	go run ./bench -run 'read|write-latency' -reps 9
//	go run ./bench -json > bench.json
//	go run ./bench -repo ~/src/linux -run read
//
// It builds relofs from the checkout it lies in, drives it through its command
// line alone, and prints every figure next to a baseline of the same run and
// the bound that the figure has to keep. Absolute times of one machine say
// little about another; the ratios say more, so the two sides of a ratio are
// measured in turns (A B, B A, A B, ...) and their medians are compared.
//
// Each workload has a session of its own: clones of the repositories it needs,
// a daemon with private XDG directories, mounts. The daemon and the mounts end
// with the workload, the directories with the run, also at an error or an
// interrupt. The user's daemon and the repository given with -repo are never touched. Only
// the repositories that are made for the purpose stay, in the cache directory.
//
// The exit status is 1 if a workload could not be measured, 0 otherwise:
// whether a bound was kept is for the reader and for -json to say.
//
// The folders below hold benchmarks of single packages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// workload is one entry of the list below: its name for -run, what it is
// about, and the function that measures it.
type workload struct {
	name string
	what string
	run  func(ctx context.Context, s *session) error
}

// In this order: what frees many inodes comes last, see session.close.
var workloads = []workload{
	{"create", "workspaces created and mounted, at three sizes of repository", runCreate},
	{"read", "searching and walking a mounted workspace", runRead},
	{"build", "go build and go vet of a module with its dependencies", runBuild},
	{"memory-build", "the daemon after a build in each of 20 workspaces", runMemoryBuild},
	{"memory-idle", "the daemon with 100 idle workspaces of 20,000 files", runMemoryIdle},
	{"write-latency", "from an edit to its revision, without anyone asking", runWriteLatency},
	{"write-size", "one edit in a small and in a huge repository", runWriteSize},
	{"write-rename", "renaming an unmodified directory of 10,000 files", runWriteRename},
	{"write-many", "3,000 new files made into one revision", runWriteMany},
	{"write-tree", "unpacking and removing a whole source tree", runWriteTree},
}

// config is what the flags say and what all sessions share.
type config struct {
	reps    int
	repo    string // to measure instead of the Go source tree, "" for that
	library library
	module  string // directory of the module this program belongs to
	program string // the relofs executable
	report  *report
	trash   []string // directories to remove at the end of the run
}

// few is the number of repetitions of a step that takes seconds.
func (c *config) few() int { return min(c.reps, 3) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// errUsage is returned for flags that the flag package has complained about.
var errUsage = errors.New("usage")

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	pattern := flags.String("run", "", "measure only the workloads whose name matches this `regexp`")
	reps := flags.Int("reps", 5, "repetitions of each step; those that take seconds are done at most 3 times")
	repo := flags.String("repo", "", "measure this repository (a clone of it) instead of the Go source `tree`")
	cache := flags.String("cache", "", "`directory` that keeps made repositories between runs (default: relofs-bench in the user's cache directory)")
	program := flags.String("relofs", "", "measure this `program` instead of building one")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: go run ./bench [flags]")
		flags.PrintDefaults()
		fmt.Fprintln(flags.Output(), "workloads:")
		for _, w := range workloads {
			fmt.Fprintf(flags.Output(), "  %-14s %s\n", w.name, w.what)
		}
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	selected, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if flags.NArg() > 0 || *reps < 1 {
		flags.Usage()
		return errUsage
	}

	c := &config{reps: *reps, report: &report{Format: reportFormat}}
	defer func() {
		for _, dir := range c.trash {
			os.RemoveAll(dir)
		}
	}()
	if *repo != "" {
		if c.repo, err = filepath.Abs(*repo); err != nil {
			return err
		}
	}
	if c.library, err = openLibrary(*cache); err != nil {
		return err
	}
	if c.module, err = moduleDir(ctx); err != nil {
		return err
	}
	if c.program, err = filepath.Abs(*program); err != nil {
		return err
	}
	if *program == "" {
		dir, err := os.MkdirTemp("", "relofs-bench-bin-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		c.program = filepath.Join(dir, "relofs")
		build := exec.CommandContext(ctx, "go", "build", "-o", c.program, "./cmd/relofs")
		build.Dir = c.module
		if _, err := output(build); err != nil {
			return fmt.Errorf("building relofs: %w", err)
		}
	}
	c.report.Machine = describeMachine(ctx, c)

	var failed []string
	for _, w := range workloads {
		if !selected.MatchString(w.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%-14s %s ", w.name, w.what)
		began := time.Now()
		err := runWorkload(ctx, c, w)
		fmt.Fprintf(os.Stderr, "(%.1f s)\n", time.Since(began).Seconds())
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%-14s %v\n", w.name, err)
			c.report.Failed = append(c.report.Failed, failure{w.name, err.Error()})
			failed = append(failed, w.name)
		}
		if ctx.Err() != nil {
			break
		}
	}
	c.report.Machine.LoadAfter = loadAverage()
	if *asJSON {
		err = c.report.writeJSON(os.Stdout)
	} else {
		err = c.report.writeTable(os.Stdout)
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if len(failed) > 0 {
		return fmt.Errorf("not measured to the end: %s", strings.Join(failed, ", "))
	}
	return nil
}

// runWorkload measures one workload in a session that ends with it.
func runWorkload(ctx context.Context, c *config, w workload) (err error) {
	s, err := newSession(c, w.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := w.run(ctx, s); err != nil {
		return fmt.Errorf("%w%s", err, s.daemonLog())
	}
	return nil
}

// moduleDir is where the module of this program lies: `go run` works anywhere
// inside of it.
func moduleDir(ctx context.Context) (string, error) {
	out, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/relofs/relofs"))
	if err != nil {
		return "", fmt.Errorf("run it inside a checkout of relofs: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// output runs cmd and returns what it printed; the error holds what it
// complained about.
func output(cmd *exec.Cmd) ([]byte, error) {
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, excerpt(string(exit.Stderr)))
		}
		return out, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return out, nil
}

// excerpt is the beginning of what a program complained about: if all files of
// a tree have something wrong with them, the first ones tell enough.
func excerpt(complaint string) string {
	const lines = 5
	all := strings.Split(strings.TrimSpace(complaint), "\n")
	if len(all) > lines {
		all = append(all[:lines], fmt.Sprintf("... and %d lines more", len(all)-lines))
	}
	return strings.Join(all, "\n")
}
