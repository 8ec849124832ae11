package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

var update = flag.Bool("update", false, "write docs/reference.md")

const referenceIntro = `# Command reference

What ` + "`relofs help COMMAND`" + ` prints, for every command; this page is generated from the program
(` + "`go test ./cmd/relofs -update`" + `).

Exit status: 0 done; 1 failed; 2 wrong call; 3 a conflict or refusal that changed nothing. ` + "`relofs run`" + ` ends with
the status of the command it ran. Errors have stable codes: see [errors.md](errors.md).

With ` + "`--json`" + ` every command that prints data prints one JSON object with snake_case keys, and errors as
` + "`{\"error\": {\"code\", \"message\", \"remedy\"}}`" + ` on standard output. Keys are added, never renamed.

`

func TestReferenceIsWhatHelpPrints(t *testing.T) {
	help := func(args ...string) string {
		var out strings.Builder
		tl := &tool{out: &out, errOut: &out}
		if code := tl.main(args); code != 0 {
			t.Fatalf("relofs %s: exit status %d: %s", strings.Join(args, " "), code, out.String())
		}
		return strings.TrimRight(out.String(), "\n")
	}
	var b strings.Builder
	b.WriteString(referenceIntro)
	b.WriteString("## relofs\n\n```\n" + help("help") + "\n```\n")
	var walk func(prefix []string, list []*cli.Command)
	walk = func(prefix []string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden {
				continue
			}
			path := append(append([]string{}, prefix...), c.Name)
			b.WriteString("\n## relofs " + strings.Join(path, " ") + "\n\n```\n" + help(append(path, "--help")...) + "\n```\n")
			walk(path, c.Subcommands)
		}
	}
	walk(nil, (&tool{}).commands())

	const file = "../../docs/reference.md"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Error("docs/reference.md is not what the program's help says: go test ./cmd/relofs -update")
	}
}
