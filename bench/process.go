package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
)

// clockTick is the unit of times in /proc/PID/stat: 100 a second on every current machine.
const clockTick = 10 * time.Millisecond

// cpuOf returns the user and system time of a process, or 0 for nil.
func cpuOf(p *harness.Process) (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may contain spaces; utime and stime are fields 14 and 15.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// allocations returns the number of allocations of a server, from its heap profile. Unlike a page
// of metrics, its cost does not grow with the number of rules.
func allocations(ctx context.Context, debug string) (float64, error) {
	text, err := harness.Get(ctx, debug+"/debug/pprof/heap?debug=1")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, "# Mallocs = "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s: no count of allocations", debug)
}
