package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStepsTakeTurnsAndSwapTheLead(t *testing.T) {
	var order strings.Builder
	note := func(name string, took time.Duration) step {
		return func(context.Context) (time.Duration, error) {
			order.WriteString(name)
			return took, nil
		}
	}
	as, bs, err := alternate(t.Context(), 3, note("a", 1), note("b", 2))
	if err != nil {
		t.Fatal(err)
	}
	if order.String() != "abbaab" {
		t.Errorf("order %s, want abbaab", order.String())
	}
	if !slices.Equal(as, samples{1, 1, 1}) || !slices.Equal(bs, samples{2, 2, 2}) {
		t.Errorf("times %v and %v went to the wrong step", as, bs)
	}
}

func TestNoStepRunsAfterAFailureOrAnInterrupt(t *testing.T) {
	broken := errors.New("broken")
	ran := 0
	fail := func(context.Context) (time.Duration, error) { ran++; return 0, broken }
	if _, _, err := alternate(t.Context(), 2, fail, fail); !errors.Is(err, broken) || ran != 1 {
		t.Errorf("err %v after %d steps, want the failure after 1", err, ran)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := alternate(ctx, 2, fail, fail); !errors.Is(err, context.Canceled) || ran != 1 {
		t.Errorf("err %v after %d steps, want none after the interrupt", err, ran)
	}
}

func TestMedianAndQuantiles(t *testing.T) {
	for _, c := range []struct {
		times            samples
		median, p95, max time.Duration
	}{
		{nil, 0, 0, 0},
		{samples{7}, 7, 7, 7},
		{samples{9, 1, 5}, 5, 9, 9},
		{samples{4, 2, 8, 6}, 5, 8, 8},
		{samples{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 10, 19, 20},
	} {
		before := slices.Clone(c.times)
		if got := c.times.median(); got != c.median {
			t.Errorf("median of %v = %d, want %d", c.times, got, c.median)
		}
		if got := c.times.quantile(0.95); got != c.p95 {
			t.Errorf("95 %% of %v = %d, want %d", c.times, got, c.p95)
		}
		if got := c.times.quantile(1); got != c.max {
			t.Errorf("longest of %v = %d, want %d", c.times, got, c.max)
		}
		if !slices.Equal(before, c.times) {
			t.Errorf("%v was reordered to %v", before, c.times)
		}
	}
}
