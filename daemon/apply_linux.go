package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/mountmgr"
	"github.com/relofs/relofs/overlay"
)

// applyInput is what `relofs apply` reads from its standard input, one JSON
// object. It answers on standard output with an api.ErrorBody, whose error is
// null if all steps were carried out.
type applyInput struct {
	Repository string      `json:"repository"` // common directory
	Directory  string      `json:"directory"`  // the mounted workspace
	Upper      string      `json:"upper"`      // its upper directory, by which the mount is known
	Scratch    string      `json:"scratch"`    // for temporary files
	Steps      []applyStep `json:"steps"`
}

// applyStep is an overlay.Step whose path keeps bytes that are not UTF-8: a
// []byte is base64 in JSON.
type applyStep struct {
	Path []byte       `json:"path"`
	Step overlay.Step `json:"step"` // but for its path
}

// applyThroughMount changes files of a mounted workspace in a child process;
// see the package documentation. The caller holds the workspace's turn, so it
// stays mounted.
func applyThroughMount(ctx context.Context, w *workspace, upper string, steps []overlay.Step) error {
	_, directory := w.where()
	in := applyInput{
		Repository: w.repository.dir, Directory: directory, Upper: upper,
		Scratch: w.repository.engine.StateDir(),
	}
	for _, s := range steps {
		path := []byte(s.Path)
		s.Path = ""
		in.Steps = append(in.Steps, applyStep{path, s})
	}
	input, err := json.Marshal(in)
	if err != nil {
		return err
	}
	// Not os.Executable's path: the file may be gone or another version by now,
	// while this link leads to the image that runs (proc(5)).
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "apply")
	cmd.Dir = "/"
	// The pipe stays open until the child ends: its end tells the child that this
	// process died, and that recovery is about to do its work.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Start()
	if runErr == nil {
		_, writeErr := stdin.Write(input)
		runErr = errors.Join(writeErr, cmd.Wait())
	}
	if ctx.Err() != nil {
		return canceled(ctx)
	}
	var answer api.ErrorBody
	if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
		return fmt.Errorf("the process that changes files in %s: %w %s", directory, errors.Join(runErr, err), bytes.TrimSpace(stderr.Bytes()))
	}
	return answer.Error.Err()
}

// Apply is the other side of applyThroughMount, in a process of its own, which it
// ends if input does before the work is done.
func Apply(ctx context.Context, input io.Reader) error {
	var in applyInput
	if err := json.NewDecoder(input).Decode(&in); err != nil {
		return errcode.New(errcode.Usage, err, "cannot read the steps")
	}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		os.Exit(1)
	}()
	store, err := gitstore.Open(in.Repository)
	if err != nil {
		return errcode.New(errcode.NotRepository, err, "cannot open %s", in.Repository)
	}
	defer store.Close()
	steps := make([]overlay.Step, len(in.Steps))
	for i, s := range in.Steps {
		steps[i] = s.Step
		steps[i].Path = string(s.Path)
	}
	// A directory above the mount point may have been renamed, and another be in
	// its place by now: only the workspace itself may be changed, whatever
	// happens to its path from here on.
	dir, err := os.Open(in.Directory)
	if err != nil {
		return errcode.New(errcode.NotMounted, err, "cannot open the workspace's directory")
	}
	defer dir.Close()
	if err := mountmgr.CheckWorkspace(dir, in.Upper); err != nil {
		return err
	}
	return overlay.ApplyToDir(ctx, store, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), in.Scratch, steps)
}
