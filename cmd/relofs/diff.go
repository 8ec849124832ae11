package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
)

func (t *tool) diffCommand() *cli.Command {
	return &cli.Command{
		Name:        "diff",
		Usage:       "show the changes of a workspace as a patch",
		UsageText:   "relofs diff AGENT [--stat] [REV[..REV]] [-- PATH...]",
		Description: "REV is a revision's number, \"base\" or \"latest\"; without one the base is compared\nwith the newest revision, with one that revision with the newest. Pending writes\nare published first. `git apply` takes the patch. PATH starts at the working\ndirectory, as in Git.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "stat", Usage: "show a summary instead"}},
		Action: func(c *cli.Context) error {
			o := operandsOf(c)
			if len(o.args) < 1 || len(o.args) > 2 || o.cut && len(o.rest) == 0 {
				return misuse(c)
			}
			req := api.DiffRequest{
				Target: t.target(o.args[0]), Stat: c.Bool("stat"), Color: t.color && !t.json, Paths: o.rest,
			}
			if len(o.args) == 2 {
				req.From, req.To, _ = strings.Cut(o.args[1], "..")
				if req.From == "" && req.To == "" {
					return misuse(c)
				}
			}
			client, err := t.connect(c.Context)
			if err != nil {
				return err
			}
			patch, err := client.Diff(c.Context, req)
			if err != nil {
				return err
			}
			defer patch.Close()
			if t.json {
				text, err := io.ReadAll(patch)
				if err != nil {
					return err
				}
				t.printJSON(map[string]string{"diff": string(text)})
				return nil
			}
			return t.page(c.Context, func(w io.Writer) error {
				_, err := io.Copy(w, patch)
				return err
			})
		},
	}
}

func (t *tool) showCommand() *cli.Command {
	return &cli.Command{
		Name:        "show",
		Usage:       "print a file of a workspace, or list a directory",
		UsageText:   "relofs show AGENT[@REV]:PATH",
		Description: "Without REV the newest revision is shown; pending writes are published first.\nPATH starts at the workspace's root, or with ./ at the working directory. With --json the content is base64.",
		Action: func(c *cli.Context) error {
			args, err := take(c, 1, 1)
			if err != nil {
				return err
			}
			name, path, ok := strings.Cut(args[0], ":")
			if !ok {
				return misuse(c)
			}
			agent, rev, at := strings.Cut(name, "@")
			if agent == "" || at && rev == "" {
				return misuse(c)
			}
			client, err := t.connect(c.Context)
			if err != nil {
				return err
			}
			file, content, err := client.Show(c.Context, api.ShowRequest{Target: t.target(agent), Revision: rev, Path: path})
			if err != nil {
				return err
			}
			defer content.Close()
			if t.json {
				data, err := io.ReadAll(content)
				if err != nil {
					return err
				}
				t.printJSON(struct {
					*api.File
					Content []byte `json:"content,omitempty"`
				}{file, data})
				return nil
			}
			for _, name := range file.Entries {
				fmt.Fprintln(t.out, quote(name))
			}
			_, err = io.Copy(t.out, content)
			return err
		},
	}
}
