package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func init() {
	cli.FlagStringer = describeFlag
	cli.VersionPrinter = func(c *cli.Context) { fmt.Fprintln(c.App.Writer, "relofs", c.App.Version) }
	cli.HelpFlag = &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help"}
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version"}
}

// describeFlag is a flag's line in the help.
func describeFlag(f cli.Flag) string {
	var names []string
	for _, name := range f.Names() {
		names = append(names, dashed(name))
	}
	usage := ""
	if doc, ok := f.(cli.DocGenerationFlag); ok {
		usage = doc.GetUsage()
	}
	// The value's name stands in backquotes, as in package flag.
	text := strings.Join(names, ", ")
	if before, rest, ok := strings.Cut(usage, "`"); ok {
		value, after, _ := strings.Cut(rest, "`")
		text += " " + value
		usage = before + value + after
	}
	return fmt.Sprintf("%-15s %s", text, usage)
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

const appHelp = `{{.Name}} - {{.Usage}}

Usage:
   {{.UsageText}}

Commands:{{range .VisibleCommands}}
   {{printf "%-12s" .Name}}{{.Usage}}{{end}}

Options, before or after the command:{{range .VisibleFlags}}
   {{.}}{{end}}

` + "`relofs help COMMAND` or `relofs COMMAND --help` tells more." + `
`

const commandHelp = `{{.HelpName}} - {{.Usage}}

Usage:
   {{.UsageText}}{{if .Description}}

{{.Description}}{{end}}{{if .VisibleCommands}}

Commands:{{range .VisibleCommands}}
   {{printf "%-12s" .Name}}{{.Usage}}{{end}}{{end}}{{if .VisibleFlags}}

Options:{{range .VisibleFlags}}
   {{.}}{{end}}{{end}}
`
