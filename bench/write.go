package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// pair is a mounted workspace and a plain checkout of one commit.
type pair struct {
	repository string
	mounted    *workspace
	plain      string
}

func (s *session) pair(ctx context.Context, repository string) (p pair, err error) {
	p.repository = repository
	if p.plain, err = s.checkout(ctx, repository); err != nil {
		return p, err
	}
	if err = s.freshDaemon(ctx); err != nil {
		return p, err
	}
	p.mounted, err = s.create(ctx, repository)
	return p, err
}

// runWriteTree unpacks copies of the tree inside the tree, and removes them
// when all are there: see session.close for why not sooner.
func runWriteTree(ctx context.Context, s *session) error {
	repository, err := s.tree(ctx)
	if err != nil {
		return err
	}
	p, err := s.pair(ctx, repository)
	if err != nil {
		return err
	}
	archive := s.path("tree.tar")
	if err := git(ctx, repository, "archive", "--output", archive, "HEAD"); err != nil {
		return err
	}
	unpack := func(dir string, copies *[]string) step {
		return func(ctx context.Context) (time.Duration, error) {
			target := filepath.Join(dir, fmt.Sprintf("unpacked-%d", len(*copies)))
			*copies = append(*copies, target)
			if err := os.Mkdir(target, 0o755); err != nil {
				return 0, err
			}
			return s.timed(ctx, "", "tar", "-x", "-f", archive, "-C", target)
		}
	}
	remove := func(copies *[]string) step {
		return func(ctx context.Context) (time.Duration, error) {
			target := (*copies)[0]
			*copies = (*copies)[1:]
			return s.timed(ctx, "", "rm", "-rf", target)
		}
	}
	var mounted, plain []string
	var syncs samples
	unpackAndSync := func(ctx context.Context) (time.Duration, error) {
		took, err := unpack(p.mounted.dir, &mounted)(ctx)
		if err != nil {
			return 0, err
		}
		_, wall, err := s.sync(ctx, p.mounted)
		syncs = append(syncs, wall)
		return took, err
	}
	ours, theirs, err := alternate(ctx, s.few(), unpackAndSync, unpack(p.plain, &plain))
	if err != nil {
		return err
	}
	removal, removalPlain, err := alternate(ctx, s.few(), remove(&mounted), remove(&plain))
	if err != nil {
		return err
	}
	label, err := s.countLabel(ctx, repository)
	if err != nil {
		return err
	}
	s.time("tar x of "+label, ours).against("plain", theirs).ratioAtMost(1.5)
	s.time("relofs sync after it", syncs)
	s.time("rm -rf of them", removal).against("plain", removalPlain).ratioAtMost(1.5)
	return nil
}

// runWriteMany makes new files and one revision of them.
func runWriteMany(ctx context.Context, s *session) error {
	const files, size = 3000, 8 << 10
	repository, err := s.tree(ctx)
	if err != nil {
		return err
	}
	p, err := s.pair(ctx, repository)
	if err != nil {
		return err
	}
	var syncs, commits samples
	rng := rand.New(rand.NewPCG(1, files))
	write := func(dir string, publish func(ctx context.Context, written string) error) step {
		return func(ctx context.Context) (time.Duration, error) {
			s.serial++
			target := filepath.Join(dir, fmt.Sprintf("new-%d", s.serial))
			contents := make([][]byte, files)
			for i := range contents {
				contents[i] = randomText(rng, size)
			}
			began := time.Now()
			for i, content := range contents {
				sub := filepath.Join(target, fmt.Sprintf("part%02d", i/100))
				if i%100 == 0 {
					if err := os.MkdirAll(sub, 0o755); err != nil {
						return 0, err
					}
				}
				if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%02d", i%100)), content, 0o644); err != nil {
					return 0, err
				}
			}
			took := time.Since(began)
			return took, publish(ctx, target)
		}
	}
	sync := func(ctx context.Context, _ string) error {
		_, wall, err := s.sync(ctx, p.mounted)
		syncs = append(syncs, wall)
		return err
	}
	commit := func(ctx context.Context, written string) error {
		took, err := s.commitAll(ctx, p.plain, written)
		commits = append(commits, took)
		return err
	}
	ours, theirs, err := alternate(ctx, s.few(), write(p.mounted.dir, sync), write(p.plain, commit))
	if err != nil {
		return err
	}
	s.time("3,000 files of 8 KB written", ours).against("plain", theirs)
	s.time("relofs sync of them", syncs).against("git add + git commit", commits).atMost(400)
	return nil
}

// randomText is text without repetitions that compresses to about a half.
func randomText(rng *rand.Rand, size int) []byte {
	const digits = "0123456789abcdef"
	text := make([]byte, 0, size+16)
	for len(text) < size {
		for x, i := rng.Uint64(), 0; i < 16; x, i = x>>4, i+1 {
			text = append(text, digits[x&15])
		}
	}
	return text[:size]
}

// commitAll is how a plain checkout gets what a revision is: everything that
// changed below paths, as a commit.
func (s *session) commitAll(ctx context.Context, checkout string, paths ...string) (time.Duration, error) {
	add, err := s.timed(ctx, checkout, "git", append([]string{"add", "--all", "--"}, paths...)...)
	if err != nil {
		return 0, err
	}
	commit, err := s.timed(ctx, checkout, "git", "-c", "gc.auto=0", "commit", "--quiet", "--message=bench")
	return add + commit, err
}

