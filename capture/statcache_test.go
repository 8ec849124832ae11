package capture_test

import (
	"bytes"
	"testing"

	"github.com/relofs/relofs/capture"
)

// What Save gave is what Load takes, byte for byte; all else is an empty cache.
func FuzzStatCacheLoad(f *testing.F) {
	empty := capture.NewStatCache().Save()
	f.Add(empty)
	f.Add(empty[:len(empty)-1])
	f.Add([]byte("relostat"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := capture.NewStatCache()
		c.Load(data)
		if got := c.Save(); !bytes.Equal(got, data) && !bytes.Equal(got, empty) {
			t.Errorf("something else was loaded: %x", got)
		}
	})
}
