package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
)

// Statuses of a command that could not be run, as env(1) and shells give them.
const (
	statusCannotRun = 126
	statusNotFound  = 127
)

// execute runs a command in dir and returns its status, 128+n if signal n ended
// it.
//
// The command stays in this process's group: it is in the terminal's
// foreground exactly if relofs is, Ctrl-C and Ctrl-Z at the terminal reach both,
// and relofs itself only must not die of the former. Signals that somebody
// sends to relofs alone are passed on.
func execute(argv []string, dir string, env []string) (int, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "relofs: %v\n", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return statusNotFound, nil
		}
		return statusCannotRun, nil
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			// The terminal has sent these to the whole group already.
			if (s == unix.SIGINT || s == unix.SIGQUIT) && inForeground() {
				continue
			}
			_ = cmd.Process.Signal(s) // it may just have ended
		case err := <-done:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, errcode.New(errcode.Internal, err, "run %s", argv[0])
			}
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// inForeground reports whether this process's group is the one its terminal
// sends signals to.
func inForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
