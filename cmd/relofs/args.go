package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/errcode"
)

// arrange puts a command line into the order the flag package needs: it stops
// at the first operand, while relofs takes options anywhere before "--", as in
// `relofs create alice --base main --json`. The result is
//
//	global options, command, its options, "--", operands, "--" and what followed it
//
// where the second "--" and what follows are as given. What is not known is
// left for the parser to complain about.
func arrange(app *cli.App, args []string) []string {
	var global, path, options, operands, rest []string
	commands := app.Commands
	var flags []cli.Flag
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			rest = args[i:]
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			if c := find(commands, arg); c != nil {
				path = append(path, arg)
				commands, flags = c.Subcommands, c.Flags
			} else {
				commands = nil
				operands = append(operands, arg)
			}
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		into := &options
		flag := findFlag(app.Flags, name)
		if flag != nil {
			into = &global
			arg = canonical(arg)
		} else {
			flag = findFlag(flags, name)
		}
		*into = append(*into, arg)
		if takesValue(flag) && !hasValue {
			if i++; i == len(args) || args[i] == "--" {
				// At the end, where the parser misses the value as well.
				if into == &global {
					return global
				}
				return slices.Concat(global, path, options)
			}
			*into = append(*into, args[i])
		}
	}
	out := slices.Concat(global, path, options)
	if len(operands)+len(rest) > 0 {
		out = append(out, "--")
	}
	return slices.Concat(out, operands, rest)
}

// canonical writes a long option with two dashes; one is accepted too.
func canonical(arg string) string {
	name := strings.TrimLeft(arg, "-")
	if n, _, _ := strings.Cut(name, "="); len(n) == 1 {
		return "-" + name
	}
	return "--" + name
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func takesValue(f cli.Flag) bool {
	doc, ok := f.(cli.DocGenerationFlag)
	return ok && doc.TakesValue()
}

// operands are a command's arguments that are no options.
type operands struct {
	args []string // before "--"
	rest []string // after it
	cut  bool     // there was a "--"
}

func operandsOf(c *cli.Context) operands {
	args := c.Args().Slice()
	if at := slices.Index(args, "--"); at >= 0 {
		return operands{args[:at], args[at+1:], true}
	}
	return operands{args: args}
}

// take returns the operands before "--", of which there must be between low and
// high, and none after it.
func take(c *cli.Context, low, high int) ([]string, error) {
	o := operandsOf(c)
	if o.cut || len(o.args) < low || len(o.args) > high {
		return nil, misuse(c)
	}
	return o.args, nil
}

// agentOnly returns the one operand of most commands.
func agentOnly(c *cli.Context) (string, error) {
	args, err := take(c, 1, 1)
	if err != nil {
		return "", err
	}
	return args[0], nil
}

func misuse(c *cli.Context) error {
	return errcode.New(errcode.Usage, nil, "usage: %s", c.Command.UsageText)
}
