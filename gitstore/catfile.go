package gitstore

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
)

// catFile is a `git cat-file --batch-check` that stays, for partial clones: to
// ask it about an object is to make Git fetch the object from the remote that
// promised it, into a new pack, which the native reader then finds. So Git
// speaks to the remote, with the user's settings, and reading has one code.
//
// It is started at the first object that is missing in a repository that has a
// promisor remote, and again when it has died, as it does when a fetch fails.
type catFile struct {
	store   *Store
	partial bool // extensions.partialClone is set

	mu     sync.Mutex // guards the following; one question at a time
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *bytes.Buffer
	closed bool
}

func newCatFile(s *Store, partialClone bool) *catFile {
	return &catFile{store: s, partial: partialClone}
}

// fetch has Git fetch an object and reports whether it is there now. It is
// false, without error, in a repository that is no partial clone.
func (c *catFile) fetch(oid OID) (bool, error) {
	if !c.partial {
		settings, err := c.store.Settings()
		if err != nil || !settings.promisorRemote() {
			return false, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, nil
	}
	if c.cmd == nil {
		if err := c.start(); err != nil {
			return false, fmt.Errorf("fetch missing object %s: %w", oid, err)
		}
	}
	answer, err := c.ask(oid)
	if err != nil {
		text := c.stop()
		return false, fmt.Errorf("fetch missing object %s from the remote: %s: %w", oid, text, ErrNotFound)
	}
	return !strings.HasSuffix(answer, " missing"), nil
}

func (c *catFile) ask(oid OID) (string, error) {
	if _, err := fmt.Fprintf(c.in, "%s\n", oid); err != nil {
		return "", err
	}
	answer, err := c.out.ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

func (c *catFile) start() error {
	cmd := c.store.Git(context.Background(), "cat-file", "--batch-check")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	c.stderr = &bytes.Buffer{}
	cmd.Stderr = c.stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd, c.in, c.out = cmd, in, bufio.NewReader(out)
	return nil
}

// stop ends the process and returns what it complained about.
func (c *catFile) stop() string {
	if c.cmd == nil {
		return ""
	}
	c.in.Close()
	err := c.cmd.Wait()
	c.cmd = nil
	text := strings.TrimSpace(c.stderr.String())
	if text == "" && err != nil {
		text = err.Error()
	}
	return text
}

func (c *catFile) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.stop()
	return nil
}
