package main

import (
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
)

func (t *tool) listCommand() *cli.Command {
	return &cli.Command{
		Name:        "list",
		Usage:       "list the workspaces of the repository",
		UsageText:   "relofs list",
		Description: "Shows what is published; `relofs status AGENT` publishes pending writes first.",
		Action: func(c *cli.Context) error {
			if _, err := take(c, 0, 0); err != nil {
				return err
			}
			client, err := t.connect(c.Context)
			if err != nil {
				return err
			}
			resp, err := client.List(c.Context, api.ListRequest{Repository: t.repository()})
			return answer(t, resp, err, func(resp *api.ListResponse) { t.workspaces(resp.Workspaces) })
		},
	}
}

func (t *tool) workspaces(list []api.Workspace) {
	if len(list) == 0 {
		fmt.Fprintln(t.errOut, "No workspaces. `relofs create AGENT` makes one.")
		return
	}
	rows := [][]string{{"AGENT", "REVISION", "BASE", "STATE", "CHANGES", "DIRECTORY"}}
	for _, w := range list {
		state := string(w.State)
		if w.ReadOnly {
			state += ", read-only"
		}
		changes := "no"
		if w.Changed {
			changes = "yes"
		}
		rows = append(rows, []string{w.Agent, strconv.Itoa(w.Revision), short(w.Base), state, changes, quote(w.Directory)})
	}
	t.table(rows)
	for _, w := range list {
		if w.Damage != "" {
			fmt.Fprintf(t.errOut, "%s is damaged: %s\n", w.Agent, w.Damage)
		}
	}
}
