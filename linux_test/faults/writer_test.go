//go:build linux

package faults_test

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/linux_test/harness"
)

// A writer is a process that works in a mounted directory as a tool would:
// it creates, appends to, renames and removes files of its own. It writes to a
// log outside the mount "begin OP" before each system call and "done" after it
// returned, so that the log says what the kernel has acknowledged. It ends by
// itself at the first error, which it logs; what it was about then is
// uncertain.
//
// Everything it touches lies in d/<session>, but for seed/<session>.txt, a file
// of the base commit it appends to.

const writerVariable = "RELOFS_FAULTS_WRITER"

// session is the work of one writer.
type session struct {
	name string // also the directory
	root string // the mount
	log  string
	cmd  *exec.Cmd
}

func seedPath(name string) string    { return "seed/" + name + ".txt" }
func seedContent(name string) string { return "seed of " + name + "\n" }

// startWriter starts a writer in the agent's directory.
func startWriter(a *harness.Agent, name string) *session {
	a.T.Helper()
	s := &session{name: name, root: a.Root, log: filepath.Join(a.Home, name+".log")}
	program, err := os.Executable()
	if err != nil {
		a.T.Fatal(err)
	}
	s.cmd = exec.Command(program)
	s.cmd.Env = append(os.Environ(), writerVariable+"="+strings.Join([]string{s.name, s.root, s.log}, "\n"))
	s.cmd.Dir = "/"
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		a.T.Fatal(err)
	}
	return s
}

