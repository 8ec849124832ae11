package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/relofs/relofs/api"
)

// Colours, by meaning.
const (
	bold   = "1"
	green  = "32" // added, fine
	red    = "31" // deleted, failed
	yellow = "33" // changed, worth a look
	dim    = "2"
)

func (t *tool) paint(color, text string) string {
	if !t.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// table prints rows in aligned columns. The cells have no colours: they would
// count as width.
func (t *tool) table(rows [][]string) {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
}

// short is a commit id as people read it.
func short(oid string) string { return oid[:min(12, len(oid))] }

func stamp(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05") }

// size is a number of bytes as people read it.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[unit])
}

// quote shows a path that could disturb the terminal or a line-wise reader in
// quotes.
func quote(path string) string {
	for _, c := range path {
		if c < ' ' || c == 0x7f || c == '\uFFFD' || c >= 0x80 && c < 0xa0 {
			return fmt.Sprintf("%q", path)
		}
	}
	return path
}

// exclusions prints what is left out of revisions and why.
func (t *tool) exclusions(w io.Writer, indent string, list []api.Exclusion) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, x := range list {
		reason := x.Reason
		if x.Size > 0 {
			reason += ", " + size(x.Size)
		}
		fmt.Fprintf(tw, "%s%s\t%s\n", indent, quote(x.Path), reason)
	}
	tw.Flush()
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
