package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/relofs/relofs/errcode"
)

// page runs write on the user's pager if standard output is a terminal, else on
// standard output. Which pager is Git's decision (`git var GIT_PAGER`:
// $GIT_PAGER, core.pager, $PAGER, less), and as Git does, it is run by the
// shell with LESS=FRX and LV=-c unless they are set (git-config(1), core.pager).
func (t *tool) page(ctx context.Context, write func(io.Writer) error) error {
	f, ok := t.out.(*os.File)
	if !ok || !isTerminal(f) {
		return write(t.out)
	}
	pager := gitPager(ctx, t.repository())
	if pager == "" || pager == "cat" {
		return write(t.out)
	}
	cmd := exec.Command("sh", "-c", pager)
	cmd.Stdout, cmd.Stderr = f, os.Stderr
	cmd.Env = os.Environ()
	for name, value := range map[string]string{"LESS": "FRX", "LV": "-c"} {
		if _, set := os.LookupEnv(name); !set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return errcode.New(errcode.Internal, err, "start the pager")
	}
	if err := cmd.Start(); err != nil {
		return write(t.out)
	}
	err = write(in)
	in.Close()
	waitErr := cmd.Wait()
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil // the user has seen enough
	}
	if err == nil && waitErr != nil {
		err = errcode.New(errcode.Internal, waitErr, "the pager %q failed", pager)
	}
	return err
}

func gitPager(ctx context.Context, dir string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "var", "GIT_PAGER").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
