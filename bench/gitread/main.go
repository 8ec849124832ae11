// Command gitread compares how fast the files of one commit can be read from a
// repository's object store: by relofs, by the git program and by go-git. All
// of them read the same objects in the order of the tree, once, and throw the
// content away; the rounds alternate, so that the machine's mood is shared.
//
//	go run ./bench/gitread -repo DIR [-rev HEAD] [-rounds 5]
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	gitcache "github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/relofs/relofs/gitstore"
)

func main() {
	log.SetFlags(0)
	repo := flag.String("repo", os.Getenv("RELOFS_BENCH_REPO"), "the `directory` of a repository")
	rev := flag.String("rev", "HEAD", "the commit whose files are read")
	rounds := flag.Int("rounds", 5, "how often each is measured; the median counts")
	flag.Parse()
	if *repo == "" {
		log.Fatal("gitread: -repo is missing")
	}
	if err := run(*repo, *rev, *rounds); err != nil {
		log.Fatal("gitread: ", err)
	}
}

func run(repo, rev string, rounds int) error {
	store, err := gitstore.Open(repo)
	if err != nil {
		return err
	}
	defer store.Close()
	oids, err := blobs(store, rev)
	if err != nil {
		return err
	}
	kinds := []struct {
		name, against string
		read          func() error
	}{
		{"git cat-file --batch", "", func() error { return catFile(store, "--batch", oids) }},
		{"relofs, 1 goroutine", "git cat-file --batch", func() error { return read(store, oids, 1) }},
		{"relofs, 2 goroutines", "git cat-file --batch", func() error { return read(store, oids, 2) }},
		{"go-git", "git cat-file --batch", func() error { return readGoGit(store, oids) }},
		{"git cat-file --batch-check", "", func() error { return catFile(store, "--batch-check", oids) }},
		{"relofs sizes", "git cat-file --batch-check", func() error { return sizes(store, oids) }},
		{"go-git sizes", "git cat-file --batch-check", func() error { return sizesGoGit(store, oids) }},
	}
	times := map[string][]time.Duration{}
	for range rounds {
		for _, k := range kinds {
			start := time.Now()
			if err := k.read(); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			times[k.name] = append(times[k.name], time.Since(start))
		}
	}
	fmt.Printf("%d files, median of %d rounds\n", len(oids), rounds)
	for _, k := range kinds {
		t := median(times[k.name])
		fmt.Printf("%-28s %8.1f ms", k.name, float64(t)/1e6)
		if k.against != "" {
			fmt.Printf("  %5.2f of %s", float64(t)/float64(median(times[k.against])), k.against)
		}
		fmt.Println()
	}
	return nil
}

func median(t []time.Duration) time.Duration {
	t = slices.Sorted(slices.Values(t))
	return t[len(t)/2]
}

// blobs lists the files of a commit in the order of its trees.
func blobs(store *gitstore.Store, rev string) ([]gitstore.OID, error) {
	commit, err := store.Resolve(context.Background(), rev)
	if err != nil {
		return nil, err
	}
	c, err := store.Commit(commit)
	if err != nil {
		return nil, err
	}
	var oids []gitstore.OID
	var walk func(gitstore.OID) error
	walk = func(tree gitstore.OID) error {
		entries, err := store.Tree(tree)
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch e.Mode {
			case gitstore.ModeTree:
				if err := walk(e.OID); err != nil {
					return err
				}
			case gitstore.ModeGitlink:
			default:
				oids = append(oids, e.OID)
			}
		}
		return nil
	}
	return oids, walk(c.Tree)
}

func catFile(store *gitstore.Store, mode string, oids []gitstore.OID) error {
	var in bytes.Buffer
	for _, oid := range oids {
		fmt.Fprintln(&in, oid)
	}
	cmd := store.Git(context.Background(), "cat-file", mode)
	cmd.Stdin = &in
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd.Stdout = null
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// reopen makes each round start without cached bases, as the programs do.
func reopen(store *gitstore.Store) (*gitstore.Store, error) { return gitstore.Open(store.GitDir()) }

func read(store *gitstore.Store, oids []gitstore.OID, goroutines int) error {
	store, err := reopen(store)
	if err != nil {
		return err
	}
	defer store.Close()
	const batch = 16
	var next atomic.Int64
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			var buf []byte
			for {
				end := int(next.Add(batch))
				if end-batch >= len(oids) {
					return
				}
				for _, oid := range oids[end-batch : min(end, len(oids))] {
					buf, errs[g] = store.AppendBlob(buf[:0], oid)
					if errs[g] != nil {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func sizes(store *gitstore.Store, oids []gitstore.OID) error {
	store, err := reopen(store)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, oid := range oids {
		if _, _, err := store.Header(oid); err != nil {
			return err
		}
	}
	return nil
}

func goGit(store *gitstore.Store) *filesystem.Storage {
	return filesystem.NewStorage(osfs.New(filepath.Clean(store.CommonDir())), gitcache.NewObjectLRUDefault())
}

func readGoGit(store *gitstore.Store, oids []gitstore.OID) error {
	storage := goGit(store)
	defer storage.Close()
	for _, oid := range oids {
		object, err := storage.EncodedObject(plumbing.BlobObject, plumbing.Hash(oid))
		if err != nil {
			return err
		}
		r, err := object.Reader()
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		if closed := r.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sizesGoGit(store *gitstore.Store, oids []gitstore.OID) error {
	storage := goGit(store)
	defer storage.Close()
	for _, oid := range oids {
		if _, err := storage.EncodedObjectSize(plumbing.Hash(oid)); err != nil {
			return err
		}
	}
	return nil
}
