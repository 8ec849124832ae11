// Package relofs_test holds what is true of the repository as a whole.
package relofs_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/relofs/relofs/"

// layers lists, for each package, the packages of relofs it may import: the
// folders are the architecture, and imports go one way (docs/architecture.md).
// cmd/relofs, linux_test and bench stand on top and may import any.
var layers = map[string][]string{
	"errcode":          {},
	"ignore":           {},
	"durable":          {},
	"gitstore/inflate": {},
	"gitstore":         {"durable", "gitstore/inflate"},
	"cache":            {"gitstore"},
	"upper":            {"gitstore"},
	"capture":          {"gitstore", "ignore", "upper"},
	"overlay":          {"capture", "durable", "errcode", "gitstore", "ignore", "upper"},
	"fusefs":           {"cache", "gitstore"},
	"mountmgr":         {"cache", "errcode", "fusefs", "gitstore"},
	"api/rendezvous":   {"errcode"},
	"api":              {"api/rendezvous", "errcode", "mountmgr"},
	"daemon":           {"api", "api/rendezvous", "cache", "capture", "errcode", "fusefs", "gitstore", "mountmgr", "overlay"},
}

func TestImportsGoOneWay(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		if pkg+"/" == module || strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, "linux_test") || strings.HasPrefix(pkg, "bench") {
			continue
		}
		allowed, known := layers[pkg]
		if !known {
			t.Errorf("package %s has no place in the layers: give it one", pkg)
			continue
		}
		for _, path := range fields[1:] {
			if dep, ours := strings.CutPrefix(path, module); ours && !slices.Contains(allowed, dep) {
				t.Errorf("%s must not import %s", pkg, dep)
			}
		}
	}
}
