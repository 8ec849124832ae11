package gitstore

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// guard runs fn, which reads mapped files, and turns a fault in one of them
// (SIGBUS: the file was cut short, or the disk cannot read the page) into
// ErrCorrupt. Other panics pass.
func guard(fn func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if r := recover(); r != nil {
			fault, ok := r.(interface {
				runtime.Error
				Addr() uintptr
			})
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("read of a mapped file faulted at %#x: %w", fault.Addr(), ErrCorrupt)
		}
	}()
	return fn()
}
