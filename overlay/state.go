package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/relofs/relofs/errcode"
)

// state is <common>/relo/state.db. Everything in it is a cache: a file that is
// damaged is moved aside and begun anew. bbolt's lock on it is also what makes
// one process the owner of the repository's workspaces; the owner's process id
// is in the file owner beside it, for the message another process shows.
//
// Buckets, keyed by agent:
//
//	statcache  the workspace's stat cache (capture.StatCache.Save)
//	reported   JSON list of the exclusions already told, see exclusionKey
type state struct {
	db *bolt.DB
}

var (
	bucketStatCache = []byte("statcache")
	bucketReported  = []byte("reported")
)

// lockPatience is how long Open waits for another process to let go; a process
// that has just been killed may take a moment.
const lockPatience = 300 * time.Millisecond

func openState(dir string) (*state, error) {
	path := filepath.Join(dir, "state.db")
	owner := filepath.Join(dir, "owner")
	db, err := openDB(path)
	var errno syscall.Errno
	if err != nil && !errors.Is(err, berrors.ErrTimeout) && !errors.As(err, &errno) {
		// Not the system's word but bbolt's: the file is no database.
		if err := os.Rename(path, path+".damaged"); err != nil {
			return nil, coded(err, "move the damaged %s aside", path)
		}
		db, err = openDB(path)
	}
	if errors.Is(err, berrors.ErrTimeout) {
		pid, _ := os.ReadFile(owner) // best effort: only the message needs it
		return nil, errcode.New(errcode.RepositoryInUse, nil, "process %s has the workspaces of %s open", pidOr(pid), filepath.Dir(dir))
	}
	if err != nil {
		return nil, coded(err, "open %s", path)
	}
	if err := os.WriteFile(owner, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600); err != nil {
		return nil, errors.Join(coded(err, "write %s", owner), db.Close())
	}
	return &state{db: db}, nil
}

// openDB opens the file; a file so damaged that bbolt panics on it is reported
// as invalid.
func openDB(path string) (db *bolt.DB, err error) {
	defer func() {
		if recover() != nil {
			err = berrors.ErrInvalid
		}
	}()
	db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockPatience, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	// All is cache: losing the last writes in a power cut costs hashing again.
	db.NoSync = true
	return db, nil
}

func pidOr(text []byte) string {
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		return "(unknown)"
	}
	return fmt.Sprint(pid)
}

func (s *state) close() error { return errors.Join(s.db.Sync(), s.db.Close()) }

func (s *state) get(bucket []byte, agent string) (value []byte, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucket); b != nil {
			value = append(value, b.Get([]byte(agent))...)
		}
		return nil
	})
	return value, err
}

func (s *state) put(bucket []byte, agent string, value []byte) error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		return b.Put([]byte(agent), value)
	})
	if err != nil {
		return coded(err, "write %s", s.db.Path())
	}
	return nil
}

// forget drops all that is kept of an agent.
func (s *state) forget(agent string) error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketStatCache, bucketReported} {
			if b := tx.Bucket(name); b != nil {
				if err := b.Delete([]byte(agent)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return coded(err, "write %s", s.db.Path())
}

// reported returns the exclusions of agent already told; unreadable means none.
func (s *state) reported(agent string) map[string]bool {
	known := map[string]bool{}
	data, err := s.get(bucketReported, agent)
	if err != nil || data == nil {
		return known
	}
	var keys []string
	if json.Unmarshal(data, &keys) != nil {
		return known
	}
	for _, k := range keys {
		known[k] = true
	}
	return known
}

func (s *state) setReported(agent string, known map[string]bool) error {
	keys := make([]string, 0, len(known))
	for k := range known {
		keys = append(keys, k)
	}
	data, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	return s.put(bucketReported, agent, data)
}
