package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
)

// clockTick is the unit of times in /proc/PID/stat: the kernel tells 100 a second on every machine of today.
const clockTick = 10 * time.Millisecond

// cpuOf is the user and system time that a process has taken; 0 of nil.
func cpuOf(p *harness.Process) (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may hold anything; utime and stime are fields 14 and 15.
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

// residentOf is the memory that a process has, in bytes; 0 of nil.
func residentOf(p *harness.Process) (int64, error) {
	if p == nil {
		return 0, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// allocations is how often a server has allocated, as its heap profile says: what costs no more the more rules there are, as
// a page of metrics does.
func allocations(ctx context.Context, debug string) (float64, error) {
	text, err := get(ctx, "http://"+debug+"/debug/pprof/heap?debug=1")
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

// notAsked is how many requests Envoy let pass because the service did not answer.
func notAsked(ctx context.Context, admin string) (n uint64, err error) {
	text, err := get(ctx, admin+"/stats?filter=ratelimit.error$")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		_, value, _ := strings.Cut(line, ": ")
		m, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", admin, err)
		}
		n += m
	}
	return n, nil
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, res.Status)
	}
	return string(b), err
}
