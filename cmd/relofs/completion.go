package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

// The scripts ask `relofs complete -- WORD...`, whose last word is the one to
// complete, and fall back on file names where it has nothing to say.
var completionScripts = map[string]string{
	"bash": `_relofs() {
    local IFS=$'\n'
    COMPREPLY=($(relofs complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _relofs relofs
`,
	"zsh": `#compdef relofs
_relofs() {
    local -a candidates
    candidates=(${(f)"$(relofs complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#candidates )); then
        compadd -- $candidates
    else
        _files
    fi
}
if [ "$funcstack[1]" = _relofs ]; then
    _relofs "$@"
else
    compdef _relofs relofs
fi
`,
	"fish": `complete -c relofs -a '(relofs complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`,
}

func (t *tool) completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for the shell",
		UsageText: "relofs completion bash | zsh | fish",
		Description: `bash: put  source <(relofs completion bash)  into ~/.bashrc
zsh:  put  source <(relofs completion zsh)  into ~/.zshrc, after compinit
fish: relofs completion fish > ~/.config/fish/completions/relofs.fish`,
		Action: func(c *cli.Context) error {
			args, err := take(c, 1, 1)
			if err != nil {
				return err
			}
			script, ok := completionScripts[args[0]]
			if !ok {
				return errcode.New(errcode.Usage, nil, "no completion for %q; there is one for bash, zsh and fish", args[0])
			}
			fmt.Fprint(t.out, script)
			return nil
		},
	}
}

func (t *tool) completeCommand() *cli.Command {
	return &cli.Command{
		Name:      "complete",
		Usage:     "print what may follow, for completion scripts",
		UsageText: "relofs complete -- WORD...",
		Hidden:    true,
		Action: func(c *cli.Context) error {
			words := operandsOf(c).rest
			if len(words) == 0 {
				return nil
			}
			before, current := words[:len(words)-1], words[len(words)-1]
			for _, candidate := range t.candidates(c, before, current) {
				if strings.HasPrefix(candidate, current) {
					fmt.Fprintln(t.out, candidate)
				}
			}
			return nil
		},
	}
}

// candidates lists what may follow the words before.
func (t *tool) candidates(c *cli.Context, before []string, current string) []string {
	commands, flags := c.App.Commands, c.App.Flags
	var command *cli.Command
	operands := 0
	for i := 0; i < len(before); i++ {
		word := before[i]
		if word == "--" {
			return nil // file names
		}
		if strings.HasPrefix(word, "-") {
			name := strings.TrimLeft(word, "-")
			if takesValue(findFlag(flags, name)) || takesValue(findFlag(c.App.Flags, name)) {
				if i++; i == len(before) {
					return nil // the option's value: a file name, if anything
				}
				if name == "C" {
					t.dir = before[i]
				}
			}
			continue
		}
		if next := find(commands, word); next != nil {
			command, commands, flags = next, next.Subcommands, next.Flags
		} else {
			operands++
		}
	}
	var out []string
	switch {
	case strings.HasPrefix(current, "-"):
		for _, f := range append(flags, c.App.Flags...) {
			if v, ok := f.(cli.VisibleFlag); ok && v.IsVisible() {
				out = append(out, dashed(f.Names()[0]))
			}
		}
	case len(commands) > 0:
		for _, sub := range commands {
			if !sub.Hidden {
				out = append(out, sub.Name)
			}
		}
	case command == nil || operands > 0:
	case command.Name == "completion":
		out = []string{"bash", "zsh", "fish"}
	case strings.Contains(command.UsageText, "AGENT"):
		out = t.agents(c)
	}
	return out
}

// agents asks a daemon that runs; completion starts none.
func (t *tool) agents(c *cli.Context) []string {
	client, err := api.Connect(c.Context, api.Options{})
	if err != nil {
		return nil
	}
	resp, err := client.List(c.Context, api.ListRequest{Repository: t.repository()})
	if err != nil {
		return nil
	}
	var names []string
	for _, w := range resp.Workspaces {
		names = append(names, w.Agent)
	}
	return names
}
