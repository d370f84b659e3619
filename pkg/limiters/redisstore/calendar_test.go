package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// Weir sends three windows of a calendar, and Redis' clock selects one. If its time is in none of
// them, the operation fails.
func TestCalendarWindowIsSelectedByTheClockOfRedis(t *testing.T) {
	const day = 24 * time.Hour
	server := redistest.Start(t)
	s := open(t, server)
	daily := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 2, Window: day, Params: limiters.Params{WindowStart: limiters.StartByCalendar}})
	for ahead, want := range map[int]bool{-3: false, -2: false, -1: true, 0: true, 1: true, 2: false, 3: false} { // Weir's clock, in days
		groups := limiters.Singles(limiters.Op{Key: fmt.Sprint("k", ahead), Limit: daily, Hits: 1})
		b := newBatch(time.Time{}, time.Time{})
		b.encode(groups, s.namer.keys(groups))
		args := b.commandArgs("eval", batchScript().source, 0)
		numbers := args[len(args)-2].([]byte)
		for at := len(numbers) - 4*wordSize; at < len(numbers); at += wordSize {
			start := binary.BigEndian.Uint64(numbers[at:])
			binary.BigEndian.PutUint64(numbers[at:], uint64(int64(start)+int64(ahead)*day.Microseconds()))
		}
		if ahead == -1 {
			// The key was charged yesterday, in the window that is current by Weir's clock.
			state := binary.BigEndian.AppendUint64(slices.Clone(numbers[len(numbers)-3*wordSize:len(numbers)-2*wordSize]), 1)
			must.Succeed(t, server.Client(t).Set(context.Background(), b.keys[0], state, time.Hour).Err())
		}
		value, err := server.Client(t).Do(context.Background(), args...).Result()
		must.Succeed(t, err)
		r, err := readReply(value)
		must.Succeed(t, err)
		out := make([]limiters.Verdict, 1)
		must.Succeed(t, b.decode(r, out))
		switch v := out[0]; {
		case want && (v.Err != nil || !v.Allowed || v.Used != 1 || v.ResetAfter <= 0 || v.ResetAfter > day):
			t.Errorf("Weir is %d days ahead: %s, want the day of Redis", ahead, limiterstest.Format(v))
		case !want && (v.Err == nil || !strings.Contains(v.Err.Error(), "clocks of Weir and Redis differ")):
			t.Errorf("Weir is %d days ahead: %s, want an error", ahead, limiterstest.Format(v))
		}
	}
}
