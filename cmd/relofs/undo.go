package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

func (t *tool) undoCommand() *cli.Command {
	return &cli.Command{
		Name:        "undo",
		Usage:       "go back to the revision before",
		UsageText:   "relofs undo AGENT",
		Description: "Pending writes are published first, so they are what the first undo takes back.\nUndo makes a new revision: nothing is lost, and `relofs redo` takes it back.",
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (*api.RevisionResponse, error) {
			return client.Undo(c.Context, target)
		}, t.printRevision),
	}
}

func (t *tool) redoCommand() *cli.Command {
	return &cli.Command{
		Name:      "redo",
		Usage:     "take the last undo back",
		UsageText: "relofs redo AGENT",
		Action: onAgent(t, func(c *cli.Context, client *api.Client, target api.Target) (*api.RevisionResponse, error) {
			return client.Redo(c.Context, target)
		}, t.printRevision),
	}
}

func (t *tool) restoreCommand() *cli.Command {
	return &cli.Command{
		Name:        "restore",
		Usage:       "bring back a revision, or some paths of it",
		UsageText:   "relofs restore AGENT --to REV [-- PATH...]",
		Description: "REV is a revision's number or \"base\". The result is a new revision.\nPATH starts at the working directory, as in Git.",
		Flags:       []cli.Flag{&cli.StringFlag{Name: "to", Usage: "the revision `REV` to bring back"}},
		Action: func(c *cli.Context) error {
			o := operandsOf(c)
			if len(o.args) != 1 || o.cut && len(o.rest) == 0 {
				return misuse(c)
			}
			if c.String("to") == "" {
				return errcode.New(errcode.Usage, nil, "restore needs --to REV; `relofs log %s` lists the revisions", o.args[0])
			}
			client, err := t.connect(c.Context)
			if err != nil {
				return err
			}
			resp, err := client.Restore(c.Context, api.RestoreRequest{
				Target: t.target(o.args[0]), To: c.String("to"), Paths: o.rest,
			})
			return answer(t, resp, err, func(resp *api.RevisionResponse) { t.printRevision(o.args[0], resp) })
		},
	}
}

func (t *tool) printRevision(agent string, r *api.RevisionResponse) {
	text := fmt.Sprintf("Workspace %s is at revision %d (%s)", agent, r.Number, short(r.Commit))
	if r.At != r.Number {
		text += fmt.Sprintf(", which shows what revision %d showed", r.At)
	}
	fmt.Fprintln(t.out, text+".")
}
