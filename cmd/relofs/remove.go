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
		Action: func(c *cli.Context) error {
			agent, err := agentOnly(c)
			if err != nil {
				return err
			}
			client, err := t.connect(c.Context)
			if err != nil {
				return err
			}
			if err := client.Remove(c.Context, api.RemoveRequest{Target: t.target(agent), Force: c.Bool("force")}); err != nil {
				return err
			}
			if t.json {
				t.printJSON(map[string]string{"removed": agent})
				return nil
			}
			fmt.Fprintf(t.out, "Removed %s.\n", agent)
			return nil
		},
	}
}
