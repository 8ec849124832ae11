package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/relofs/relofs/api"
)

// workspace is a mounted workspace, and how long it took to get it.
type workspace struct {
	repository string
	agent      string
	dir        string
	engine     time.Duration // inside the daemon
	wall       time.Duration // of the command
}

// create makes and mounts a workspace under a new name.
func (s *session) create(ctx context.Context, repository string) (*workspace, error) {
	s.serial++
	return s.createNamed(ctx, repository, fmt.Sprintf("agent-%d", s.serial))
}

func (s *session) createNamed(ctx context.Context, repository, agent string) (*workspace, error) {
	var r api.MountResponse
	wall, err := s.relofs(ctx, &r, repository, "create", "--json", agent)
	if err != nil {
		return nil, err
	}
	if r.Workspace.Directory == "" || r.EngineUS == 0 {
		return nil, fmt.Errorf("create --json gave no directory or no engine_us")
	}
	return &workspace{
		repository: repository, agent: agent, dir: r.Workspace.Directory,
		engine: time.Duration(r.EngineUS) * time.Microsecond, wall: wall,
	}, nil
}

// sync publishes what is pending in a workspace.
func (s *session) sync(ctx context.Context, w *workspace) (engine, wall time.Duration, err error) {
	var r api.SyncResponse
	wall, err = s.relofs(ctx, &r, w.repository, "sync", "--json", w.agent)
	return time.Duration(r.EngineUS) * time.Microsecond, wall, err
}

func (s *session) remove(ctx context.Context, workspaces ...*workspace) error {
	for _, w := range workspaces {
		if _, err := s.relofs(ctx, nil, w.repository, "remove", "--force", w.agent); err != nil {
			return err
		}
	}
	return nil
}

// freshDaemon replaces the session's daemon by one that has nothing cached.
// Workspaces that exist are mounted again by it: remove them before.
func (s *session) freshDaemon(ctx context.Context) error {
	if s.started {
		if _, err := s.relofs(ctx, nil, s.dir, "daemon", "stop"); err != nil {
			return err
		}
	}
	s.started = true
	_, err := s.relofs(ctx, nil, s.dir, "daemon", "start")
	return err
}

// daemon is the process id of the session's daemon.
func (s *session) daemon(ctx context.Context) (int, error) {
	var status api.DaemonStatus
	_, err := s.relofs(ctx, &status, s.dir, "daemon", "status", "--json")
	return status.PID, err
}

// stopDaemon ends the daemon, by force if it does not end when asked.
func (s *session) stopDaemon(ctx context.Context) error {
	pid, err := s.daemon(ctx)
	if err != nil || pid == 0 {
		return err // none runs
	}
	asked, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err = s.relofs(asked, nil, s.dir, "daemon", "stop"); err == nil {
		return nil
	}
	if p, gone := os.FindProcess(pid); gone == nil {
		p.Kill()
	}
	return err
}

// daemonLog is the beginning of what the daemon had to say beyond its start and
// stop, to be put behind an error.
func (s *session) daemonLog() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "state", "relofs", "daemon.log"))
	if err != nil {
		return ""
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "level=INFO") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\ndaemon's log: " + excerpt(strings.Join(lines, ""))
}

// relofs runs a command on a repository, decodes what it printed into response
// unless that is nil, and says how long the command took.
func (s *session) relofs(ctx context.Context, response any, repository string, args ...string) (time.Duration, error) {
	cmd := s.command(ctx, "", s.program, append([]string{"-C", repository}, args...)...)
	began := time.Now()
	out, err := output(cmd)
	took := time.Since(began)
	if err != nil || response == nil {
		return took, err
	}
	if err := json.Unmarshal(out, response); err != nil {
		return took, fmt.Errorf("relofs %s printed no valid JSON: %w", args[0], err)
	}
	return took, nil
}

// overlayRef is the file of the ref that names a workspace's newest revision.
func (w *workspace) overlayRef() string {
	return filepath.Join(w.repository, ".git", "refs", "relo", "vws", w.agent, "overlay")
}
