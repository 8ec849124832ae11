package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/mountmgr"
)

func (t *tool) tryCommand() *cli.Command {
	return &cli.Command{
		Name:      "try",
		Usage:     "show the whole story on a sample repository",
		UsageText: "relofs try",
		Description: `Makes a repository in a temporary directory and lets two agents work in it with
ordinary tools. A daemon of its own serves it, and all of it is gone at the end.`,
		Action: func(c *cli.Context) error {
			if _, err := take(c, 0, 0); err != nil {
				return err
			}
			return t.try(c.Context)
		},
	}
}

// cleanUpTime bounds the end of a story, also of an interrupted one.
const cleanUpTime = 15 * time.Second

func (t *tool) try(ctx context.Context) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s, err := newStory(t)
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() != nil {
			err = errcode.New(errcode.Canceled, nil, "interrupted")
		}
		// Whatever happened: nothing stays.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
		err = errors.Join(err, s.cleanUp(clean))
	}()
	for _, part := range []func(context.Context) error{
		s.sample, s.agents, s.look, s.untouched, s.undo, s.end,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// story is one run of `relofs try`.
type story struct {
	tool    *tool
	root    string // the temporary directory
	repo    string // the sample repository
	goTool  bool   // Go is there to build and test with
	chapter int
	start   time.Time
	before  []byte // the checkout before the agents came

	mu sync.Mutex // keeps lines of two agents whole
}

func newStory(t *tool) (*story, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, errcode.New(errcode.Internal, err, "find this program's own file")
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errcode.New(errcode.Internal, err, "the story needs the git program")
	}
	s := &story{tool: t, start: time.Now()}
	_, err = exec.LookPath("go")
	s.goTool = err == nil
	if err := s.findRoom(); err != nil {
		return nil, err
	}
	s.repo = filepath.Join(s.root, "sample")
	// A runtime and a state directory of its own: the user's daemon, if one
	// runs, is not met. api.Connect in this process looks at them as well.
	// Scripts of the story find this program as "relofs".
	dirs := map[string]string{}
	for _, name := range []string{"run", "state", "bin"} {
		dirs[name] = filepath.Join(s.root, name)
		err = errors.Join(err, os.Mkdir(dirs[name], 0o700))
	}
	err = errors.Join(err, os.Symlink(program, filepath.Join(dirs["bin"], "relofs")),
		os.Setenv("XDG_RUNTIME_DIR", dirs["run"]), os.Setenv("XDG_STATE_HOME", dirs["state"]),
		os.Setenv("PATH", dirs["bin"]+string(filepath.ListSeparator)+os.Getenv("PATH")))
	for name, value := range sampleEnv {
		err = errors.Join(err, os.Setenv(name, value))
	}
	if err != nil {
		return nil, errors.Join(errcode.New(errcode.Internal, err, "prepare the story"), os.RemoveAll(s.root))
	}
	return s, nil
}

// findRoom makes the temporary directory where an overlay's upper can lie.
func (s *story) findRoom() error {
	var report mountmgr.Report
	for _, dir := range []string{os.TempDir(), "/var/tmp", "/dev/shm"} {
		root, err := os.MkdirTemp(dir, "relofs-try-")
		if err != nil {
			continue
		}
		if root, err = filepath.EvalSymlinks(root); err != nil {
			return errcode.New(errcode.Internal, err, "prepare the story")
		}
		here := mountmgr.Probe(root)
		if here.OK() {
			s.root = root
			return nil
		}
		os.Remove(root)
		if report.Checks == nil {
			report = here
		}
	}
	for _, c := range report.Checks {
		if c.Status == mountmgr.Fail {
			return errcode.New(c.Code, nil, "workspaces cannot be mounted here: %s: %s", c.Name, c.Detail)
		}
	}
	return errcode.New(errcode.Internal, nil, "no temporary directory can be made")
}

// cleanUp ends the daemon, which unmounts everything, and removes the files.
func (s *story) cleanUp(ctx context.Context) error {
	client, err := api.Connect(ctx, api.Options{})
	switch {
	case api.NotRunning(err):
	case err != nil:
		return err
	default:
		if _, err := client.DaemonStop(ctx); err != nil {
			return err // with mounts, nothing below may be deleted
		}
	}
	if err := os.RemoveAll(s.root); err != nil {
		return errcode.New(errcode.Internal, err, "remove %s", s.root)
	}
	return nil
}

// title begins a chapter.
func (s *story) title(text string) {
	s.chapter++
	fmt.Fprintf(s.tool.out, "\n%s\n", s.tool.paint(bold, fmt.Sprintf("%d. %s", s.chapter, text)))
}

func (s *story) say(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		fmt.Fprintf(s.tool.out, "   %s\n", strings.TrimRight(line, "\n"))
	}
}

// run shows a command and its output and returns its exit status.
func (s *story) run(ctx context.Context, dir, name string, args ...string) (int, error) {
	s.prompt(commandLine(name, args))
	cmd := s.command(ctx, dir, name, args...)
	out, err := cmd.CombinedOutput()
	s.say("%s", bytes.TrimRight(out, "\n"))
	return exitOf(ctx, cmd, err)
}

func (s *story) prompt(line string) { s.say("%s", s.tool.paint(dim, "$ "+line)) }

// must is run for a command that has to succeed.
func (s *story) must(ctx context.Context, dir, name string, args ...string) error {
	status, err := s.run(ctx, dir, name, args...)
	if err == nil && status != 0 {
		err = errcode.New(errcode.Internal, nil, "%s ended with status %d", commandLine(name, args), status)
	}
	return err
}

func (s *story) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	// On an interruption everybody gets to clean up.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func exitOf(ctx context.Context, cmd *exec.Cmd, err error) (int, error) {
	if ctx.Err() != nil {
		return 0, errcode.New(errcode.Canceled, nil, "interrupted")
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, errcode.New(errcode.Internal, err, "run %s", cmd.Path)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// agent runs a script as an agent would and shows its output line by line,
// under the agent's name.
func (s *story) agent(ctx context.Context, name, script string) error {
	cmd := s.command(ctx, s.repo, "relofs", "run", name, "--", "sh", "-euc", script)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	done := make(chan error, 1)
	go func() {
		err := cmd.Run()
		w.Close()
		done <- err
	}()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		s.mu.Lock()
		s.say("%s %s", s.tool.paint(yellow, fmt.Sprintf("%-4s|", name)), lines.Text())
		s.mu.Unlock()
	}
	status, err := exitOf(ctx, cmd, <-done)
	if err == nil && status != 0 {
		err = errcode.New(errcode.Internal, nil, "agent %s ended with status %d", name, status)
	}
	return err
}

// both runs two things at once.
func both(a, b func() error) error {
	done := make(chan error, 1)
	go func() { done <- a() }()
	return errors.Join(b(), <-done)
}

// commandLine is a command as one would type it.
func commandLine(name string, args []string) string {
	if name == "sh" && len(args) == 2 && args[0] == "-c" {
		return args[1]
	}
	words := append([]string{name}, args...)
	for i, w := range words {
		if strings.ContainsAny(w, " \t\n'\"$`\\*?{}()|&;<>") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
