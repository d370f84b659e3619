package decide

import (
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// A client waits until all limits that deny its request admit it. Of quotas, which deny only
// together, one is enough. Hits that never fit explain the denial, but the client waits for the
// other limits too.
func TestRetryAfterIsTheLongestWait(t *testing.T) {
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour})
	denied := func(quota bool, waits ...time.Duration) Decision {
		d := Decision{Plan: &Plan{QuotaMode: quota}}
		for _, wait := range waits {
			d.Limits = append(d.Limits, descriptors.RateLimit{Limit: limit})
			d.Verdicts = append(d.Verdicts, limiters.Verdict{RetryAfter: wait})
		}
		d.classify()
		return d
	}
	const short, long, never = time.Second, time.Minute, time.Duration(-1)
	for name, c := range map[string]struct {
		decisions  []Decision
		want       time.Duration
		descriptor int
	}{
		"the longer wait first":    {[]Decision{denied(false, long), denied(false, short)}, long, 0},
		"the longer wait last":     {[]Decision{denied(false, short), denied(false, long)}, long, 1},
		"limits of one rule":       {[]Decision{denied(false, short, long, short)}, long, 0},
		"quotas":                   {[]Decision{denied(true, long), denied(true, short)}, short, 1},
		"hits that never fit":      {[]Decision{denied(false, 2*time.Hour), denied(false, never)}, 2 * time.Hour, 1},
		"only hits that never fit": {[]Decision{denied(false, short), denied(false, never)}, time.Hour, 1},
		"a limit before quotas":    {[]Decision{denied(false, short), denied(true, long), denied(true, 2*long)}, long, 1},
		"a quota and a limit":      {[]Decision{denied(true, long), denied(true, short), denied(false, 2*short)}, 2 * short, 2},
	} {
		r := Result{Decisions: c.decisions}
		for i := range r.Decisions {
			r.combined.Add(&r.Decisions[i])
		}
		if wait, descriptor := r.RetryAfter(), r.DenyingDescriptorIndex(); wait != c.want || descriptor != c.descriptor {
			t.Errorf("%s: %v by descriptor %d, want %v by %d", name, wait, descriptor, c.want, c.descriptor)
		}
	}
}
