package gitstore_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"github.com/relofs/relofs/gitstore"
)

func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small tmpfs")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	r := repository{t, dir}
	r.git("init", "-q", "-b", "main", ".")
	s := r.open()
	random := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{}).Read(random)
	for i, add := range []func(*gitstore.Batch) error{
		func(b *gitstore.Batch) error { _, err := b.Add(gitstore.KindBlob, random); return err },
		func(b *gitstore.Batch) error {
			_, err := b.AddStream(gitstore.KindBlob, int64(len(random)), bytes.NewReader(random))
			return err
		},
	} {
		b := s.NewBatch()
		addErr := add(b)
		if !errors.Is(addErr, syscall.ENOSPC) {
			t.Errorf("%d: add: %v, want ENOSPC", i, addErr)
		}
		b.Discard()
		if left := append(r.leftovers(), r.packs()...); len(left) > 0 {
			t.Errorf("%d: left behind: %v", i, left)
		}
	}
	b := s.NewBatch()
	commit := mustAddRevision(t, b, "small enough")
	if err := b.Publish(gitstore.RefUpdate{Name: "refs/heads/main", New: commit}); err != nil {
		t.Errorf("after the disk was full: %v", err)
	}
	r.wantSound()
}
