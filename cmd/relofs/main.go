// Command relofs gives each coding agent a directory of its own over a Git
// repository. It is a thin client of the daemon (package api): a command reads
// its arguments, makes one or two calls and prints the answer.
//
// One file holds one command or a small group; args.go puts arguments in
// order, output.go prints.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

func main() {
	t := &tool{out: os.Stdout, errOut: os.Stderr}
	os.Exit(t.main(os.Args[1:]))
}

// tool is one invocation of the command line.
type tool struct {
	out, errOut io.Writer
	json        bool   // --json
	color       bool   // out is a terminal and colours are wanted
	dir         string // -C: where relative paths start, "" for the working directory

	command, agent string // what the command line names, for the hint of an error
}

// exitStatus ends the program with a status and without a message: the command
// that `run` ran has spoken for itself.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func (t *tool) main(args []string) int {
	app := t.app()
	args = arrange(app, args)
	// Known before the flags are parsed, as their errors are printed too.
	end := slices.Index(args, "--")
	t.json = slices.Contains(args[:max(end, 0)], "--json") || end < 0 && slices.Contains(args, "--json")
	err := app.RunContext(context.Background(), append([]string{"relofs"}, args...))
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	t.printError(err)
	return errcode.Of(err).Exit()
}

// printError tells the error and what to do about it.
func (t *tool) printError(err error) {
	e := api.ErrorOf(err)
	if t.json {
		t.printJSON(api.ErrorBody{Error: e})
		return
	}
	fmt.Fprintf(t.errOut, "relofs: %s\n", e.Message)
	if e.Remedy != "" {
		fmt.Fprintf(t.errOut, "  hint: %s\n", t.concrete(e.Remedy))
	}
}

// concrete names the command and the agent at hand in a remedy, so that what it
// says can be typed as it stands.
func (t *tool) concrete(remedy string) string {
	if t.command != "" {
		remedy = strings.ReplaceAll(remedy, "relofs help COMMAND", "relofs help "+t.command)
	}
	if plainName.MatchString(t.agent) {
		remedy = strings.ReplaceAll(remedy, "AGENT", t.agent)
	}
	return remedy
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func (t *tool) printJSON(v any) {
	enc := json.NewEncoder(t.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // nobody is left to tell that standard output is closed
}

func (t *tool) app() *cli.App {
	return &cli.App{
		Name:      "relofs",
		Usage:     "a directory per agent, mounted over a Git repository",
		UsageText: "relofs [-C DIR] [--json] [--no-color] COMMAND [ARGUMENTS]",
		Version:   api.Version(),
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "C", Usage: "run as if started in `DIR`"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, errors included"},
			&cli.BoolFlag{Name: "no-color", Usage: "print no colours, as with NO_COLOR set"},
		},
		Before:                    t.prepare,
		Action:                    t.noCommand,
		Commands:                  t.commands(),
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true, // a directory may have a comma in its name
		CustomAppHelpTemplate:     appHelp,
		Writer:                    t.out,
		ErrWriter:                 t.errOut,
		ExitErrHandler:            func(*cli.Context, error) {}, // main prints and exits
		OnUsageError:              t.usageError,
	}
}

func (t *tool) commands() []*cli.Command {
	list := []*cli.Command{
		t.runCommand(), t.createCommand(), t.mountCommand(), t.unmountCommand(), t.pathCommand(),
		t.listCommand(), t.statusCommand(), t.logCommand(), t.diffCommand(), t.showCommand(),
		t.syncCommand(), t.undoCommand(), t.redoCommand(), t.restoreCommand(),
		t.settleCommand(), t.removeCommand(), t.recoverCommand(),
		t.doctorCommand(), t.daemonCommand(), t.tryCommand(),
		t.completionCommand(), t.completeCommand(), t.applyCommand(),
	}
	var prepare func([]*cli.Command)
	prepare = func(list []*cli.Command) {
		for _, c := range list {
			// Else an agent named "help" could not be named.
			c.HideHelpCommand = true
			c.OnUsageError = t.usageError
			c.Before = t.remember
			c.CustomHelpTemplate = commandHelp
			prepare(c.Subcommands)
		}
	}
	prepare(list)
	return list
}

// usageError is the error for options the parser refuses. The parser names them
// with one dash.
func (t *tool) usageError(c *cli.Context, err error, _ bool) error {
	t.command = commandName(c)
	text := err.Error()
	for _, before := range []string{"flag provided but not defined: ", "flag needs an argument: ", "for flag "} {
		head, tail, ok := strings.Cut(text, before+"-")
		name, _, _ := strings.Cut(tail, ":")
		if ok && len(name) > 1 && name[0] != '-' {
			text = head + before + "--" + tail
		}
	}
	if t.command != "" {
		text = t.command + ": " + text
	}
	return errcode.New(errcode.Usage, nil, "%s", text)
}

// remember notes what an error of the command will be about.
func (t *tool) remember(c *cli.Context) error {
	t.command = commandName(c)
	if strings.Contains(c.Command.UsageText, " AGENT") {
		t.agent = agentIn(c.Args().First())
	}
	return nil
}

// agentIn is the agent an operand names: all of it, or the beginning of show's
// AGENT@REV:PATH.
func agentIn(operand string) string {
	if at := strings.IndexAny(operand, "@:"); at >= 0 {
		return operand[:at]
	}
	return operand
}

// commandName is the name of the command, "" for relofs itself.
func commandName(c *cli.Context) string {
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(c.Command.HelpName), "relofs"))
}

// prepare reads the global flags.
func (t *tool) prepare(c *cli.Context) error {
	for _, dir := range c.StringSlice("C") {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(t.dir, dir) // each -C starts where the last one led, as in Git
		}
		t.dir = dir
	}
	if t.dir != "" {
		if st, err := os.Stat(t.dir); err != nil || !st.IsDir() {
			return errcode.New(errcode.NotRepository, err, "cannot run in %s", t.dir)
		}
	}
	f, ok := t.out.(*os.File)
	t.color = ok && isTerminal(f) && !c.Bool("no-color") && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return nil
}

// noCommand is reached without a command, or with one that does not exist.
func (t *tool) noCommand(c *cli.Context) error {
	name := c.Args().First()
	switch {
	case name == "":
		return cli.ShowAppHelp(c)
	case name == "help" && c.NArg() == 1:
		return cli.ShowAppHelp(c)
	case name == "help":
		if c.App.Command(c.Args().Get(1)) == nil {
			return errcode.New(errcode.Usage, nil, "there is no command %q", c.Args().Get(1))
		}
		return cli.ShowCommandHelp(c, c.Args().Get(1))
	}
	return errcode.New(errcode.Usage, nil, "there is no command %q", name)
}

// connect returns a client of the daemon, which is started if none runs.
func (t *tool) connect(ctx context.Context) (*api.Client, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, errcode.New(errcode.DaemonUnreachable, err, "cannot find this program's own file to start the daemon")
	}
	return api.Connect(ctx, api.Options{Program: program})
}

// repository is the directory whose repository a command is about.
func (t *tool) repository() string {
	if t.dir == "" {
		return "."
	}
	return t.dir
}

func (t *tool) target(agent string) api.Target {
	return api.Target{Repository: t.repository(), Agent: agent}
}

// path makes a path of the command line relative to -C.
func (t *tool) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(t.dir, p)
}
