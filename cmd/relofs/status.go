package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
)

func (t *tool) statusCommand() *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show what a workspace changed and what is left out",
		UsageText:   "relofs status AGENT",
		Description: "A added, M modified, D deleted, R renamed, T of another type than in the base.\nPending writes are published first.",
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (*api.StatusResponse, error) {
			return client.Status(c.Context, target)
		}, func(_ string, resp *api.StatusResponse) { t.printStatus(resp) }),
	}
}

func (t *tool) printStatus(s *api.StatusResponse) {
	w := s.Workspace
	state := string(w.State)
	if w.State == api.Mounted {
		state += " at " + quote(w.Directory)
	}
	if w.ReadOnly {
		state += ", read-only"
	}
	t.table([][]string{
		{"Workspace", w.Agent + ", " + state},
		{"Base", short(w.Base)},
		{"Revision", fmt.Sprintf("%d (%s) of %s", w.Revision, short(w.Commit), stamp(w.Updated))},
	})
	fmt.Fprintln(t.out)
	if len(s.Changes) == 0 {
		fmt.Fprintln(t.out, "No changes.")
	} else {
		fmt.Fprintln(t.out, "Changes:")
	}
	for _, c := range s.Changes {
		fmt.Fprintf(t.out, "  %s  %s\n", t.paint(statusColor(c.Status), c.Status), describeChange(c))
	}
	if len(s.Excluded) > 0 {
		fmt.Fprintln(t.out, "\nIn the directory and in no revision:")
		t.exclusions(t.out, "  ", s.Excluded)
	}
}

func statusColor(status string) string {
	switch status {
	case "A":
		return green
	case "D":
		return red
	}
	return yellow
}

const plainFile = "100644"

// describeChange names the path, and the modes where they say something.
func describeChange(c api.Change) string {
	text := quote(c.Path)
	if c.OldPath != "" {
		text = quote(c.OldPath) + " -> " + text
	}
	switch {
	case c.OldMode != "" && c.NewMode != "" && c.OldMode != c.NewMode:
		text += fmt.Sprintf("  (%s -> %s)", c.OldMode, c.NewMode)
	case c.OldMode == "" && c.NewMode != plainFile:
		text += fmt.Sprintf("  (%s)", c.NewMode)
	}
	return text
}
