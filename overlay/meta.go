package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/relofs/relofs/durable"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

const metaFormat = 1

// meta is meta.json of a workspace: what ties its upper to its lower. It is
// replaced as a whole (temporary file, fsync, rename, fsync of the directory).
type meta struct {
	Format int    `json:"format"`
	Agent  string `json:"agent"`
	// Lower is the tree the upper differs from.
	Lower     gitstore.OID    `json:"lower"`
	Namespace upper.Namespace `json:"namespace"`
	// MountPoint is where the workspace is or was last mounted. Wanted says
	// that it is to be mounted there again when the daemon starts.
	MountPoint string  `json:"mount_point,omitempty"`
	Wanted     bool    `json:"wanted,omitempty"`
	Intent     *intent `json:"intent,omitempty"`
}

// intent is a change of both Git and the upper that has begun.
type intent struct {
	Kind intentKind `json:"kind"`
	// From is the overlay commit the change starts from: if the ref has moved
	// on, the change was published.
	From gitstore.OID `json:"from"`
	// Rewind: the revision to show, which kind of revision records it, and for
	// restore the paths, none for all.
	Rewind   Kind     `json:"rewind,omitempty"`
	Revision int      `json:"revision,omitempty"`
	Paths    []string `json:"paths,omitempty"`
	// Settle: the new lower, and what stays in the upper.
	Tree gitstore.OID `json:"tree,omitzero"`
	Keep []string     `json:"keep,omitempty"`
}

type intentKind string

const (
	intentRewind intentKind = "rewind"
	intentSettle intentKind = "settle"
	intentRemove intentKind = "remove"
)

func readMeta(dir string) (meta, error) {
	var m meta
	data, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, "meta.json"), err)
	}
	if m.Format != metaFormat {
		return m, fmt.Errorf("%s: format %d, this version reads %d", filepath.Join(dir, "meta.json"), m.Format, metaFormat)
	}
	return m, nil
}

// write replaces the metadata in dir; it is durable after log.Commit(dir).
func (m meta) write(log durable.Log, dir string) error {
	return writeJSON(log, dir, "meta.json", m)
}

// writeJSON replaces dir/name by v; it is durable after log.Commit(dir).
func writeJSON(log durable.Log, dir, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = log.Stage(f)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return log.Order(dir)
}

func settledName(tree gitstore.OID) string { return "settled-" + tree.String() + ".json" }

// readSettled reads the modification times of the files settled into tree; a
// lower that is a base commit's tree has none.
func readSettled(dir string, tree gitstore.OID) (map[string]time.Time, error) {
	data, err := os.ReadFile(filepath.Join(dir, settledName(tree)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var times map[string]time.Time
	if err := json.Unmarshal(data, &times); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, settledName(tree)), err)
	}
	return times, nil
}