// runWriteLatency edits one file after the other and waits for the ref of the
// newest revision to move.
func runWriteLatency(ctx context.Context, s *session) error {
	const edits, limit = 20, 400
	repository, err := s.tree(ctx)
	if err != nil {
		return err
	}
	if err := s.freshDaemon(ctx); err != nil {
		return err
	}
	w, err := s.create(ctx, repository)
	if err != nil {
		return err
	}
	paths, err := s.someFiles(ctx, repository, edits)
	if err != nil {
		return err
	}
	var times samples
	for _, path := range paths {
		took, err := s.editAndWait(ctx, w, path)
		if err != nil {
			return err
		}
		times = append(times, took)
		time.Sleep(50 * time.Millisecond)
	}
	s.time("last write to new revision, median", times).atMost(limit)
	s.add("last write to new revision, 95 %", milliseconds(times.quantile(0.95)), "ms").atMost(limit)
	s.add("last write to new revision, longest", milliseconds(times.quantile(1)), "ms").atMost(limit)
	return nil
}

// editAndWait appends to a file and polls the ref, then checks that the new
// revision holds the edit.
func (s *session) editAndWait(ctx context.Context, w *workspace, path string) (time.Duration, error) {
	before, err := os.ReadFile(w.overlayRef())
	if err != nil {
		return 0, err
	}
	file := filepath.Join(w.dir, path)
	began, err := appendLine(file)
	if err != nil {
		return 0, err
	}
	for {
		now, err := os.ReadFile(w.overlayRef())
		if err != nil && !os.IsNotExist(err) {
			return 0, err
		}
		if err == nil && string(now) != string(before) {
			break
		}
		if time.Since(began) > 10*time.Second {
			return 0, fmt.Errorf("no revision within 10 s after an edit of %s", path)
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		time.Sleep(500 * time.Microsecond)
	}
	took := time.Since(began)
	recorded, err := output(s.command(ctx, w.repository, "git", "rev-parse", "refs/relo/vws/"+w.agent+"/overlay:"+path))
	if err != nil {
		return 0, err
	}
	written, err := output(s.command(ctx, w.repository, "git", "hash-object", "--no-filters", file))
	if err != nil {
		return 0, err
	}
	if string(recorded) != string(written) {
		return 0, fmt.Errorf("the revision after the edit of %s does not hold it", path)
	}
	return took, nil
}

// appendLine writes a line to the end of a file and returns the moment at
// which the write had returned.
func appendLine(file string) (time.Time, error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "edited %d\n", time.Now().UnixNano())
	return time.Now(), err
}

// someFiles chooses n regular files of HEAD, spread evenly over the tree.
func (s *session) someFiles(ctx context.Context, repository string, n int) ([]string, error) {
	files, err := s.regularFiles(ctx, repository, "-r", "HEAD")
	if err != nil {
		return nil, err
	}
	if len(files) < n {
		return nil, fmt.Errorf("the repository has %d files, %d are needed", len(files), n)
	}
	chosen := make([]string, n)
	for i := range chosen {
		chosen[i] = files[i*len(files)/n]
	}
	return chosen, nil
}

// runWriteSize edits the same file again and again in two repositories that
// differ in nothing but their size.
func runWriteSize(ctx context.Context, s *session) error {
	if err := s.freshDaemon(ctx); err != nil {
		return err
	}
	var steps []step
	var engine [2]samples
	for i, files := range []int{200, 200_000} {
		repository, err := s.synthetic(ctx, files)
		if err != nil {
			return err
		}
		w, err := s.create(ctx, repository)
		if err != nil {
			return err
		}
		// As deep in one as in the other, so that as many trees change.
		paths, err := s.regularFiles(ctx, repository, "HEAD", "core/")
		if err != nil {
			return err
		}
		file := filepath.Join(w.dir, paths[0])
		steps = append(steps, func(ctx context.Context) (time.Duration, error) {
			if _, err := appendLine(file); err != nil {
				return 0, err
			}
			inside, wall, err := s.sync(ctx, w)
			engine[i] = append(engine[i], inside)
			return wall, err
		})
	}
	if _, _, err := alternate(ctx, 2, steps[1], steps[0]); err != nil {
		return err
	}
	engine = [2]samples{}
	huge, small, err := alternate(ctx, 3*s.reps, steps[1], steps[0])
	if err != nil {
		return err
	}
	s.time("sync of an edit in 200,000 files, engine", engine[1]).against("in 200", engine[0]).ratioAtMost(1.25)
	s.time("sync of an edit in 200,000 files, whole command", huge).against("in 200", small)
	return nil
}

// runWriteRename moves a directory whose files nobody has read or written.
func runWriteRename(ctx context.Context, s *session) error {
	repository, err := s.synthetic(ctx, 20_000) // of which 10,000 are in core
	if err != nil {
		return err
	}
	p, err := s.pair(ctx, repository)
	if err != nil {
		return err
	}
	rename := func(dir string, publish step) step {
		from := filepath.Join(dir, "core")
		return func(ctx context.Context) (time.Duration, error) {
			s.serial++
			to := filepath.Join(dir, fmt.Sprintf("moved-%d", s.serial))
			began := time.Now()
			if err := os.Rename(from, to); err != nil {
				return 0, err
			}
			renamed := time.Since(began)
			from = to
			published, err := publish(ctx)
			return renamed + published, err
		}
	}
	sync := func(ctx context.Context) (time.Duration, error) {
		_, wall, err := s.sync(ctx, p.mounted)
		return wall, err
	}
	commit := func(ctx context.Context) (time.Duration, error) { return s.commitAll(ctx, p.plain, ".") }
	ours, theirs, err := alternate(ctx, s.few(), rename(p.mounted.dir, sync), rename(p.plain, commit))
	if err != nil {
		return err
	}
	s.time("rename of 10,000 unmodified files + sync", ours).against("rename + git add + git commit", theirs)
	return nil
}
