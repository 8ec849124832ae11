package overlay

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/relofs/relofs/gitstore"
)

// Kind says how a revision came to be.
type Kind string

// The kinds of revisions.
const (
	KindCreate  Kind = "create"
	KindCapture Kind = "capture"
	KindUndo    Kind = "undo"
	KindRedo    Kind = "redo"
	KindRestore Kind = "restore"
)

const checkpointFormat = "1"

// maxRedo bounds the redo list a checkpoint carries.
const maxRedo = 100

// checkpoint is what a revision's commit says besides its tree; the package
// documentation gives its format.
type checkpoint struct {
	Agent    string
	Number   int
	Kind     Kind
	Base     gitstore.OID
	At       int
	Prev     int
	Redo     []int
	ReadOnly bool
	Created  time.Time
	// First is the oldest revision the chain still has.
	First int
}

// edited is the checkpoint after c when the content changed by anything but
// undo and redo: what could be redone is gone.
func (c checkpoint) edited(kind Kind) checkpoint {
	next := c
	next.Number++
	next.Kind = kind
	next.At = next.Number
	next.Prev = c.At
	next.Redo = nil
	return next
}

func (c checkpoint) message() string {
	var b strings.Builder
	fmt.Fprintf(&b, "relofs: revision %d of %s (%s)\n\n", c.Number, c.Agent, c.Kind)
	fmt.Fprintf(&b, "Relofs-Format: %s\n", checkpointFormat)
	fmt.Fprintf(&b, "Relofs-Agent: %s\n", c.Agent)
	fmt.Fprintf(&b, "Relofs-Revision: %d\n", c.Number)
	fmt.Fprintf(&b, "Relofs-Kind: %s\n", c.Kind)
	fmt.Fprintf(&b, "Relofs-Base: %s\n", c.Base)
	fmt.Fprintf(&b, "Relofs-At: %d\n", c.At)
	fmt.Fprintf(&b, "Relofs-Prev: %d\n", c.Prev)
	if len(c.Redo) > 0 {
		list := make([]string, len(c.Redo))
		for i, n := range c.Redo {
			list[i] = strconv.Itoa(n)
		}
		fmt.Fprintf(&b, "Relofs-Redo: %s\n", strings.Join(list, ","))
	}
	if c.First > 0 {
		fmt.Fprintf(&b, "Relofs-First: %d\n", c.First)
	}
	if c.ReadOnly {
		b.WriteString("Relofs-Read-Only: true\n")
	}
	fmt.Fprintf(&b, "Relofs-Created: %s\n", c.Created.UTC().Format(time.RFC3339))
	return b.String()
}

// parseCheckpoint reads the trailers of a revision's commit message.
func parseCheckpoint(message string) (checkpoint, error) {
	var c checkpoint
	seen := map[string]string{}
	for line := range strings.Lines(message) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if ok && strings.HasPrefix(key, "Relofs-") {
			seen[strings.TrimPrefix(key, "Relofs-")] = value
		}
	}
	if f := seen["Format"]; f != checkpointFormat {
		return c, fmt.Errorf("checkpoint has format %q, this version reads %s", f, checkpointFormat)
	}
	number := func(key string, least int) (int, error) {
		n, err := strconv.Atoi(seen[key])
		if err != nil || n < least {
			return 0, fmt.Errorf("checkpoint has %s %q", key, seen[key])
		}
		return n, nil
	}
	var err error
	if c.Number, err = number("Revision", 0); err != nil {
		return c, err
	}
	if c.At, err = number("At", 0); err != nil {
		return c, err
	}
	if c.Prev, err = number("Prev", -1); err != nil {
		return c, err
	}
	if seen["First"] != "" {
		if c.First, err = number("First", 1); err != nil {
			return c, err
		}
	}
	if c.Base, err = gitstore.ParseOID(seen["Base"]); err != nil {
		return c, fmt.Errorf("checkpoint has base %q: %w", seen["Base"], err)
	}
	if c.Created, err = time.Parse(time.RFC3339, seen["Created"]); err != nil {
		return c, fmt.Errorf("checkpoint has no time of creation: %w", err)
	}
	if list := seen["Redo"]; list != "" {
		for _, s := range strings.Split(list, ",") {
			n, err := strconv.Atoi(s)
			if err != nil || n < 0 || len(c.Redo) == maxRedo {
				return c, fmt.Errorf("checkpoint has redo list %q", list)
			}
			c.Redo = append(c.Redo, n)
		}
	}
	c.Agent = seen["Agent"]
	c.Kind = Kind(seen["Kind"])
	c.ReadOnly = seen["Read-Only"] == "true"
	return c, nil
}
