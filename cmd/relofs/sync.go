package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
)

func (t *tool) syncCommand() *cli.Command {
	return &cli.Command{
		Name:        "sync",
		Usage:       "publish pending writes now; prints revision and commit",
		UsageText:   "relofs sync AGENT",
		Description: "Without it a revision is published when writing has paused for 200 ms.",
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (*api.SyncResponse, error) {
			return client.Sync(c.Context, target)
		}, func(_ string, resp *api.SyncResponse) {
			fmt.Fprintf(t.out, "%d %s\n", resp.Number, resp.Commit)
			if len(resp.NewlyExcluded) > 0 {
				fmt.Fprintln(t.errOut, "Left out of revisions:")
				t.exclusions(t.errOut, "  ", resp.NewlyExcluded)
			}
			if len(resp.Unsettled) > 0 {
				fmt.Fprintf(t.errOut, "Still being written, and in the revision as before: %s\n", strings.Join(resp.Unsettled, ", "))
			}
		}),
	}
}

func (t *tool) settleCommand() *cli.Command {
	return &cli.Command{
		Name:        "settle",
		Usage:       "fold an unmounted workspace's changes into what it is mounted over",
		UsageText:   "relofs settle AGENT",
		Description: "The next mount shows the newest revision itself, and nothing but what is in no\nrevision stays on the disk beside it.",
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (*api.SettleResponse, error) {
			return client.Settle(c.Context, target)
		}, func(agent string, resp *api.SettleResponse) {
			fmt.Fprintf(t.out, "Settled %s at revision %d (%s); %s dropped.\n",
				agent, resp.Number, short(resp.Commit), count(resp.Freed, "copy on disk was", "copies on disk were"))
			if len(resp.Kept) > 0 {
				fmt.Fprintln(t.out, "Kept, as no revision holds it:")
				t.exclusions(t.out, "  ", resp.Kept)
			}
		}),
	}
}
