package gitstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/relofs/relofs/gitstore"
)

// whileGit runs Git commands over and over until the test stops them. One may
// fail when a pack is merged away between its listing and its opening (prune's
// "unable to mark recent objects"), as it does beside another repack; what it
// must not do is damage.
func (r repository) whileGit(commands ...string) (stop func() (rounds int)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int)
	go func() {
		rounds := 0
		for ; ctx.Err() == nil; rounds++ {
			for _, c := range commands {
				if out, err := r.command(strings.Fields(c)...).CombinedOutput(); err != nil {
					r.t.Logf("git %s: %v\n%s", c, err, out)
				}
			}
		}
		done <- rounds
	}()
	return func() int { cancel(); return <-done }
}

func TestNothingIsLostBesideGitsHousekeeping(t *testing.T) {
	for _, commands := range [][]string{
		{"gc -q --prune=now"},
		{"repack -adq", "prune-packed -q"},
		{"repack -Adq", "prune --expire=now"},
		{"pack-refs --all --prune"},
		{"prune --expire=now"},
		{"pack-refs --all --prune", "repack -adq", "prune --expire=now", "multi-pack-index write", "gc -q --prune=now"},
	} {
		t.Run(strings.Join(commands, ","), func(t *testing.T) {
			r := newRepository(t)
			s := r.open()
			base := r.oid("HEAD")
			stop := r.whileGit(commands...)
			const agents = 2
			heads := [agents]gitstore.OID{}
			var published atomic.Int64
			var wg sync.WaitGroup
			until := time.Now().Add(1500 * time.Millisecond)
			for agent := range agents {
				wg.Go(func() {
					at, parent := gitstore.ZeroOID, base
					overlay := fmt.Sprintf("refs/relo/vws/%d/overlay", agent)
					for n := 1; time.Now().Before(until); n++ {
						b := s.NewBatch()
						next, err := addRevision(b, fmt.Sprintf("%d of %d", n, agent), parent)
						if err == nil {
							err = b.Publish(
								gitstore.RefUpdate{Name: fmt.Sprintf("refs/relo/vws/%d/snap/%d", agent, n), New: next},
								gitstore.RefUpdate{Name: overlay, Old: at, New: next})
						}
						if err != nil {
							t.Errorf("revision %d of %d: %v", n, agent, err)
							return
						}
						if got, err := s.Ref(overlay); err != nil || got != next {
							t.Errorf("%s is at %s, %v; want %s", overlay, got, err, next)
						}
						at, parent, heads[agent] = next, next, next
						published.Add(1)
					}
				})
			}
			wg.Wait()
			rounds := stop()
			s.WaitForMerge()
			t.Logf("%d revisions, %d rounds of Git", published.Load(), rounds)
			// An index over packs that was written while packs came and went may
			// name one that is gone, by a merge or by git repack; Git then looks
			// in the others. It is a cache, and only the objects count here.
			if err := os.Remove(filepath.Join(s.CommonDir(), "objects/pack/multi-pack-index")); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			r.wantSound()
			for agent, head := range heads {
				if got := r.ref(fmt.Sprintf("refs/relo/vws/%d/overlay", agent)); got != head {
					t.Errorf("agent %d is at %s, published %s", agent, got, head)
				}
			}
			refs, err := s.Refs("refs/relo/")
			if want := int(published.Load()) + agents; err != nil || len(refs) != want {
				t.Errorf("%d refs, %v; want %d", len(refs), err, want)
			}
			r.git("rev-list", "--objects", "--all")
			if left := r.leftovers(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestOneOfManyRacersWins(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	at := gitstore.ZeroOID
	for round := range 5 {
		var winners, losers atomic.Int64
		var won atomic.Value
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				b := s.NewBatch()
				next, err := addRevision(b, fmt.Sprintf("%d.%d", round, i))
				if err == nil {
					err = b.Publish(gitstore.RefUpdate{Name: "refs/relo/race", Old: at, New: next})
				}
				switch {
				case err == nil:
					winners.Add(1)
					won.Store(next)
				case errors.Is(err, gitstore.ErrRefChanged):
					losers.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if winners.Load() != 1 || losers.Load() != 19 {
			t.Fatalf("round %d: %d winners, %d losers", round, winners.Load(), losers.Load())
		}
		at = won.Load().(gitstore.OID)
		if got := r.ref("refs/relo/race"); got != at {
			t.Errorf("ref is at %s, the winner wrote %s", got, at)
		}
	}
	r.wantSound()
}

// Transactions that name the same refs in different orders do not wait for
// each other.
func TestOverlappingUpdatesDoNotDeadlock(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	at := r.oid("HEAD")
	names := []string{"refs/relo/a", "refs/relo/b", "refs/relo/c"}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 5 {
				var updates []gitstore.RefUpdate
				for j := range names {
					updates = append(updates, gitstore.RefUpdate{Name: names[(i+j)%3], New: at})
				}
				if err := s.UpdateRefs(updates...); err != nil && !errors.Is(err, gitstore.ErrRefChanged) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, name := range names {
		if r.ref(name) != at {
			t.Errorf("%s was not made", name)
		}
	}
}

func TestSmallPacksAreMerged(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	r.git("repack", "-adq")
	users := r.packs()[0]
	at, old := r.oid("HEAD"), gitstore.ZeroOID
	most := 0
	for n := range 150 {
		if n == 60 {
			s.Close()
			s = r.open() // counts what is there already
		}
		b := s.NewBatch()
		next := mustAddRevision(t, b, fmt.Sprintf("revision %d", n), at)
		if err := b.Publish(gitstore.RefUpdate{Name: "refs/relo/a", Old: old, New: next}); err != nil {
			t.Fatal(err)
		}
		s.WaitForMerge()
		at, old = next, next
		most = max(most, len(r.packs()))
	}
	if most > 34 {
		t.Errorf("there were up to %d packs", most)
	}
	found := false
	for _, p := range r.packs() {
		found = found || p == users
	}
	if !found {
		t.Error("the user's pack was touched")
	}
	if left := r.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	r.git("rev-list", "--objects", at.String())
	r.wantSound()
}

func TestIndexOfALargePack(t *testing.T) {
	r := newRepository(t)
	entries := []gitstore.IndexEntry{
		{OID: gitstore.OID{3}, CRC: 0xcccccccc, Offset: 5 << 30},
		{OID: gitstore.OID{1}, CRC: 0xaaaaaaaa, Offset: 12},
		{OID: gitstore.OID{2}, CRC: 0xbbbbbbbb, Offset: 1<<31 - 1},
		{OID: gitstore.OID{2, 1}, CRC: 0xdddddddd, Offset: 1 << 31},
		{OID: gitstore.OID{0xff}, CRC: 0, Offset: 1<<32 + 1},
	}
	want := fmt.Sprintf("12 %s (aaaaaaaa)\n%d %s (bbbbbbbb)\n%d %s (dddddddd)\n%d %s (cccccccc)\n%d %s (00000000)",
		entries[1].OID, 1<<31-1, entries[2].OID, 1<<31, entries[3].OID, 5<<30, entries[0].OID, 1<<32+1, entries[4].OID)
	if got := r.gitWith(string(gitstore.EncodePackIndex(entries)), "show-index"); got != want {
		t.Errorf("git show-index:\n%s\nwant\n%s", got, want)
	}
}

func BenchmarkPublishRevision(b *testing.B) {
	r := newRepository(b)
	s := r.open()
	old, n := gitstore.ZeroOID, 0
	for b.Loop() {
		n++
		batch := s.NewBatch()
		next := mustAddRevision(b, batch, fmt.Sprint(n, time.Now()))
		if err := batch.Publish(
			gitstore.RefUpdate{Name: fmt.Sprint("refs/relo/vws/x/snap/", n), New: next},
			gitstore.RefUpdate{Name: "refs/relo/vws/x/overlay", Old: old, New: next}); err != nil {
			b.Fatal(err)
		}
		old = next
	}
}

func BenchmarkPublish3000Blobs(b *testing.B) {
	r := newRepository(b)
	s := r.open()
	text := make([]byte, 8<<10)
	n := 0
	for b.Loop() {
		n++
		batch := s.NewBatch()
		var wg sync.WaitGroup
		for worker := range 2 {
			wg.Go(func() {
				data := append([]byte(nil), text...)
				for i := range 1500 {
					x := uint32(n*3000 + worker*1500 + i + 1)
					for j := range data { // text-like: compresses to about half
						x = x*1664525 + 1013904223
						data[j] = "etaoin shrdlu\n{}"[x>>28]
					}
					if _, err := batch.Add(gitstore.KindBlob, data); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := batch.Publish(); err != nil {
			b.Fatal(err)
		}
	}
}
