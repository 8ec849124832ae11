package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// addFile adds a file to a commit that is being imported. The mode is that of
// a Git tree entry: 100644, 100755, or 120000 with the link's target as data.
type addFile func(path, mode string, data []byte) error

// fastImport makes one commit on main of what feed adds, through
// git-fast-import(1): no work tree, no index, one pack.
func fastImport(ctx context.Context, repository string, feed func(addFile) error) error {
	// The fastest compression, and no search for deltas: fast-import would
	// only compare each file with the one before.
	cmd := exec.CommandContext(ctx, "git", "-c", "core.compression=1", "-c", "fastimport.unpackLimit=1",
		"fast-import", "--quiet", "--depth=0")
	// Git sets up zlib's 256 KiB of state for each file. Where glibc gives the
	// memory back in between, most of the time goes into page faults.
	cmd.Dir = repository
	cmd.Env = append(gitEnvironment(), "MALLOC_TRIM_THRESHOLD_=67108864", "MALLOC_MMAP_THRESHOLD_=67108864")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriterSize(stdin, 1<<20)
	fmt.Fprint(w, "commit refs/heads/main\ncommitter bench <bench@localhost> 1700000000 +0000\ndata 6\nimport\n")
	fed := feed(func(path, mode string, data []byte) error {
		fmt.Fprintf(w, "M %s inline %s\ndata %d\n", mode, quotePath(path), len(data))
		w.Write(data)
		return w.WriteByte('\n') // also tells of all failures before
	})
	if fed == nil {
		fmt.Fprint(w, "done\n")
		fed = w.Flush()
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("git fast-import: %w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	return fed
}

// quotePath is needed only where a bare path would be misread.
func quotePath(path string) string {
	if !strings.HasPrefix(path, `"`) && !strings.Contains(path, "\n") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

// addDirectory adds the files and links below root, Git's own left out.
func addDirectory(root string, add addFile) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == ".git" {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch entry.Type() {
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return add(rel, "120000", []byte(target))
		case 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			mode := "100644"
			if info.Mode()&0o100 != 0 {
				mode = "100755"
			}
			return add(rel, mode, data)
		}
		return nil
	})
}
