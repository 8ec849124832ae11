package main

import (
	"context"
	"math"
	"slices"
	"time"
)

// step does one thing once and says how long it took. What it needs before and
// after is its own business and not part of the time.
type step func(ctx context.Context) (time.Duration, error)

// samples are the times of one step.
type samples []time.Duration

// alternate does both steps n times in turns and returns their times. Every
// second round goes the other way round, so that neither always runs in the
// wake of the other.
func alternate(ctx context.Context, n int, a, b step) (as, bs samples, err error) {
	for round := range n {
		first, second, firsts, seconds := a, b, &as, &bs
		if round%2 == 1 {
			first, second, firsts, seconds = b, a, &bs, &as
		}
		if err := first.into(ctx, firsts); err != nil {
			return nil, nil, err
		}
		if err := second.into(ctx, seconds); err != nil {
			return nil, nil, err
		}
	}
	return as, bs, nil
}

func (do step) into(ctx context.Context, times *samples) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	took, err := do(ctx)
	*times = append(*times, took)
	return err
}

// quantile is the smallest sample that at least the share q of all samples
// does not exceed (nearest rank); 0 without samples.
func (s samples) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(s))))
	return sorted[min(max(rank, 1), len(s))-1]
}

// median is the middle sample, of an even number the mean of the middle two.
func (s samples) median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (s samples) milliseconds() []float64 {
	out := make([]float64, len(s))
	for i, d := range s {
		out[i] = round3(milliseconds(d))
	}
	return out
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }
