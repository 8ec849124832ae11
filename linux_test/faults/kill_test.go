//go:build linux

package faults_test

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/linux_test/harness"
)

// Each round: three writers at work, the daemon killed at a random moment, a
// fourth writer that starts while no daemon lives, and any command. Then every
// byte the kernel had acknowledged must be there, through the mount and in the
// next revision.
func TestAcknowledgedWritesSurviveKillsOfTheDaemon(t *testing.T) {
	const writers = 4
	w := harness.New(t)
	base := maps.Clone(harness.Sample)
	base["d/keep"] = "kept\n"
	rounds := killRounds()
	for round := range rounds {
		for i := range writers {
			name := fmt.Sprintf("r%d-%d", round, i)
			base[seedPath(name)] = seedContent(name)
		}
	}
	a := w.Repository(base).Create("victim")
	next := [][]string{
		{"--json", "list"}, {"sync", "victim"}, {"status", "victim"}, {"path", "victim"}, {"log", "victim"},
		{"run", "victim", "--", "true"}, {"diff", "victim", "--stat"}, {"mount", "victim"}, {"recover"},
	}
	want := files{} // of all rounds
	failures := map[string]int{}
	total, slowest := 0, time.Duration(0)
	for round := range rounds {
		pid := w.DaemonPID()
		before := a.Ref()
		var sessions []*session
		for i := range writers - 1 {
			sessions = append(sessions, startWriter(a, fmt.Sprintf("r%d-%d", round, i)))
		}
		// Revisions come by themselves after a pause or two seconds; in every
		// other round one is asked for, so that the kill meets publishing.
		syncs := make(chan struct{})
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		go func() {
			defer close(syncs)
			if round%2 == 0 {
				w.Command(a.Dir, "sync", a.Name).Run()
			}
		}()
		time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond)
		killDaemon(t, pid)
		sessions = append(sessions, startWriter(a, fmt.Sprintf("r%d-%d", round, writers-1)))
		if round%3 == 0 {
			sessions[0].stop()
		}
		<-syncs

		start := time.Now()
		w.Run(a.Dir, next[round%len(next)]...)
		slowest = max(slowest, time.Since(start))
		wantMounts(t, w, 1)
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
		for _, s := range sessions {
			s.stop()
		}
		for _, s := range sessions {
			shown, acks, failure := s.check(t)
			maps.Copy(want, shown)
			total += acks
			if failure != "" {
				_, reason, _ := strings.Cut(failure, ": ")
				failures[reason]++
			}
		}
		a.Sync()
		wantTree(t, a, want)
		wantChain(t, a)
		a.Git("merge-base", "--is-ancestor", before, a.Ref())
		a.WantFile("src/deep/b.go", "package deep\n")
		if t.Failed() {
			t.Fatalf("in round %d, where the command was %v", round, next[round%len(next)])
		}
	}
	t.Logf("%d kills, %d acknowledged operations, %d revisions; slowest command after a kill %v; writers ended by %v",
		rounds, total, wantChain(t, a), slowest.Round(time.Millisecond), failures)
}

// wantTree checks that the newest revision holds files as they are in want, in
// d and seed.
func wantTree(t testing.TB, a *harness.Agent, want files) {
	t.Helper()
	held := map[string]string{}
	for line := range strings.Lines(a.Git("ls-tree", "-r", "refs/relo/vws/"+a.Name+"/overlay", "d", "seed")) {
		meta, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		held[path] = strings.Fields(meta)[2]
	}
	for path, content := range want {
		id := fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content)))
		if held[path] != id {
			t.Errorf("revision of %s holds %q as %s, want %s", a.Name, path, held[path], id)
		}
		delete(held, path)
	}
	for path := range held {
		if strings.HasPrefix(path, "d/r") {
			t.Errorf("revision of %s holds %s", a.Name, path)
		}
	}
}
