package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// atOnce is the number of workspaces that are made in a row and in parallel.
const atOnce = 16

// creations are the measurements of one size of repository.
type creations struct {
	repository string
	label      string // "15,036 files"

	first, next, nextWall  samples
	row, longest, together samples // a sample is all atOnce creations
	processes              samples // the same number of processes that do nothing
	fsyncs                 samples // of a small new file each, for scale
	checkouts              samples // git worktree add
	growth                 []int64 // bytes of .git per workspace
	compareWithGit         bool
}

// runCreate measures engine time, the time between a request's arrival at the
// daemon and the end of the mount, and next to it what a user waits for:
// processes from their start to their end.
func runCreate(ctx context.Context, s *session) error {
	small, err := s.synthetic(ctx, 1000)
	if err != nil {
		return err
	}
	tree, err := s.tree(ctx)
	if err != nil {
		return err
	}
	huge, err := s.synthetic(ctx, 200_000)
	if err != nil {
		return err
	}
	// A checkout of 200,000 files would take longer than all the rest.
	sizes := []*creations{
		{repository: small, compareWithGit: true},
		{repository: tree, compareWithGit: true},
		{repository: huge},
	}
	for _, c := range sizes {
		if c.label, err = s.countLabel(ctx, c.repository); err != nil {
			return err
		}
	}
	for range s.few() {
		for _, c := range sizes {
			if err := c.round(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", c.label, err)
			}
		}
	}
	for _, c := range sizes {
		c.report(s)
	}
	s.time("engine time of the next, "+sizes[2].label, sizes[2].next).
		against("at "+sizes[0].label, sizes[0].next).ratioAtMost(1.25)
	return nil
}

// round makes 1 + 16 + 16 workspaces under a daemon that has not seen the
// repository, and removes them.
func (c *creations) round(ctx context.Context, s *session) error {
	if err := s.freshDaemon(ctx); err != nil {
		return err
	}
	first, err := s.create(ctx, c.repository)
	if err != nil {
		return err
	}
	c.first = append(c.first, first.engine)
	made := []*workspace{first}

	before, err := apparentSize(filepath.Join(c.repository, ".git"))
	if err != nil {
		return err
	}
	var row time.Duration
	for range atOnce {
		w, err := s.create(ctx, c.repository)
		if err != nil {
			return err
		}
		made = append(made, w)
		row += w.engine
		c.next = append(c.next, w.engine)
		c.nextWall = append(c.nextWall, w.wall)
		synced, err := writeDurably(s.path("scale"))
		if err != nil {
			return err
		}
		c.fsyncs = append(c.fsyncs, synced)
	}
	c.row = append(c.row, row)
	after, err := apparentSize(filepath.Join(c.repository, ".git"))
	if err != nil {
		return err
	}
	c.growth = append(c.growth, (after-before)/atOnce)

	began := time.Now()
	together, err := s.createTogether(ctx, c.repository, atOnce)
	c.together = append(c.together, time.Since(began))
	if err != nil {
		return err
	}
	var longest time.Duration
	for _, w := range together {
		longest = max(longest, w.engine)
	}
	c.longest = append(c.longest, longest)
	began = time.Now()
	if err := s.startTogether(ctx, atOnce); err != nil {
		return err
	}
	c.processes = append(c.processes, time.Since(began))

	if err := s.remove(ctx, append(made, together...)...); err != nil {
		return err
	}
	if !c.compareWithGit {
		return nil
	}
	_, took, err := s.timedCheckout(ctx, c.repository)
	c.checkouts = append(c.checkouts, took)
	return err
}

func (c *creations) report(s *session) {
	s.time(c.label+": first on a base, engine", c.first).atMost(50)
	s.time(c.label+": next, engine", c.next).against("write + fsync of one file", c.fsyncs).atMost(8)
	wall := s.time(c.label+": next, whole command", c.nextWall)
	if c.compareWithGit {
		wall.against("git worktree add", c.checkouts)
	}
	s.time(c.label+": 16 in a row, engine", c.row).atMost(100)
	s.time(c.label+": 16 at once, longest in the engine", c.longest).atMost(100)
	s.time(c.label+": 16 at once, whole commands", c.together).
		against("16 processes that only start", c.processes)
	var growth int64
	for _, g := range c.growth {
		growth = max(growth, g)
	}
	s.add(c.label+": growth of .git per workspace", float64(growth)/1024, "KB").atMost(10)
}

// writeDurably makes one small file that survives a power cut. Creating a
// workspace is a few of these and a mount.
func writeDurably(path string) (time.Duration, error) {
	began := time.Now()
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1024)); err != nil {
		return 0, err
	}
	err = f.Sync()
	return time.Since(began), err
}

// createTogether makes n workspaces, each by a process of its own, at once.
func (s *session) createTogether(ctx context.Context, repository string, n int) ([]*workspace, error) {
	made := make([]*workspace, n)
	err := together(n, func(i int) (err error) {
		made[i], err = s.createNamed(ctx, repository, fmt.Sprintf("parallel-%d", i))
		return err
	})
	return made, err
}

// startTogether runs n relofs processes at once that have nothing to do.
func (s *session) startTogether(ctx context.Context, n int) error {
	return together(n, func(int) error {
		_, err := output(s.command(ctx, "", s.program, "--version"))
		return err
	})
}

func together(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// apparentSize is the sum of the sizes of all regular files below dir. A file
// that goes away meanwhile counts as gone.
func apparentSize(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
