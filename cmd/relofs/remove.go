package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
)

func (t *tool) removeCommand() *cli.Command {
	return &cli.Command{
		Name:        "remove",
		Usage:       "remove a workspace, its directory and its revisions",
		UsageText:   "relofs remove AGENT [--force]",
		Description: "A workspace that differs from its base is refused without --force. The\nrevisions' commits stay in the repository until Git's garbage collection.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "also with changes, and while programs use the directory"},
		},
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (*api.RemoveResponse, error) {
			return client.Remove(c.Context, api.RemoveRequest{Target: target, Force: c.Bool("force")})
		}, func(agent string, resp *api.RemoveResponse) {
			if resp.Commit == "" {
				fmt.Fprintf(t.out, "Removed what was left of %s.\n", agent)
				return
			}
			fmt.Fprintf(t.out, "Removed %s; its revision %d was commit %s.\n", agent, resp.Revision, resp.Commit)
		}),
	}
}
