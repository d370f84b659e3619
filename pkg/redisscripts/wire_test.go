package redisscripts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
)

func TestScriptArgumentsOfEveryLimit(t *testing.T) {
	now := time.Date(2025, 11, 21, 1, 0, 0, 0, time.UTC)
	const day, days = 86_400_000_000, 1_763_683_200_000_000
	for _, tt := range []struct {
		spec   limiters.Spec
		params string
		want   string
	}{
		{limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: time.Second}, "", "fixed_window 5 1000000 0 0 0"},
		{limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: time.Second, CountDenied: true}, "", "fixed_window 5 1000000 1 1 0"},
		{limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: time.Second}, "window_start=first_hit peek=over", "fixed_window 5 1000000 0 1 1"},
		{
			limiters.Spec{Algorithm: "fixed_window", Max: 5, Window: 24 * time.Hour}, "window_start=calendar",
			fmt.Sprintf("fixed_window 5 86400000000 0 0 2 %d %d %d %d", days-day, days, days+day, days+2*day),
		},
		{limiters.Spec{Algorithm: "sliding_log", Max: 7, Window: time.Minute}, "peek=over", "sliding_log 7 60000000 0 1"},
		{limiters.Spec{Algorithm: "sliding_log", Max: 7, Window: time.Minute, CountDenied: true}, "", "sliding_log 7 60000000 1 0"},
		{limiters.Spec{Algorithm: "funnel", Max: 7, Window: time.Second}, "capacity=3", "funnel 7 1000000 0 0 3 142857 1 7"},
		{limiters.Spec{Algorithm: "funnel", Max: 4, Window: time.Second, CountDenied: true}, "peek=over", "funnel 4 1000000 1 1 4 250000 0 1"},
		{limiters.Spec{Algorithm: "funnel", Window: time.Second}, "", "funnel 0 1000000 0 0 0 0 0 1"},
		{limiters.Spec{Algorithm: "concurrency", Max: 9}, "lease_ttl=5s", "concurrency 9 5000000"},
		{
			limiters.Spec{Algorithm: "sliding_log", Max: 7, Window: time.Minute},
			"penalty.after=3 penalty.within=1s penalty.for=2s penalty.factor=4 penalty.max=5s penalty.forget=6s",
			"sliding_log 7 60000000 0 0 0 0 3 1000000 2000000 4 5000000 6000000",
		},
		{limiters.Spec{Algorithm: "funnel", Max: 7, Window: time.Minute}, "reserve.ttl=3s", "funnel 7 60000000 0 0 7 8571428 4 7 3000000 0"},
		{limiters.Spec{Algorithm: "funnel", Max: 7, Window: time.Minute}, "reserve.ttl=3s reserve.unsettled=release", "funnel 7 60000000 0 0 7 8571428 4 7 3000000 128000000"},
	} {
		var err error
		if tt.spec.Params, err = limiters.ParseParams(tt.params); err != nil {
			t.Fatal(err)
		}
		limit, err := limiters.NewLimit(tt.spec)
		must.Succeed(t, err)
		name, args, _ := strings.Cut(string(AppendLimit(nil, limit, now)), "\x00")
		got := name
		for ; args != ""; args = args[8:] {
			got += fmt.Sprint(" ", DecodeNumber(args))
		}
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.spec.Algorithm, tt.params, got, tt.want)
		}
	}
}

func TestScriptArgumentsOfACalendarAllocateNothing(t *testing.T) {
	l, err := limiters.NewLimit(limiters.Spec{
		Algorithm: "fixed_window", Max: 1, Window: 24 * time.Hour, Params: limiters.Params{WindowStart: limiters.StartByCalendar},
	})
	must.Succeed(t, err)
	now := time.Date(2025, 11, 21, 0, 0, 0, 0, time.UTC)
	b := AppendLimit(nil, l, now)
	if n := testing.AllocsPerRun(100, func() { AppendLimit(b[:0], l, now) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
