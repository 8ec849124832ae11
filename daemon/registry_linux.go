package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// registry is <state>/mounted.json, the repositories that have, or are about to
// have, mounted workspaces:
//
//	{"format": 1, "repositories": ["/path/to/.git", …]}
//
// The paths are Git common directories, sorted. A repository is written before
// its first workspace is mounted and taken out after its last one is unmounted
// on request, so that after a crash every repository with mounts is in the
// file; one too many costs an open. The file is replaced by rename and is
// durable when add returns. A file of another format, or a damaged one, counts
// as empty and is kept under another name.
type registry struct {
	path string

	mu    sync.Mutex // guards repos and the file
	repos []string
}

const registryFormat = 1

type registryFile struct {
	Format       int      `json:"format"`
	Repositories []string `json:"repositories"`
}

// openRegistry reads the file. An error describes a file that had to be set
// aside; the registry can be used all the same.
func openRegistry(path string) (*registry, error) {
	r := &registry{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var file registryFile
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err == nil && file.Format != registryFormat {
		err = fmt.Errorf("unknown format %d", file.Format)
	}
	if err != nil {
		return r, errors.Join(fmt.Errorf("%s is set aside: %w", path, err), os.Rename(path, path+".damaged"))
	}
	slices.Sort(file.Repositories)
	r.repos = slices.Compact(file.Repositories)
	return r, nil
}

func (r *registry) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.repos)
}

func (r *registry) add(repo string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, found := slices.BinarySearch(r.repos, repo)
	if found {
		return nil
	}
	return r.write(slices.Insert(slices.Clone(r.repos), at, repo))
}

func (r *registry) remove(repo string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, found := slices.BinarySearch(r.repos, repo)
	if !found {
		return nil
	}
	return r.write(slices.Delete(slices.Clone(r.repos), at, at+1))
}

// write replaces the file and, if that worked, the list in memory.
func (r *registry) write(repos []string) error {
	data, err := json.MarshalIndent(registryFile{Format: registryFormat, Repositories: repos}, "", "\t")
	if err != nil {
		return err
	}
	if err := replaceFile(r.path, append(data, '\n')); err != nil {
		return fmt.Errorf("write the list of mounted repositories: %w", err)
	}
	r.repos = repos
	return nil
}

// replaceFile writes a file so that a crash leaves the old content or the new.
func replaceFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
