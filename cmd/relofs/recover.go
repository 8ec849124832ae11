package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

func (t *tool) recoverCommand() *cli.Command {
	return &cli.Command{
		Name:        "recover",
		Usage:       "check the workspaces and complete what was interrupted",
		UsageText:   "relofs recover",
		Description: "The daemon does this by itself when it opens a repository.",
		Action: func(c *cli.Context) error {
			if _, err := take(c, 0, 0); err != nil {
				return err
			}
			client, err := t.connect(c.Context)
			if err != nil {
				return err
			}
			resp, err := client.Recover(c.Context, api.RecoverRequest{Repository: t.repository()})
			if err != nil {
				return err
			}
			if t.json {
				t.printJSON(resp)
			} else {
				for _, text := range resp.Repaired {
					fmt.Fprintln(t.out, text)
				}
				t.problems(resp.Problems)
				if len(resp.Repaired)+len(resp.Problems) == 0 {
					fmt.Fprintf(t.out, "Nothing to mend in %s.\n", count(len(resp.Workspaces), "workspace", "workspaces"))
				}
			}
			if len(resp.Problems) > 0 {
				return exitStatus(errcode.DamagedWorkspace.Exit())
			}
			return nil
		},
	}
}
