package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

func (t *tool) runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a command in an agent's directory",
		UsageText: "relofs run AGENT [--base REF] [--read-only] -- CMD...",
		Description: `The workspace is created if it is new, and mounted. CMD runs in its directory,
or in the subdirectory that corresponds to the working directory, with
RELOFS_AGENT and RELOFS_WORKSPACE (the directory) in its environment. Signals
reach it, what it wrote is published when it ends, and relofs exits with its
status, or with 128 plus the signal that ended it; with 1 if CMD succeeded and
what it wrote could not be published. The directory stays mounted.`,
		Flags:  newWorkspaceFlags(),
		Action: t.run,
	}
}

func (t *tool) run(c *cli.Context) error {
	o := operandsOf(c)
	if len(o.args) != 1 || len(o.rest) == 0 {
		return misuse(c)
	}
	agent := o.args[0]
	client, err := t.connect(c.Context)
	if err != nil {
		return err
	}
	resp, err := client.Create(c.Context, api.CreateRequest{
		Target: t.target(agent), Base: c.String("base"), ReadOnly: c.Bool("read-only"), Existing: true,
	})
	if err != nil {
		return err
	}
	workspace := resp.Workspace.Directory
	dir := workspace
	if sub := filepath.Join(workspace, resp.Prefix); isDir(sub) {
		dir = sub
	}
	status, err := execute(o.rest, dir, commandEnv(os.Environ(), agent, workspace, dir))
	if err != nil {
		return err
	}
	if err := t.syncAfterRun(c.Context, client, t.target(agent)); err != nil {
		t.printError(err)
		if status == 0 {
			status = errcode.Of(err).Exit()
		}
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// repositoryVariables bind Git to one repository (`git rev-parse
// --local-env-vars`). Left over from a hook, they would have CMD work on the
// user's checkout instead of the directory it runs in.
var repositoryVariables = []string{
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT",
	"GIT_OBJECT_DIRECTORY", "GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_GRAFT_FILE",
	"GIT_INDEX_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_PREFIX",
	"GIT_SHALLOW_FILE", "GIT_COMMON_DIR",
}

// commandEnv is the environment of a command in a workspace.
func commandEnv(env []string, agent, workspace, dir string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(repositoryVariables, name)
	})
	// Git must not walk up out of the workspace and take a repository the
	// mount point happens to lie in (a home directory under Git) for this one.
	ceiling := filepath.Dir(workspace)
	if old := os.Getenv("GIT_CEILING_DIRECTORIES"); old != "" {
		ceiling += string(filepath.ListSeparator) + old
	}
	return append(env,
		"RELOFS_AGENT="+agent, "RELOFS_WORKSPACE="+workspace,
		"PWD="+dir, "GIT_CEILING_DIRECTORIES="+ceiling)
}

// syncAfterRun publishes what the command wrote and says so in one line.
func (t *tool) syncAfterRun(ctx context.Context, client *api.Client, target api.Target) error {
	before, err := client.Workspace(ctx, target)
	if errors.Is(err, errcode.WorkspaceNotFound) {
		return nil // the command removed it
	}
	if err != nil {
		return err
	}
	s, err := client.Sync(ctx, target)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("workspace %s is at revision %d (%s)", target.Agent, s.Number, short(s.Commit))
	if !s.Published && s.Tree == before.Tree && !before.Changed {
		text += ", no changes"
	}
	if n := len(s.NewlyExcluded); n > 0 {
		text += fmt.Sprintf("; %s left out, see `relofs status %s`", count(n, "path is", "paths are"), target.Agent)
	}
	fmt.Fprintf(t.errOut, "relofs: %s\n", text)
	return nil
}
