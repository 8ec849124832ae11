package main

import (
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

func (t *tool) logCommand() *cli.Command {
	return &cli.Command{
		Name:        "log",
		Usage:       "list the revisions of a workspace, newest first",
		UsageText:   "relofs log AGENT [-n COUNT]",
		Description: "Each revision is a commit in the repository: `git show COMMIT` and\n`git log -p refs/relo/vws/AGENT/overlay` work on them.",
		Flags:       []cli.Flag{&cli.IntFlag{Name: "n", Usage: "show the newest `COUNT` only"}},
		Action: func(c *cli.Context) error {
			agent, err := agentOnly(c)
			if err != nil {
				return err
			}
			if c.IsSet("n") && c.Int("n") < 1 {
				return errcode.New(errcode.Usage, nil, "-n takes a number above 0")
			}
			client, err := t.connect(c.Context)
			if err != nil {
				return err
			}
			resp, err := client.Log(c.Context, api.LogRequest{Target: t.target(agent), Limit: c.Int("n")})
			if err != nil {
				return err
			}
			if t.json {
				t.printJSON(resp)
				return nil
			}
			rows := [][]string{{"REVISION", "COMMIT", "TIME", "KIND"}}
			for _, r := range resp.Revisions {
				kind := r.Kind
				if r.At != r.Number {
					kind += fmt.Sprintf(", shows %d", r.At)
				}
				rows = append(rows, []string{strconv.Itoa(r.Number), short(r.Commit), stamp(r.Time), kind})
			}
			t.table(rows)
			return nil
		},
	}
}
