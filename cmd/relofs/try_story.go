package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

// sampleEnv keeps the user's Git and Go settings out of the story.
var sampleEnv = map[string]string{
	"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
	"GIT_AUTHOR_NAME": "You", "GIT_AUTHOR_EMAIL": "you@example.com",
	"GIT_COMMITTER_NAME": "You", "GIT_COMMITTER_EMAIL": "you@example.com",
	"GIT_PAGER": "cat", "GOFLAGS": "-buildvcs=false", "GOWORK": "off", "GOTOOLCHAIN": "local",
}

// sampleCommits are the files of the sample repository, commit by commit.
var sampleCommits = []struct {
	message string
	files   map[string]string
}{
	{"Start", map[string]string{
		"README.md":  "# sample\n\nGreets people.\n",
		".gitignore": "/build/\n",
		"go.mod":     "module example.com/sample\n\ngo 1.21\n",
	}},
	{"Greet people by name", map[string]string{
		"greet/greet.go": "// Package greet greets.\npackage greet\n\n// Hello greets somebody.\nfunc Hello(name string) string {\n\treturn \"Hello, \" + name\n}\n",
		"main.go":        "package main\n\nimport (\n\t\"os\"\n\n\t\"example.com/sample/greet\"\n)\n\nfunc main() {\n\tos.Stdout.WriteString(greet.Hello(\"world\") + \"\\n\")\n}\n",
	}},
	{"Test the greeting", map[string]string{
		"greet/greet_test.go": "package greet\n\nimport \"testing\"\n\nfunc TestHello(t *testing.T) {\n\tif got := Hello(\"Ada\"); got != \"Hello, Ada\" {\n\t\tt.Errorf(\"got %q\", got)\n\t}\n}\n",
		"check.sh":            "#!/bin/sh\ngrep -q 'Hello, ' greet/greet.go && echo 'the greeting is there'\n",
	}},
}

// sample makes the repository and the user's uncommitted edit.
func (s *story) sample(ctx context.Context) error {
	fmt.Fprintf(s.tool.out, "%s\n", s.tool.paint(bold, "relofs: a directory per agent, mounted over a Git repository"))
	s.say("Everything happens in %s, with a daemon of its own.", s.root)
	s.title("A repository with some history, and an edit of yours that is not committed")
	if err := s.quiet(ctx, s.root, "git", "init", "-q", "-b", "main", s.repo); err != nil {
		return err
	}
	for _, c := range sampleCommits {
		for name, content := range c.files {
			path := filepath.Join(s.repo, name)
			mode := os.FileMode(0o644)
			if strings.HasSuffix(name, ".sh") {
				mode = 0o755
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return errcode.New(errcode.Internal, err, "make the sample")
			}
			if err := os.WriteFile(path, []byte(content), mode); err != nil {
				return errcode.New(errcode.Internal, err, "make the sample")
			}
		}
		if err := s.quiet(ctx, s.repo, "git", "add", "-A"); err != nil {
			return err
		}
		if err := s.quiet(ctx, s.repo, "git", "commit", "-qm", c.message); err != nil {
			return err
		}
	}
	if err := s.must(ctx, s.repo, "git", "log", "--oneline"); err != nil {
		return err
	}
	if err := s.must(ctx, s.repo, "sh", "-c", "echo 'Ask before you greet.' >> README.md"); err != nil {
		return err
	}
	if err := s.must(ctx, s.repo, "git", "status", "--short"); err != nil {
		return err
	}
	var err error
	s.before, err = s.checkout(ctx)
	return err
}

// quiet runs a command whose output is of no interest unless it fails.
func (s *story) quiet(ctx context.Context, dir, name string, args ...string) error {
	cmd := s.command(ctx, dir, name, args...)
	out, err := cmd.CombinedOutput()
	status, err := exitOf(ctx, cmd, err)
	if err == nil && status != 0 {
		err = errcode.New(errcode.Internal, nil, "%s: %s", commandLine(name, args), bytes.TrimSpace(out))
	}
	return err
}

// checkout is all of the user's side that agents must not change: status, HEAD,
// branches, stash and the bytes of the index.
func (s *story) checkout(ctx context.Context) ([]byte, error) {
	var all bytes.Buffer
	for _, args := range [][]string{
		{"--no-optional-locks", "status", "--porcelain=v2", "--branch", "--ignored"},
		{"for-each-ref", "refs/heads", "refs/tags", "refs/stash"},
		{"config", "--local", "--list"},
	} {
		cmd := s.command(ctx, s.repo, "git", args...)
		out, err := cmd.Output()
		if status, err := exitOf(ctx, cmd, err); err != nil || status != 0 {
			return nil, errcode.New(errcode.Internal, err, "git %s", strings.Join(args, " "))
		}
		all.Write(out)
	}
	for _, name := range []string{"index", "HEAD"} {
		data, err := os.ReadFile(filepath.Join(s.repo, ".git", name))
		if err != nil {
			return nil, errcode.New(errcode.Internal, err, "read the sample")
		}
		all.Write(data)
	}
	return all.Bytes(), nil
}