// stop kills the writer if it still runs.
func (s *session) stop() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// write is the writer's process.
func write(spec string) int {
	parts := strings.Split(spec, "\n")
	name, root := parts[0], parts[1]
	log, err := os.OpenFile(parts[2], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	do := func(line string, op func() error) {
		fmt.Fprintf(log, "begin %s\n", line)
		if err := op(); err != nil {
			fmt.Fprintf(log, "failed %v\n", err)
			os.Exit(0)
		}
		fmt.Fprint(log, "done\n")
	}
	dir := filepath.Join(root, "d", name)
	// A writer that starts while the daemon is dead waits as a person would,
	// who tries again.
	for try := 0; os.Mkdir(dir, 0o755) != nil; try++ {
		if try == 1000 {
			fmt.Fprintf(log, "begin mkdir\nfailed %v\n", os.Mkdir(dir, 0o755))
			return 0
		}
		time.Sleep(2 * time.Millisecond)
	}
	fmt.Fprint(log, "begin mkdir\ndone\n")

	open := map[string]*os.File{}
	exists := []string{}
	at := func(path string) string {
		if path == "seed" {
			return filepath.Join(root, seedPath(name))
		}
		return filepath.Join(dir, path)
	}
	for n := 0; ; n++ {
		fresh := fmt.Sprintf("f%d", n)
		pick := func() string { return exists[rand.IntN(len(exists))] }
		switch r := rand.IntN(10); {
		case r < 2 && len(exists) < 12 || len(exists) == 0:
			do("create "+fresh, func() error {
				f, err := os.OpenFile(at(fresh), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
				if err == nil {
					open[fresh] = f
				}
				return err
			})
			exists = append(exists, fresh)
		case r < 3:
			from, to := pick(), fresh
			if rand.IntN(2) == 0 {
				to = pick()
			}
			do("rename "+from+" "+to, func() error { return os.Rename(at(from), at(to)) })
			if from == to {
				break
			}
			if f := open[to]; f != nil {
				f.Close()
				delete(open, to)
			}
			if f := open[from]; f != nil {
				open[to] = f
				delete(open, from)
			}
			exists = slices.DeleteFunc(exists, func(p string) bool { return p == from || p == to })
			exists = append(exists, to)
		case r < 4 && len(exists) > 2:
			path := pick()
			do("remove "+path, func() error { return os.Remove(at(path)) })
			if f := open[path]; f != nil {
				f.Close()
				delete(open, path)
			}
			exists = slices.DeleteFunc(exists, func(p string) bool { return p == path })
		default:
			path := "seed"
			if r < 9 {
				path = pick()
			}
			if open[path] == nil {
				f, err := os.OpenFile(at(path), os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					fmt.Fprintf(log, "begin open %s\nfailed %v\n", path, err)
					return 0
				}
				open[path] = f
			}
			do(fmt.Sprintf("append %s %d", path, n), func() error {
				_, err := open[path].Write(record(name, n))
				return err
			})
			// Some files stay open over a kill, others are opened anew by name.
			if rand.IntN(3) == 0 {
				open[path].Close()
				delete(open, path)
			}
		}
		if n%16 == 15 {
			time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		}
	}
}

// record is what a writer appends: numbered, of various sizes, with a checksum.
func record(session string, n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %d ", session, n)
	for range n * 7919 % 97 {
		fmt.Fprintf(&b, "%08x", n)
	}
	fmt.Fprintf(&b, " %08x\n", crc32.ChecksumIEEE(b.Bytes()))
	return b.Bytes()
}

// files are paths, relative to the mount, and contents.
type files map[string]string

// acknowledged reads a log: the files as far as every call that returned goes,
// the operation that did not, "" for none, the number of acknowledged ones, and
// the error the writer ended with, if any.
func (s *session) acknowledged(t testing.TB) (state files, pending string, acks int, failure string) {
	t.Helper()
	state = files{seedPath(s.name): seedContent(s.name)}
	f, err := os.Open(s.log)
	if os.IsNotExist(err) {
		return state, "", 0, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if op, ok := strings.CutPrefix(line, "begin "); ok {
			pending = op
		} else if line == "done" {
			s.apply(state, pending)
			pending = ""
			acks++
		} else if reason, ok := strings.CutPrefix(line, "failed "); ok {
			failure = reason
		}
	}
	return state, pending, acks, failure
}

// apply carries an operation out on the model.
func (s *session) apply(state files, op string) {
	at := func(path string) string {
		if path == "seed" {
			return seedPath(s.name)
		}
		return "d/" + s.name + "/" + path
	}
	var path, to string
	var n int
	switch verb, args, _ := strings.Cut(op, " "); verb {
	case "create":
		state[at(args)] = ""
	case "append":
		fmt.Sscan(args, &path, &n)
		state[at(path)] += string(record(s.name, n))
	case "rename":
		fmt.Sscan(args, &path, &to)
		content := state[at(path)]
		delete(state, at(path))
		state[at(to)] = content
	case "remove":
		delete(state, at(args))
	}
}

// found is what the mount shows of the session.
func (s *session) found(t testing.TB) files {
	t.Helper()
	out := files{}
	read := func(rel string) {
		data, err := os.ReadFile(filepath.Join(s.root, rel))
		if err != nil {
			t.Error(err)
		}
		out[rel] = string(data)
	}
	read(seedPath(s.name))
	err := filepath.WalkDir(filepath.Join(s.root, "d", s.name), func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(s.root, path)
			read(rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

// check compares what the mount shows with what was acknowledged and returns
// what it shows.
func (s *session) check(t testing.TB) (shown files, acks int, failure string) {
	t.Helper()
	state, pending, acks, failure := s.acknowledged(t)
	shown = s.found(t)
	if maps.Equal(shown, state) || pending == "" && acks == 0 {
		return shown, acks, failure
	}
	after := maps.Clone(state)
	s.apply(after, pending)
	if maps.Equal(shown, after) {
		return shown, acks, failure
	}
	// An append that was cut by the writer's own end may be there in part.
	if strings.HasPrefix(pending, "append ") && slices.Equal(slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(state))) {
		partly := true
		for path, content := range shown {
			partly = partly && strings.HasPrefix(content, state[path]) && strings.HasPrefix(after[path], content)
		}
		if partly {
			return shown, acks, failure
		}
	}
	for _, path := range slices.Sorted(maps.Keys(state)) {
		if content, ok := shown[path]; !ok {
			t.Errorf("%s: %s is missing (pending %q, ended with %q)", s.name, path, pending, failure)
		} else if content != state[path] {
			t.Errorf("%s: %s holds %d bytes, %d were acknowledged, equal up to byte %d (pending %q, ended with %q)",
				s.name, path, len(content), len(state[path]), commonPrefix(content, state[path]), pending, failure)
		}
	}
	for path := range shown {
		if _, ok := state[path]; !ok {
			t.Errorf("%s: %s is there, %d bytes (pending %q, ended with %q)", s.name, path, len(shown[path]), pending, failure)
		}
	}
	return shown, acks, failure
}

func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
