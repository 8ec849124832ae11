package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func sampleReport() *report {
	s := &session{workload: "read", config: &config{report: &report{
		Format:  reportFormat,
		Machine: machine{Kernel: "Linux 6.18", CPUs: 2, Filesystem: "ext4", Git: "git version 2", Go: "go1", Relofs: "relofs 1"},
	}}}
	const ms = time.Millisecond
	s.time("rg", samples{150 * ms, 140 * ms, 160 * ms}).against("plain", samples{100 * ms}).ratioAtMost(1.5)
	s.time("find", samples{151 * ms}).against("plain", samples{100 * ms}).ratioAtMost(1.5)
	s.time("next", samples{8 * ms}).atMost(8)
	s.add("resident", 150.01, "MB").atMost(150)
	s.add("anonymous", 12.5, "MB")
	s.report.Failed = []failure{{"build", "no go"}}
	return s.report
}

func TestTableShowsEachFigureWithItsTargetAndVerdict(t *testing.T) {
	var out bytes.Buffer
	if err := sampleReport().writeTable(&out); err != nil {
		t.Fatal(err)
	}
	want := `Linux 6.18, 2 CPUs, ext4, git version 2, go1, relofs 1

WORKLOAD  FIGURE     RELOFS   BASELINE      RATIO  TARGET     
read      rg         150 ms   100 ms plain  1.50x  <= 1.50x   ok
read      find       151 ms   100 ms plain  1.51x  <= 1.50x   MISS
read      next       8 ms                          <= 8 ms    ok
read      resident   150 MB                        <= 150 MB  MISS
read      anonymous  12.5 MB                                  

build failed: no go
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

// What reads the JSON relies on these names.
func TestJSONKeepsItsFields(t *testing.T) {
	var out bytes.Buffer
	if err := sampleReport().writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Format  int
		Machine map[string]any
		Figures []struct {
			Workload, Name, Unit string
			Value, Ratio         float64
			Samples              []float64
			Baseline             *struct {
				Name    string
				Value   float64
				Samples []float64
			}
			Target *struct {
				Of  string
				Max float64
			}
			OK *bool
		}
		Failed []struct{ Workload, Error string }
	}
	dec := json.NewDecoder(strings.NewReader(out.String()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Format != 1 || r.Machine["kernel"] != "Linux 6.18" || len(r.Figures) != 5 || len(r.Failed) != 1 {
		t.Fatalf("got %+v", r)
	}
	rg, next, anonymous := r.Figures[0], r.Figures[2], r.Figures[4]
	if rg.Value != 150 || rg.Ratio != 1.5 || rg.Baseline.Value != 100 || rg.Target.Of != "ratio" || !*rg.OK || len(rg.Samples) != 3 {
		t.Errorf("rg: %+v", rg)
	}
	if next.Baseline != nil || next.Target.Of != "value" || next.Target.Max != 8 {
		t.Errorf("next: %+v", next)
	}
	if anonymous.Target != nil || anonymous.OK != nil {
		t.Errorf("a figure without a target has a verdict: %+v", anonymous)
	}
}
