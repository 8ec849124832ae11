package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// reportFormat is raised when a field of the JSON changes its meaning or goes.
const reportFormat = 1

// report is the result of a run, and the form of -json. Figures keep the order
// in which they were measured; a figure is known by workload and name.
type report struct {
	Format  int       `json:"format"`
	Machine machine   `json:"machine"`
	Figures []*figure `json:"figures"`
	Failed  []failure `json:"failed,omitempty"`
}

// failure is a workload that could not be measured to its end.
type failure struct {
	Workload string `json:"workload"`
	Error    string `json:"error"`
}

// figure is one measured value. Times are in milliseconds.
type figure struct {
	Workload string    `json:"workload"`
	Name     string    `json:"name"`
	Value    float64   `json:"value"` // of relofs; the median where there are samples
	Unit     string    `json:"unit"`  // ms, KB, MB (1,024-based) or "" for a count
	Samples  []float64 `json:"samples,omitempty"`
	Baseline *baseline `json:"baseline,omitempty"`
	Ratio    float64   `json:"ratio,omitempty"` // value over the baseline's
	Target   *target   `json:"target,omitempty"`
	OK       *bool     `json:"ok,omitempty"` // target kept; absent without a target
}

// baseline is what a value is compared with.
type baseline struct {
	Name    string    `json:"name"`
	Value   float64   `json:"value"`
	Samples []float64 `json:"samples,omitempty"`
}

// target is the bound of a figure's value or ratio.
type target struct {
	Of  string  `json:"of"` // "value" or "ratio"
	Max float64 `json:"max"`
}

// add puts a plain value into the report.
func (s *session) add(name string, value float64, unit string) *figure {
	f := &figure{Workload: s.workload, Name: name, Value: round3(value), Unit: unit}
	s.report.Figures = append(s.report.Figures, f)
	return f
}

// time puts the median of times into the report.
func (s *session) time(name string, times samples) *figure {
	f := s.add(name, milliseconds(times.median()), "ms")
	f.Samples = times.milliseconds()
	return f
}

// against names the baseline of a time.
func (f *figure) against(name string, times samples) *figure {
	f.Baseline = &baseline{Name: name, Value: round3(milliseconds(times.median())), Samples: times.milliseconds()}
	if f.Baseline.Value > 0 {
		f.Ratio = round3(f.Value / f.Baseline.Value)
	}
	return f
}

// atMost bounds the value.
func (f *figure) atMost(limit float64) {
	f.judge("value", f.Value, limit)
}

// ratioAtMost bounds the ratio to the baseline.
func (f *figure) ratioAtMost(limit float64) {
	f.judge("ratio", f.Ratio, limit)
}

func (f *figure) judge(of string, measured, limit float64) {
	ok := measured <= limit
	f.Target, f.OK = &target{of, limit}, &ok
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// writeTable prints one line a figure, aligned.
func (r *report) writeTable(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s, %d CPUs, %s, %s, %s, %s\n\n", m.Kernel, m.CPUs, m.Filesystem, m.Git, m.Go, m.Relofs)
	if busy := max(m.Load, m.LoadAfter-1); busy > 0.75*float64(m.CPUs) {
		fmt.Fprintf(w, "The machine was busy (load %.1f before, %.1f after): its times say nothing, its ratios little.\n\n", m.Load, m.LoadAfter)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKLOAD\tFIGURE\tRELOFS\tBASELINE\tRATIO\tTARGET\t")
	for _, f := range r.Figures {
		fmt.Fprintln(t, strings.Join(f.cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range r.Failed {
		if _, err := fmt.Fprintf(w, "\n%s failed: %s\n", f.Workload, f.Error); err != nil {
			return err
		}
	}
	return nil
}

func (f *figure) cells() []string {
	cells := []string{f.Workload, f.Name, quantity(f.Value, f.Unit), "", "", "", ""}
	if f.Baseline != nil {
		cells[3] = quantity(f.Baseline.Value, f.Unit) + " " + f.Baseline.Name
		cells[4] = ratio(f.Ratio)
	}
	if f.Target != nil {
		if f.Target.Of == "ratio" {
			cells[5] = "<= " + ratio(f.Target.Max)
		} else {
			cells[5] = "<= " + quantity(f.Target.Max, f.Unit)
		}
		if *f.OK {
			cells[6] = "ok"
		} else {
			cells[6] = "MISS"
		}
	}
	return cells
}

func ratio(x float64) string {
	if x > 0 && x < 0.095 {
		return fmt.Sprintf("%.3fx", x)
	}
	return fmt.Sprintf("%.2fx", x)
}

func quantity(x float64, unit string) string {
	var number string
	switch {
	case x >= 100 || x == float64(int64(x)):
		number = fmt.Sprintf("%.0f", x)
	case x >= 10:
		number = fmt.Sprintf("%.1f", x)
	default:
		number = fmt.Sprintf("%.2f", x)
	}
	return strings.TrimSpace(number + " " + unit)
}