const (
	adaScript = `pwd
sed -i 's/Hello, /Good morning, /' greet/*.go
grep -rn 'Good morning' greet
%s`
	bobScript = `pwd
mkdir -p build
sed -i 's/world/everybody/' main.go
printf '# Bob was here\n' > NOTES.md
%s`
	withGo    = "go test ./...\n"
	buildGo   = "go build -o build/sample . && ./build/sample\n"
	withoutGo = "! sh check.sh && sed -i 's/Hello, /Good morning, /' check.sh && sh check.sh\n"
	noBuild   = "cp main.go build/output && wc -c build/output\n"
)

func (s *story) agents(ctx context.Context) error {
	s.title("Two agents, each in a directory of its own, at the same time")
	s.say("No checkout is made. Their tools are the ordinary ones: sed, grep, go.")
	client, err := s.tool.connect(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"ada", "bob"} {
		s.prompt("relofs create " + name)
		resp, err := client.Create(ctx, api.CreateRequest{Target: api.Target{Repository: s.repo, Agent: name}})
		if err != nil {
			return err
		}
		s.say("%s  (created and mounted in %.1f ms)", resp.Workspace.Directory, float64(resp.EngineUS)/1000)
	}
	ada, bob := withGo, buildGo
	if !s.goTool {
		ada, bob = withoutGo, noBuild
	}
	s.prompt("relofs run ada -- sh -c ... & relofs run bob -- sh -c ...")
	return both(
		func() error { return s.agent(ctx, "ada", fmt.Sprintf(adaScript, ada)) },
		func() error { return s.agent(ctx, "bob", fmt.Sprintf(bobScript, bob)) },
	)
}

func (s *story) look(ctx context.Context) error {
	s.title("What they did")
	for _, args := range [][]string{{"list"}, {"status", "bob"}, {"diff", "ada"}, {"log", "ada"}} {
		if err := s.must(ctx, s.repo, "relofs", args...); err != nil {
			return err
		}
	}
	s.say("Bob's build output is in his directory and in no revision: it is ignored.")
	s.say("Revisions are ordinary commits in the repository:")
	return s.must(ctx, s.repo, "git", "log", "--oneline", "--stat", "-1", "refs/relo/vws/ada/overlay")
}

func (s *story) untouched(ctx context.Context) error {
	s.title("Your checkout")
	if err := s.must(ctx, s.repo, "git", "status", "--short"); err != nil {
		return err
	}
	after, err := s.checkout(ctx)
	if err != nil {
		return err
	}
	if !bytes.Equal(s.before, after) {
		return errcode.New(errcode.Internal, nil, "the checkout has changed:\n%s\nwas\n%s", after, s.before)
	}
	s.say("Status, index, HEAD, branches, stash and config are byte for byte what they were.")
	return nil
}

func (s *story) undo(ctx context.Context) error {
	s.title("Undo and redo, in the mounted directory")
	look := func() error {
		return s.must(ctx, s.repo, "sh", "-c", `grep return "$(relofs path ada)/greet/greet.go"`)
	}
	for _, step := range []func() error{
		look,
		func() error { return s.must(ctx, s.repo, "relofs", "undo", "ada") },
		look,
		func() error { return s.must(ctx, s.repo, "relofs", "redo", "ada") },
		look,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) end(ctx context.Context) error {
	s.title("The end")
	if err := s.must(ctx, s.repo, "relofs", "unmount", "bob"); err != nil {
		return err
	}
	s.say("A workspace with changes is not removed by accident:")
	status, err := s.run(ctx, s.repo, "relofs", "remove", "ada")
	if err != nil {
		return err
	}
	if want := errcode.UndecidedChanges.Exit(); status != want {
		return errcode.New(errcode.Internal, nil, "relofs remove ada ended with status %d, not %d", status, want)
	}
	for _, args := range [][]string{{"remove", "ada", "--force"}, {"remove", "bob", "--force"}, {"daemon", "stop"}} {
		if err := s.must(ctx, s.repo, "relofs", args...); err != nil {
			return err
		}
	}
	if left, err := mountsBelow(s.root); err != nil || left != "" {
		return errcode.New(errcode.Internal, err, "a mount was left:\n%s", left)
	}
	s.say("Nothing is mounted and no process is left. That took %.1f s.", time.Since(s.start).Seconds())
	return nil
}

// mountsBelow returns the lines of the mount table that name dir.
func mountsBelow(dir string) (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	var left strings.Builder
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, dir) {
			left.WriteString(line)
		}
	}
	return left.String(), nil
}
