package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/mountmgr"
)

// diagnosis is what `relofs doctor --json` prints.
type diagnosis struct {
	OK         bool             `json:"ok"` // workspaces can be mounted
	Version    string           `json:"version"`
	Repository string           `json:"repository,omitempty"` // Git's common directory
	Checks     []mountmgr.Check `json:"checks"`
	Daemon     daemonFacts      `json:"daemon"`
}

type daemonFacts struct {
	Running bool `json:"running"`
	*api.DaemonStatus
	Error *api.Error `json:"error,omitempty"` // why it cannot be asked, if it is not just absent
}

func (t *tool) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:        "doctor",
		Usage:       "say what this machine can do, and why not",
		UsageText:   "relofs doctor",
		Description: "Works without a daemon and outside a repository. Exits with 1 if something is\nmissing that a mount needs.",
		Action: func(c *cli.Context) error {
			if _, err := take(c, 0, 0); err != nil {
				return err
			}
			d := diagnosis{Version: api.Version()}
			// Outside a repository, or in one that cannot be read, the checks
			// that need it are left out.
			if store, err := gitstore.Open(t.repository()); err == nil {
				d.Repository = store.CommonDir()
				store.Close()
			}
			report := mountmgr.Probe(d.Repository)
			d.OK, d.Checks = report.OK(), report.Checks
			d.Daemon = askDaemon(c.Context)
			if t.json {
				t.printJSON(d)
			} else {
				t.printDiagnosis(d)
			}
			if !d.OK {
				return exitStatus(1)
			}
			return nil
		},
	}
}

// askDaemon asks a daemon that runs, and starts none.
func askDaemon(ctx context.Context) daemonFacts {
	client, err := api.Connect(ctx, api.Options{})
	if err != nil {
		if api.NotRunning(err) {
			err = nil
		}
		return daemonFacts{Error: api.ErrorOf(err)}
	}
	status, err := client.DaemonStatus(ctx)
	return daemonFacts{Running: err == nil, DaemonStatus: status, Error: api.ErrorOf(err)}
}

func (t *tool) printDiagnosis(d diagnosis) {
	width := 0
	for _, c := range d.Checks {
		width = max(width, len(c.Name))
	}
	colors := map[mountmgr.Status]string{mountmgr.OK: green, mountmgr.Warn: yellow, mountmgr.Fail: red}
	for _, c := range d.Checks {
		fmt.Fprintf(t.out, "%s  %-*s  %s\n", t.paint(colors[c.Status], fmt.Sprintf("%-4s", c.Status)), width, c.Name, c.Detail)
		if c.Remedy != "" {
			fmt.Fprintf(t.out, "%s%s\n", strings.Repeat(" ", width+8), c.Remedy)
		}
	}
	fmt.Fprintln(t.out)
	switch daemon := d.Daemon; {
	case daemon.Running:
		fmt.Fprintf(t.out, "Daemon %d, version %s, on %s: %s.\n", daemon.PID, daemon.Version, daemon.Socket, count(len(daemon.Mounts), "mount", "mounts"))
		t.problems(daemon.Problems)
	case daemon.Error != nil:
		fmt.Fprintf(t.out, "The daemon cannot be asked: %s\n", daemon.Error.Message)
	default:
		fmt.Fprintln(t.out, "No daemon runs; the next command that needs one starts it.")
	}
	if d.OK {
		fmt.Fprintln(t.out, "Workspaces can be mounted.")
	} else {
		fmt.Fprintln(t.out, "Workspaces cannot be mounted until what failed is mended.")
	}
}
