package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/daemon"
)

func (t *tool) daemonCommand() *cli.Command {
	return &cli.Command{
		Name:        "daemon",
		Usage:       "run, start, stop or look at the daemon",
		UsageText:   "relofs daemon run | start | stop | status",
		Description: "The first command that needs the daemon starts it.",
		Subcommands: []*cli.Command{
			{
				Name:      "run",
				Usage:     "be the daemon, in the foreground",
				UsageText: "relofs daemon run",
				Flags:     []cli.Flag{&cli.IntFlag{Name: "ready-fd", Hidden: true}},
				Action: func(c *cli.Context) error {
					if _, err := take(c, 0, 0); err != nil {
						return err
					}
					return daemon.Run(c.Context, daemon.Options{ReadyFD: c.Int("ready-fd")})
				},
			},
			{
				Name:      "start",
				Usage:     "start it in the background, if none runs",
				UsageText: "relofs daemon start",
				Action:    t.daemonStatusAction(true),
			},
			{
				Name:        "stop",
				Usage:       "publish and unmount everything, then end it",
				UsageText:   "relofs daemon stop",
				Description: "Mounted workspaces are mounted again by the next daemon.",
				Action:      t.daemonStop,
			},
			{
				Name:      "status",
				Usage:     "show the running daemon and its mounts",
				UsageText: "relofs daemon status",
				Action:    t.daemonStatusAction(false),
			},
		},
		Action: func(c *cli.Context) error { return misuse(c) },
	}
}

func (t *tool) daemonStatusAction(start bool) cli.ActionFunc {
	return func(c *cli.Context) error {
		if _, err := take(c, 0, 0); err != nil {
			return err
		}
		var client *api.Client
		var err error
		if start {
			client, err = t.connect(c.Context)
		} else {
			client, err = api.Connect(c.Context, api.Options{})
		}
		if api.NotRunning(err) && !t.json {
			fmt.Fprintln(t.errOut, "No daemon runs; the next command that needs one starts it.")
			return exitStatus(1)
		}
		if err != nil {
			return err
		}
		s, err := client.DaemonStatus(c.Context)
		if err != nil {
			return err
		}
		if t.json {
			t.printJSON(s)
			return nil
		}
		rows := [][]string{
			{"Process", strconv.Itoa(s.PID)}, {"Version", s.Version}, {"Started", stamp(s.Started)},
			{"Socket", s.Socket}, {"Log", s.Log},
		}
		for _, dir := range s.Repositories {
			rows = append(rows, []string{"Repository", quote(dir)})
		}
		t.table(rows)
		t.problems(s.Problems)
		if len(s.Mounts) == 0 {
			fmt.Fprintln(t.out, "\nNothing is mounted.")
			return nil
		}
		fmt.Fprintln(t.out)
		rows = [][]string{{"AGENT", "DIRECTORY", "REPOSITORY"}}
		for _, m := range s.Mounts {
			rows = append(rows, []string{m.Agent, quote(m.Directory), quote(m.Repository)})
		}
		t.table(rows)
		return nil
	}
}

func (t *tool) daemonStop(c *cli.Context) error {
	if _, err := take(c, 0, 0); err != nil {
		return err
	}
	client, err := api.Connect(c.Context, api.Options{})
	if api.NotRunning(err) {
		if t.json {
			t.printJSON(api.StopResponse{Unmounted: []api.Mount{}, Problems: []string{}})
		} else {
			fmt.Fprintln(t.out, "No daemon runs.")
		}
		return nil
	}
	if err != nil {
		return err
	}
	resp, err := client.DaemonStop(c.Context)
	if err != nil {
		return err
	}
	if t.json {
		t.printJSON(resp)
		return nil
	}
	t.problems(resp.Problems)
	fmt.Fprintf(t.out, "Stopped daemon %d; %s.\n", resp.PID, count(len(resp.Unmounted), "directory unmounted", "directories unmounted"))
	return nil
}

// applyCommand is what the daemon runs to change files through a mount.
func (t *tool) applyCommand() *cli.Command {
	return &cli.Command{
		Name:      "apply",
		Usage:     "change files of a mounted workspace, for the daemon",
		UsageText: "relofs apply < STEPS",
		Hidden:    true,
		Action: func(c *cli.Context) error {
			t.printJSON(api.ErrorBody{Error: api.ErrorOf(daemon.Apply(c.Context, os.Stdin))})
			return nil
		},
	}
}
