package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/relofs/relofs/durable"
)

func TestPublishingByEitherWay(t *testing.T) {
	dir := t.TempDir()
	for name, log := range map[string]durable.Log{"careful": {}, "this file system's": durable.LogOf(dir)} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(dir, "new"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("content"); err != nil {
				t.Fatal(err)
			}
			if err := log.Stage(f); err != nil {
				t.Fatal(err)
			}
			f.Close()
			if err := os.Rename(f.Name(), filepath.Join(dir, "name")); err != nil {
				t.Fatal(err)
			}
			if err := log.Order(dir); err != nil {
				t.Fatal(err)
			}
			if err := log.Commit(filepath.Join(dir, "gone"), dir); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhatCannotBeStagedIsAnError(t *testing.T) {
	dir := t.TempDir()
	for name, log := range map[string]durable.Log{"careful": {}, "this file system's": durable.LogOf(dir)} {
		f, err := os.Create(filepath.Join(dir, "new"))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := log.Stage(f); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: staging a closed file: %v", name, err)
		}
	}
}
