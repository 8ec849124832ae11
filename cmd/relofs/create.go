package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

func newWorkspaceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "base", Usage: "start from the commit `REF` names; HEAD if not given"},
		&cli.BoolFlag{Name: "read-only", Usage: "refuse every change in the directory"},
	}
}

func (t *tool) createCommand() *cli.Command {
	return &cli.Command{
		Name:        "create",
		Usage:       "create a workspace and mount it; prints the directory",
		UsageText:   "relofs create AGENT [--base REF] [--read-only]",
		Description: "No file is copied or checked out: the directory shows the commit's files and\nkeeps what is written in it apart from the repository's checkout.",
		Flags:       newWorkspaceFlags(),
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (*api.MountResponse, error) {
			return client.Create(c.Context, api.CreateRequest{
				Target: target, Base: c.String("base"), ReadOnly: c.Bool("read-only"),
			})
		}, func(_ string, resp *api.MountResponse) { t.printDirectory(resp) }),
	}
}

func (t *tool) mountCommand() *cli.Command {
	return &cli.Command{
		Name:        "mount",
		Usage:       "mount a workspace; prints the directory",
		UsageText:   "relofs mount AGENT [DIR]",
		Description: "DIR must be empty or not exist. Without it the workspace is mounted where it\nwas last, or at its default place below $XDG_STATE_HOME/relofs.",
		Action: func(c *cli.Context) error {
			args, err := take(c, 1, 2)
			if err != nil {
				return err
			}
			req := api.MountRequest{Target: t.target(args[0])}
			if len(args) == 2 {
				req.Directory = t.path(args[1])
			}
			client, err := t.connect(c.Context)
			if err != nil {
				return err
			}
			resp, err := client.Mount(c.Context, req)
			return answer(t, resp, err, t.printDirectory)
		},
	}
}

func (t *tool) printDirectory(resp *api.MountResponse) {
	fmt.Fprintln(t.out, resp.Workspace.Directory)
}

func (t *tool) unmountCommand() *cli.Command {
	return &cli.Command{
		Name:        "unmount",
		Usage:       "publish what was written and take the directory away",
		UsageText:   "relofs unmount AGENT [--force]",
		Description: "The workspace and all that was written in it stay; `relofs mount` brings the\ndirectory back.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "also while programs use the directory"},
		},
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (*api.UnmountResponse, error) {
			return client.Unmount(c.Context, api.UnmountRequest{Target: target, Force: c.Bool("force")})
		}, func(agent string, resp *api.UnmountResponse) {
			t.problems(resp.Problems)
			fmt.Fprintf(t.out, "Unmounted %s at revision %d (%s).\n", agent, resp.Workspace.Revision, short(resp.Workspace.Commit))
		}),
	}
}

// problems prints what did not work in a command that did.
func (t *tool) problems(list []string) {
	for _, p := range list {
		fmt.Fprintln(t.errOut, "relofs:", p)
	}
}

// path is what the command of this name prints.
type path struct {
	Agent     string `json:"agent"`
	Directory string `json:"directory"`
}

func (t *tool) pathCommand() *cli.Command {
	return &cli.Command{
		Name:      "path",
		Usage:     "print the directory of a mounted workspace",
		UsageText: "relofs path AGENT",
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (path, error) {
			w, err := client.Workspace(c.Context, target)
			if err != nil {
				return path{}, err
			}
			if w.State != api.Mounted {
				return path{}, errcode.New(errcode.NotMounted, nil, "workspace %s is not mounted", target.Agent)
			}
			return path{target.Agent, w.Directory}, nil
		}, func(_ string, p path) { fmt.Fprintln(t.out, p.Directory) }),
	}
}
