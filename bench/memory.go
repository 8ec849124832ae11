package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// runMemoryBuild says what the daemon holds when agents work: 20 workspaces of
// one base, in each of which a module was built.
func runMemoryBuild(ctx context.Context, s *session) error {
	const workspaces = 20
	repository, err := s.goModule(ctx)
	if err != nil {
		return err
	}
	if err := s.freshDaemon(ctx); err != nil {
		return err
	}
	for range workspaces {
		w, err := s.create(ctx, repository)
		if err != nil {
			return err
		}
		if _, err := output(s.goTool(ctx, w.dir, "build")); err != nil {
			return err
		}
	}
	m, err := s.daemonMemory(ctx)
	if err != nil {
		return err
	}
	m.report(s, "20 workspaces, a build in each")
	return nil
}

// runMemoryIdle says what workspaces cost that nobody uses, and what it adds
// when some have been walked through once.
func runMemoryIdle(ctx context.Context, s *session) error {
	const (
		workspaces = 100
		walked     = 10
		limit      = 150 // MB resident
	)
	repository, err := s.synthetic(ctx, 20_000)
	if err != nil {
		return err
	}
	if err := s.freshDaemon(ctx); err != nil {
		return err
	}
	var made []*workspace
	for range workspaces {
		w, err := s.create(ctx, repository)
		if err != nil {
			return err
		}
		made = append(made, w)
	}
	idle, err := s.daemonMemory(ctx)
	if err != nil {
		return err
	}
	idle.report(s, "100 workspaces, never used").atMost(limit)
	for _, w := range made[:walked] {
		if _, err := s.timed(ctx, w.dir, "find", ".", "-size", "+1k"); err != nil {
			return err
		}
	}
	after, err := s.daemonMemory(ctx)
	if err != nil {
		return err
	}
	after.report(s, "100 workspaces, find in 10 of them").atMost(limit)
	return nil
}

// memory is what a process holds, in KiB. Resident counts the pages of mapped
// packs, which the kernel takes back when it needs them; anonymous does not.
type memory struct {
	resident, proportional, anonymous int64
}

func (s *session) daemonMemory(ctx context.Context) (memory, error) {
	pid, err := s.daemon(ctx)
	if err != nil {
		return memory{}, err
	}
	status := fmt.Sprintf("/proc/%d/status", pid)
	m := memory{
		resident:     procField(status, "VmRSS"),
		proportional: procField(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss"),
		anonymous:    procField(status, "RssAnon"),
	}
	if m.resident == 0 {
		return m, fmt.Errorf("%s does not say how much is resident", status)
	}
	return m, nil
}

// report adds the three figures and returns the resident one, which is what
// promises are made about.
func (m memory) report(s *session, what string) *figure {
	resident := s.add(what+": resident", float64(m.resident)/1024, "MB")
	s.add(what+": proportional", float64(m.proportional)/1024, "MB")
	s.add(what+": anonymous", float64(m.anonymous)/1024, "MB")
	return resident
}

// procField is a number of a file of /proc with lines "Name:   123 kB", 0 if
// it is not there.
func procField(file, name string) int64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n
		}
	}
	return 0
}
