package errcode_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/relofs/relofs/errcode"
)

var update = flag.Bool("update", false, "write docs/errors.md")

func TestDocumentedCodesAreTheTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Error codes\n\n")
	b.WriteString("With `--json` and on the socket every error is `{\"error\": {\"code\", \"message\", \"remedy\"}}`. A code, once\n")
	b.WriteString("released, keeps its meaning. The exit status is 1 for a failure, 2 for a wrong call, 3 for a refusal or\n")
	b.WriteString("conflict that changed nothing. This page is generated from `errcode/table.go`.\n\n")
	b.WriteString("| code | exit | meaning | what to do |\n|---|---|---|---|\n")
	for _, row := range errcode.Table {
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", row.Code, row.Exit, escape(row.Meaning), escape(row.Remedy))
	}
	const file = "../docs/errors.md"
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
		t.Error("docs/errors.md is not what errcode/table.go says: go test ./errcode -update")
	}
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func TestEveryCodeHasOneRowWithMeaningAndRemedy(t *testing.T) {
	seen := map[errcode.Code]bool{}
	for _, row := range errcode.Table {
		if seen[row.Code] {
			t.Errorf("%s has two rows", row.Code)
		}
		seen[row.Code] = true
		if row.Meaning == "" || row.Remedy == "" {
			t.Errorf("%s lacks a meaning or a remedy", row.Code)
		}
		if row.Exit < 1 || row.Exit > 3 {
			t.Errorf("%s has exit status %d", row.Code, row.Exit)
		}
	}
}

func TestCodeSurvivesWrapping(t *testing.T) {
	inner := errcode.New(errcode.DiskFull, os.ErrClosed, "write %s", "x")
	err := fmt.Errorf("outer: %w", inner)
	if got := errcode.Of(err); got != errcode.DiskFull {
		t.Errorf("code of a wrapped error is %s", got)
	}
	if got := errcode.Of(os.ErrClosed); got != errcode.Internal {
		t.Errorf("code of an error without one is %s", got)
	}
	if got := errcode.Of(nil); got != "" {
		t.Errorf("code of nil is %s", got)
	}
}
